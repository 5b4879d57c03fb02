package apptest

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait: long enough for a machine that is busy with other
// tests.
const patience = 2 * time.Minute

// server is one running process.
type server struct {
	t    *testing.T
	dir  string
	url  string
	http *http.Client
	cmd  *exec.Cmd
	// stderr holds its log.
	stderr *logged
	// exited is closed when the process has ended; err says how.
	exited chan struct{}
	err    error
	// faulty says that errors in the log are part of the test.
	faulty bool
}

type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// small keeps a server of the tests from taking the machine, and makes drains
// and merges quick.
var small = []string{"--memory-limit=256MiB", "--threads=1", "--disk-floor=0B", "--drain-every=20ms", "--merge-quiet=50ms", "--log-level=warn"}

// start runs a server on a fresh directory. When the test ends it is stopped as
// an operator would, its log is looked at, and what it stored is verified.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	return startOn(t, filepath.Join(t.TempDir(), "data"), nil, args...)
}

func startOn(t *testing.T, dir string, env []string, args ...string) *server {
	t.Helper()
	s := launch(t, dir, env, args...)
	select {
	case <-s.exited:
		t.Fatalf("the server ended before it listened: %v\n%s", s.err, s.stderr)
	default:
	}
	t.Cleanup(s.finish)
	return s
}

// launch comes back when the server listens or has ended.
func launch(t *testing.T, dir string, env []string, args ...string) *server {
	t.Helper()
	s := &server{t: t, dir: dir, stderr: &logged{}, exited: make(chan struct{}), http: newHTTP()}
	flags := append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0"}, small...)
	s.cmd = exec.Command(icecore, append(flags, args...)...) //nolint:noctx // finish ends it
	s.cmd.Env = append(cleanEnv(), env...)
	s.cmd.Stderr = s.stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	address := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if url, ok := strings.CutPrefix(lines.Text(), "icecore listens on "); ok {
				address <- url
			}
		}
		s.err = s.cmd.Wait()
		close(s.exited)
	}()
	select {
	case s.url = <-address:
		s.http = checkedHTTP(t, s.url)
	case <-s.exited:
	case <-time.After(patience):
		s.kill()
		t.Fatalf("the server does not listen\n%s", s.stderr)
	}
	return s
}

// cleanEnv is the environment without what configures icecore.
func cleanEnv() (out []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ICECORE_") {
			out = append(out, v)
		}
	}
	return out
}

func newHTTP() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}}
}

// kill is kill -9.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it may have ended already
	<-s.exited
}

func (s *server) running() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// stop ends the server as an operator does.
func (s *server) stop() {
	s.t.Helper()
	s.http.CloseIdleConnections()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.exited:
		require.NoError(s.t, s.err, "stop: %s", s.stderr)
	case <-time.After(patience):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines go to stderr
		<-s.exited
		s.t.Fatalf("the server did not stop:\n%s", s.stderr)
	}
}

func (s *server) finish() {
	s.http.CloseIdleConnections()
	if s.t.Failed() {
		s.kill()
		s.t.Logf("the server said:\n%.4000s", s.stderr)
		return
	}
	if s.running() {
		s.stop()
	}
	log := s.stderr.String()
	for _, bad := range []string{"panic", "DATA RACE", "fatal error", "level=ERROR"} {
		if bad == "level=ERROR" && s.faulty {
			continue
		}
		if strings.Contains(log, bad) {
			s.t.Errorf("the server's log holds %q:\n%.4000s", bad, log)
			return
		}
	}
	verified(s.t, s.dir)
}

// verified has the witness look at a directory that no server uses.
func verified(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		return
	}
	out, err := exec.Command(icecore, "verify", "--data", dir).CombinedOutput() //nolint:noctx // it ends by itself
	if err != nil && strings.Contains(string(out), "unexpected argument verify") {
		t.Log("this binary has no icecore verify: the stored data was not verified")
		return
	}
	if err != nil {
		t.Errorf("icecore verify --data %s: %v\n%s", dir, err, out)
	}
}

// peak is the most memory that the server ever had resident.
func (s *server) peak() int64 {
	s.t.Helper()
	return procNumber(s.t, s.cmd.Process.Pid, "VmHWM:") << 10
}

// atMost is a bound on memory, of which the race detector takes its own share.
func atMost(n int64) int64 {
	if os.Getenv("APPTEST_RACE") == "1" {
		return 3 * n
	}
	return n
}

func procNumber(t *testing.T, pid int, name string) (n int64) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "status"))
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			for _, c := range rest {
				if '0' <= c && c <= '9' {
					n = 10*n + int64(c-'0')
				}
			}
			return n
		}
	}
	t.Fatalf("/proc/%d/status has no %s", pid, name)
	return 0
}

// command runs icecore to its end. Its exit status is err's.
func command(t *testing.T, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return commandIn(t, "", nil, stdin, args...)
}

func commandIn(t *testing.T, dir string, env []string, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), icecore, args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, stdin, &out, &log
	cmd.Env = append(cleanEnv(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	return out.String(), log.String(), err
}

// eventually polls for what nobody announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func tempFile(t *testing.T, content []byte) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	_, err = f.Write(content)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return f.Name()
}
