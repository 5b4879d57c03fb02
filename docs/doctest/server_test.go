package doctest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var build = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("ICECORE_BINARY"); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "icecore-doctest-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "icecore")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", "duckdb_arrow", "-o", path, "./cmd/icecore")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	return path, cmd.Run()
})

// TestMain removes the binary that was built for the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("ICECORE_BINARY") == "" {
		if path, err := build(); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
	}
	os.Exit(code)
}

// binary is the icecore under test: ICECORE_BINARY, or one built here.
func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	require.NoError(t, err)
	return path
}

// python is the interpreter for the examples. It must have pyarrow.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("ICECORE_PYTHON")
	if path == "" {
		path, _ = filepath.Abs(filepath.Join(root, ".venv", "bin", "python"))
		if _, err := os.Stat(path); err != nil {
			path = "python3"
		}
	}
	out, err := exec.CommandContext(t.Context(), path, "-c", "import httpx, numpy, pyarrow").CombinedOutput()
	require.NoError(t, err, "%s has no pyarrow, httpx or numpy, which the Python examples need; `make venv` makes a .venv that has it\n%s", path, out)
	return path
}

// clientSource is where the examples find the Python client.
func clientSource(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, "clients", "python", "src"))
	require.NoError(t, err)
	return dir
}

// workDir is a directory that looks like the repository after make build.
func workDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	bin, err := filepath.Abs(binary(t))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(bin, filepath.Join(dir, "bin", "icecore")))
	testdata, err := filepath.Abs(filepath.Join(root, "testdata"))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(testdata, filepath.Join(dir, "testdata")))
	return dir
}

// server is a process that listens: icecore, or its test engine.
type server struct {
	cmd    *exec.Cmd
	addr   string
	stderr *os.File
}

var (
	listening = regexp.MustCompile(`icecore listens on http://(\S+)`)
	sampling  = regexp.MustCompile(`http://(\S+)/vllm`)
)

// startServer runs `bin/icecore serve` in dir with a free port.
func startServer(t *testing.T, dir string, env []string, args ...string) *server {
	t.Helper()
	hasListen := false
	for i, a := range args {
		args[i] = strings.ReplaceAll(a, ":7470", ":0")
		hasListen = hasListen || strings.HasPrefix(a, "--listen")
	}
	if !hasListen {
		args = append(args, "--listen=127.0.0.1:0")
	}
	return startProcess(t, dir, env, listening, append([]string{"serve"}, args...)...)
}

// startEngine runs `bin/icecore test-engine` in dir with a free port.
func startEngine(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	return startProcess(t, dir, nil, sampling, append([]string{"test-engine", "--listen=127.0.0.1:0"}, args...)...)
}

// startProcess waits until what runs has said where it listens.
func startProcess(t *testing.T, dir string, env []string, where *regexp.Regexp, args ...string) *server {
	t.Helper()
	s := &server{cmd: exec.Command("bin/icecore", args...)}
	s.cmd.Dir = dir
	s.cmd.Env = append(os.Environ(), env...)
	var err error
	s.stderr, err = os.CreateTemp(dir, "serve-log-")
	require.NoError(t, err)
	s.cmd.Stderr = s.stderr
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
	})
	lines := make(chan string, 1)
	go func() {
		l := bufio.NewScanner(out)
		said := false
		for l.Scan() {
			if m := where.FindStringSubmatch(l.Text()); m != nil && !said {
				said = true
				lines <- m[1]
			}
		}
		close(lines)
	}()
	select {
	case s.addr = <-lines:
		require.NotEmpty(t, s.addr, "%v: %s", args, s.log(t))
	case <-time.After(patience):
		require.Fail(t, "the process did not start", "%v: %s", args, s.log(t))
	}
	return s
}

func (s *server) log(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(s.stderr.Name())
	require.NoError(t, err)
	return string(text)
}

// stop interrupts the server, which must end well.
func (s *server) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, s.cmd.Wait(), "the server did not stop well:\n%s", s.log(t))
	require.NoError(t, s.stderr.Close())
}
