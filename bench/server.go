package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
)

// server is a real icecore on a fresh directory.
type server struct {
	cmd  *exec.Cmd
	dir  string
	base string
	http *http.Client
	// kept: the bytes of a lease were.
	kept bool
}

func (b *bench) start(args ...string) (*server, error) {
	dir, err := os.MkdirTemp("", "icecore-bench-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	s := &server{dir: dir, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}}}
	s.cmd = exec.Command(b.bin, append([]string{"serve", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--log-level", "error"}, args...)...)
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	s.base = strings.TrimSpace(strings.TrimPrefix(line, "icecore listens on "))
	return s, nil
}

// stop ends the server and removes its directory.
func (s *server) stop() error {
	if err := s.shutdown(); err != nil {
		return err
	}
	return os.RemoveAll(s.dir)
}

func (s *server) shutdown() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop server: %w", err)
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("stop server: %w", err)
	}
	return nil
}

// processor is the processor time that the server and its warehouse's process have
// used; on a machine that does other things, too, it says more than a clock. In
// steps of 10 ms.
func (s *server) processor() (used time.Duration) {
	pid := s.cmd.Process.Pid
	pids := []string{fmt.Sprint(pid)}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is good
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that ended has none
		pids = append(pids, strings.Fields(string(text))...)
	}
	for _, p := range pids {
		text, _ := os.ReadFile("/proc/" + p + "/stat")
		// Behind the name, which may hold anything: state is the first, utime the twelfth.
		if f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])); len(f) > 12 {
			var user, system time.Duration
			if _, err := fmt.Sscan(f[11]+" "+f[12], &user, &system); err == nil {
				used += (user + system) * 10 * time.Millisecond
			}
		}
	}
	return used
}

func (s *server) post(path, contentType string, body []byte) error {
	resp, err := s.http.Post(s.base+path, contentType, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read whole
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("post %s: %s %.300s %w", path, resp.Status, text, err)
	}
	return nil
}

// get reads an answer away and gives its size and the time to its first byte.
func (s *server) get(path string) (n int64, first, whole time.Duration, err error) {
	started := time.Now()
	resp, err := s.http.Get(s.base + path)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("get: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read whole
	first = time.Since(started)
	n, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 1<<20))
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s", path, resp.Status)
	}
	return n, first, time.Since(started), err
}

// metric reads one counter of /metrics, summed over its labels.
func (s *server) metric(name string) (float64, error) {
	resp, err := s.http.Get(s.base + "/metrics")
	if err != nil {
		return 0, fmt.Errorf("get metrics: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read
	sum := 0.0
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &v); err == nil {
			sum += v
		}
	}
	return sum, lines.Err()
}

func readCaptures(dir string) ([][]byte, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.ndjson.zst"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no captures in %s: %w", dir, err)
	}
	slices.Sort(files)
	var lines [][]byte
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("read captures: %w", err)
		}
		z, err := zstd.NewReader(nil)
		if err != nil {
			return nil, fmt.Errorf("read captures: %w", err)
		}
		text, err := z.DecodeAll(raw, nil)
		z.Close()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f, err)
		}
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			if len(line) > 0 {
				lines = append(lines, line)
			}
		}
	}
	return lines, nil
}

// fresh gives the captures under new ids, so that they are stored anew.
func (b *bench) fresh(round int) [][]byte {
	out := make([][]byte, len(b.lines))
	for i, l := range b.lines {
		tag := fmt.Appendf(nil, `_id":"x%d-`, round)
		l = bytes.Replace(l, []byte(`"trace_id":"`), append([]byte(`"trace`), tag...), 1)
		out[i] = bytes.Replace(l, []byte(`"rollout_id":"`), append([]byte(`"rollout`), tag...), 1)
	}
	return out
}

// requests joins lines to bodies of about requestBytes.
func requests(lines [][]byte) [][]byte {
	var out [][]byte
	var body []byte
	for _, l := range lines {
		body = append(append(body, l...), '\n')
		if len(body) >= requestBytes {
			out, body = append(out, body), nil
		}
	}
	if len(body) > 0 {
		out = append(out, body)
	}
	return out
}

func total(bodies [][]byte) int {
	n := 0
	for _, b := range bodies {
		n += len(b)
	}
	return n
}

func rate(bytes int, d time.Duration) float64 { return float64(bytes) / 1e6 / d.Seconds() }

// diskBytes is what the data directory of a stopped server takes; it removes it.
func (s *server) diskBytes() (int64, error) {
	var n int64
	defer os.RemoveAll(s.dir) //nolint:errcheck // a leftover in the temporary directory
	entries, err := os.ReadDir(filepath.Join(s.dir, "data"))
	if err != nil {
		return 0, fmt.Errorf("read directory: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return 0, fmt.Errorf("read directory: %w", err)
		}
		n += info.Size()
	}
	return n, nil
}
