package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// startEngine starts `icecore test-engine` and gives it scripts, one per model. What
// comes back has the address of its vLLM face as base.
func (b *bench) startEngine(scripts map[string]any) (*server, error) {
	dir, err := os.MkdirTemp("", "icecore-bench-engine-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	s := &server{dir: dir, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}}}
	s.cmd = exec.Command(b.bin, "test-engine", "--listen", "127.0.0.1:0")
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start test engine: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start test engine: %w", err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && s.base == ""; {
		if url, face := strings.CutSuffix(strings.TrimSpace(lines.Text()), "/vllm"); face {
			s.base = url
		}
	}
	for model, script := range scripts {
		text, err := json.Marshal(script)
		if err != nil {
			return nil, fmt.Errorf("write script: %w", err)
		}
		if err := s.tell(http.MethodPut, "/_scripts/"+model, string(text)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// tell has the test engine do something that is answered without a body.
func (s *server) tell(method, path, body string) error {
	req, err := http.NewRequest(method, s.base+path, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("tell test engine: %w", err)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return fmt.Errorf("tell test engine: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is empty
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("tell test engine: %s %s: %s", method, path, resp.Status)
	}
	return nil
}

// stopEngine ends it: its connections are cut.
func (s *server) stopEngine() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop test engine: %w", err)
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("stop test engine: %w", err)
	}
	return os.RemoveAll(s.dir)
}

// startGateway starts a server with a gateway to an engine that was told its scripts.
func (b *bench) startGateway(engine *server) (*server, error) {
	file := filepath.Join(engine.dir, "gateway.yaml")
	text := fmt.Sprintf("engines:\n  - url: %s/vllm\n    kind: vllm\nlimits:\n  max_open: 100000\n", engine.base)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	args := []string{"--gateway", file}
	if b.profile {
		args = append(args, "--profile")
	}
	s, err := b.start(args...)
	if err != nil {
		return nil, err
	}
	// The gateway asks the engine what it is when it starts.
	for range 200 {
		var models struct {
			Data []json.RawMessage `json:"data"`
		}
		if err := s.into("/gateway/-/v1/models", &models); err != nil {
			return nil, err
		}
		if len(models.Data) > 1 {
			return s, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, fmt.Errorf("start gateway: it does not see the test engine's models")
}

// memory is what the server's process holds in memory, in bytes; the warehouse's
// process is not in it.
func (s *server) memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kib int64
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				return 0, fmt.Errorf("read memory: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("read memory: there is no VmRSS")
}

// openFiles raises the limit of open files as far as may be, for this process and those
// that it starts, and gives it.
func openFiles(want uint64) (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("read limit of open files: %w", err)
	}
	if higher := (syscall.Rlimit{Cur: want, Max: max(want, l.Max)}); syscall.Setrlimit(syscall.RLIMIT_NOFILE, &higher) == nil {
		return want, nil
	}
	l.Cur = l.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("raise limit of open files: %w", err)
	}
	return l.Cur, nil
}
