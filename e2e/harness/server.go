package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const logName = "icecore.log"

// server is a real icecore with a gateway, on a directory of its own.
type server struct {
	cmd  *exec.Cmd
	base string
	log  string // path of what it wrote
}

func startServer(ctx context.Context, binary, dir string, gateway any) (*server, error) {
	text, err := json.MarshalIndent(gateway, "", "  ") // JSON is YAML
	if err != nil {
		return nil, fmt.Errorf("write gateway's settings: %w", err)
	}
	settings := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(settings, text, 0o644); err != nil {
		return nil, fmt.Errorf("write gateway's settings: %w", err)
	}
	s := &server{log: filepath.Join(dir, logName)}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	defer log.Close() //nolint:errcheck // the process has its own handle
	s.cmd = exec.CommandContext(ctx, binary, "serve", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--gateway", settings)
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.WaitDelay = time.Minute
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start server: it ended before it listened: %s", tail(s.log, 20)), s.cmd.Wait())
		}
		if base, ok := strings.CutPrefix(line, "icecore listens on "); ok {
			s.base = strings.TrimSpace(base)
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, r) }() // it must not block on its output
	return s, nil
}

func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop server: %w", err)
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("stop server: %w: %s", err, tail(s.log, 20))
	}
	return nil
}

// call sends in as JSON, when it is not nil, and reads the answer into out, when that
// is not nil.
func (s *server) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read whole
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %.500s", method, path, resp.Status, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: read answer: %w", method, path, err)
	}
	return nil
}

// tail gives the last lines of a file.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
