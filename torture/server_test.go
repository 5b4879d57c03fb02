package torture

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	rounds = flag.Int("torture.rounds", 3, "how many rounds of kills each test makes")
	seed   = flag.Uint64("torture.seed", 0, "what everything random is drawn from; 0: another each time")
	race   = flag.Bool("torture.race", false, "build the server with the race detector")
	load   = flag.Int("torture.load", 1, "factor on how much each round stores")
)

// icecore is the server with failpoints, built once.
var icecore string

func TestMain(m *testing.M) {
	if told := os.Getenv(asHarness); told != "" {
		os.Exit(actAsHarness(told))
	}
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "icecore-torture")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a left-over directory in /tmp
	icecore = filepath.Join(dir, "icecore")
	args := []string{"build", "-tags", "duckdb_arrow failpoint", "-o", icecore, "icecore/cmd/icecore"}
	if *race {
		args = slices.Insert(args, 1, "-race")
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build the server: %v\n%s", err, out)
		return 1
	}
	// Most of the time a test waits for a server; two processors serve four.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// server is one running process.
type server struct {
	cmd    *exec.Cmd
	url    string
	stderr *logged
	// exited is closed when the process has ended; err says how.
	exited chan struct{}
	err    error
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

// busy are the flags that make drains, merges and checkpoints frequent.
var busy = []string{"--drain-every=5ms", "--merge-quiet=10ms", "--merge-wait=10ms", "--checkpoint-every=30ms", "--checkpoint-bytes=64KiB",
	"--disk-floor=0B", "--memory-limit=512MiB", "--threads=2", "--log-level=warn"}

const startTimeout = time.Minute

// launch starts a process on dir. It comes back when the server listens, or
// with an error when it has ended before.
func launch(dir, failpoint string, args ...string) (*server, error) {
	return launchUntil(dir, failpoint, nil, args...)
}

// launchUntil is launch that kills the process at once when killed is closed
// before it listens.
func launchUntil(dir, failpoint string, killed <-chan time.Time, args ...string) (*server, error) {
	s := &server{stderr: &logged{}, exited: make(chan struct{})}
	s.cmd = exec.Command(icecore, append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0"}, args...)...)
	s.cmd.Env = append(os.Environ(), "ICECORE_FAILPOINT="+failpoint)
	s.cmd.Stderr = s.stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
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
		return s, nil
	case <-s.exited:
		return s, fmt.Errorf("the server ended before it listened: %w\n%s", s.err, s.stderr)
	case <-killed:
		s.kill()
		return s, fmt.Errorf("killed while it started")
	case <-time.After(startTimeout):
		s.kill()
		return s, fmt.Errorf("the server did not listen within %v\n%s", startTimeout, s.stderr)
	}
}

// start launches a server that must come up by itself.
func start(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	s, err := launch(dir, "", append(args[:len(args):len(args)], busy...)...)
	require.NoError(t, err, "start on %s", dir)
	t.Cleanup(s.kill)
	return s
}

// kill is kill -9.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it may have ended already
	<-s.exited
}

func (s *server) alive() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// stop ends the server as an operator does.
func (s *server) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.exited:
		require.NoError(t, s.err, "stop: %s", s.stderr)
	case <-time.After(startTimeout):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines go to stderr
		<-s.exited
		t.Fatalf("the server did not stop:\n%s", s.stderr)
	}
}

// killedBySignal says that the process ended by SIGKILL and not of itself.
func (s *server) killedBySignal() bool {
	if s.cmd.ProcessState == nil {
		return false
	}
	ws, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}

// verified runs the witness over a directory that no server uses.
func verified(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, icecore, "verify", "--data", dir).CombinedOutput()
	require.NoError(t, err, "icecore verify --data %s:\n%s", dir, out)
}

// newClient makes a client of its own for each loader and oracle.
func newClient() *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 8, DisableCompression: true}}
}

// scratch is a data directory of a test; what it holds is kept when the test
// failed and ICECORE_TORTURE_KEEP is set.
func scratch(t *testing.T) string {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to reproduce: go test ./torture -run '^%s$' -torture.seed=%d -torture.rounds=%d -torture.load=%d", t.Name(), *seed, *rounds, *load)
		}
	})
	if keep := os.Getenv("ICECORE_TORTURE_KEEP"); keep != "" {
		dir, err := os.MkdirTemp(keep, strings.ReplaceAll(t.Name(), "/", "-")+"-")
		require.NoError(t, err)
		return filepath.Join(dir, "data")
	}
	return filepath.Join(t.TempDir(), "data")
}
