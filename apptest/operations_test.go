package apptest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// refusesToStart runs serve, which must end by itself, and gives what it said.
func refusesToStart(t *testing.T, dir string, args ...string) string {
	t.Helper()
	s := launch(t, dir, nil, args...)
	if s.running() {
		s.kill()
		t.Fatal("the server started")
	}
	var exit *exec.ExitError
	require.ErrorAs(t, s.err, &exit)
	require.Equal(t, 1, exit.ExitCode(), s.stderr.String())
	return s.stderr.String()
}

func TestOneProcessPerDirectory(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.traces(plain("one", "one", 1, ids(1), ids(2))).is(200)
	said := refusesToStart(t, s.dir)
	require.Contains(t, said, "the data directory is in use")
	require.Contains(t, said, fmt.Sprintf("process %d", s.cmd.Process.Pid))
	require.Contains(t, said, "icecore serve on "+strings.TrimPrefix(s.url, "http://"))
	s.healthy()
	require.Len(t, s.export("").rows, 1)
	// A killed server leaves no lock behind.
	s.kill()
	again := startOn(t, s.dir, nil)
	require.Len(t, again.export("").rows, 1)
}

func TestAddressesThatAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for listen, want := range map[string]string{
		"0.0.0.0:0": "there is no authentication", ":0": "there is no authentication", "[::]:0": "there is no authentication", "192.0.2.7:0": "there is no authentication",
		"127.0.0.1": "missing port", "nonsense:0": "--listen", "127.0.0.1:99999": "--listen",
		strings.TrimPrefix(s.url, "http://"): "address already in use",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		said := refusesToStart(t, dir, "--listen", listen)
		require.Contains(t, said, want, listen)
		require.Contains(t, said, "--listen")
		require.NoDirExists(t, dir, "nothing was made")
	}
	for _, listen := range []string{"localhost:0", "127.0.0.2:0"} {
		other := startOn(t, filepath.Join(t.TempDir(), "data"), nil, "--listen", listen)
		other.healthy()
	}
	for _, bad := range [][]string{{"--max-request", "12"}, {"--merge-policies", "best"}, {"--memory-limit", "lots"}, {"--log-level", "loud"}, {"--disk-floor", "-1B"}, {"--no-such-flag"}} {
		s := launch(t, filepath.Join(t.TempDir(), "data"), nil, bad...)
		require.False(t, s.running())
		require.Error(t, s.err)
		require.Contains(t, s.stderr.String(), bad[0])
	}
}

// A stop lets what is under way end well, and takes nothing new.
func TestStopWhileStreaming(t *testing.T) {
	t.Parallel()
	s := start(t)
	much(s)
	resp, err := s.http.Get(s.url + "/v1/trajectories") //nolint:noctx // the client has a timeout
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // read to its end
	head := make([]byte, 1<<20)
	_, err = io.ReadFull(resp.Body, head)
	require.NoError(t, err)

	// A trace that is half sent when the stop comes.
	body, in := io.Pipe()
	result := make(chan string, 1)
	go func() {
		a, err := s.try(http.MethodPost, "/v1/traces", body, "Content-Type", typeJSON)
		if err != nil {
			result <- err.Error()
			return
		}
		result <- string(a.body)
	}()
	late := plain("late", "late", 1, ids(1), ids(2)).json()
	_, err = in.Write(late[:10])
	require.NoError(t, err)
	var status struct {
		Open int `json:"ingest_open_requests"`
	}
	eventually(t, "it is open", func() bool {
		s.get("/v1/status").is(200).into(&status)
		return status.Open == 1
	})
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	fresh := newHTTP()
	eventually(t, "nothing new is taken", func() bool {
		r, err := fresh.Get(s.url + "/healthz") //nolint:noctx // the client has a timeout
		if err != nil {
			return true
		}
		_ = r.Body.Close()
		return false
	})
	_, err = in.Write(late[10:])
	require.NoError(t, err)
	require.NoError(t, in.Close())
	require.Contains(t, <-result, `"status":"stored"`)
	n, err := countArrow(io.MultiReader(bytes.NewReader(head), resp.Body))
	require.NoError(t, err)
	require.Equal(t, bigRollouts, n)
	_, _ = io.Copy(io.Discard, resp.Body)
	require.Equal(t, "true", resp.Trailer.Get("Icecore-Complete"))
	<-s.exited
	require.NoError(t, s.err, s.stderr.String())
	again := startOn(t, s.dir, nil)
	again.get("/v1/traces/late").is(200)
}

// A stream that does not end in time is broken off, and is seen to be.
func TestStopBreaksOffWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	s := start(t, "--stop-timeout=300ms")
	s.faulty = true
	much(s)
	resp, err := s.http.Get(s.url + "/v1/trajectories") //nolint:noctx // the client has a timeout
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // it breaks
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	<-s.exited
	require.NoError(t, s.err, s.stderr.String())
	n, err := countArrow(resp.Body)
	require.Error(t, err)
	require.Less(t, n, bigRollouts)
	require.Empty(t, resp.Trailer.Get("Icecore-Complete"))
}

func TestSecondInterruptEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, "--stop-timeout=1h")
	s.traces(plain("two", "two", 1, ids(1), ids(2))).is(200)
	much(s)
	resp, err := s.http.Get(s.url + "/v1/trajectories") //nolint:noctx // the client has a timeout
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // it breaks
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	eventually(t, "it stops", func() bool { return strings.Contains(s.stderr.String(), "stopping") || !s.accepts() })
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	<-s.exited
	var exit *exec.ExitError
	require.ErrorAs(t, s.err, &exit)
	require.Equal(t, 130, exit.ExitCode())
	again := startOn(t, s.dir, nil)
	again.get("/v1/traces/two").is(200)
}

func (s *server) accepts() bool {
	resp, err := newHTTP().Get(s.url + "/healthz") //nolint:noctx // the client has a timeout
	if err == nil {
		_ = resp.Body.Close()
	}
	return err == nil
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	out, _, err := command(t, nil, "--help")
	require.NoError(t, err)
	commands := []string{"serve", "import", "export", "demo", "version"}
	if strings.Contains(out, "verify") {
		commands = append(commands, "verify")
	}
	for _, name := range commands {
		require.Contains(t, out, name)
		help, stderr, err := command(t, nil, name, "--help")
		require.NoError(t, err, stderr)
		require.Contains(t, help, "Usage: icecore "+name)
		if name != "version" {
			require.Contains(t, help, "$ICECORE_")
		}
	}
	require.NotRegexp(t, `(?m)^\s+warehouse\b`, out)
	out, _, err = command(t, nil, "version")
	require.NoError(t, err)
	require.Regexp(t, `^icecore \S+ \(revision \S+, go1\.\S+, \w+/\w+\)\n$`, out)
	for _, wrong := range [][]string{{}, {"sevre"}, {"serve", "extra"}, {"import"}, {"export"}} {
		_, stderr, err := command(t, nil, wrong...)
		require.Error(t, err, wrong)
		require.NotEmpty(t, stderr)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	other := filepath.Join(t.TempDir(), "other")
	cmd := exec.CommandContext(t.Context(), icecore, "serve")
	cmd.Env = append(cleanEnv(), "ICECORE_DATA="+dir, "ICECORE_LISTEN=127.0.0.1:0", "ICECORE_MAX_ITEMS=2", "ICECORE_MEMORY_LIMIT=256MiB", "ICECORE_DISK_FLOOR=0B")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 200)
	n, err := out.Read(line)
	require.NoError(t, err)
	url, ok := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "icecore listens on ")
	require.True(t, ok)
	s := &server{t: t, url: url, http: newHTTP()}
	s.traces(plain("env", "1", 1, ids(1), ids(2)), plain("env", "2", 2, ids(1), ids(2)), plain("env", "3", 3, ids(1), ids(2))).problem(413, "too_many_items")
	s.http.CloseIdleConnections()
	require.FileExists(t, filepath.Join(dir, "control.sqlite"))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())

	// A flag beats the variable.
	flags := startOn(t, other, []string{"ICECORE_DATA=" + dir, "ICECORE_LISTEN=192.0.2.1:1"})
	flags.healthy()
	require.DirExists(t, other)
	stdout, _, err := commandIn(t, "", []string{"ICECORE_SERVER=" + flags.url}, bytes.NewReader(plain("env", "4", 1, ids(1), ids(2)).json()), "import", "-q", "-")
	require.NoError(t, err)
	require.Equal(t, []string{"1", "0", "0", "0"}, importCounts(t, stdout))
}

// sample is one line of the Prometheus text format.
type sample struct {
	labels string
	value  float64
}

// metrics parses /metrics strictly: every sample belongs to a family that was
// described before.
func (s *server) metrics() map[string][]sample {
	s.t.Helper()
	a := s.get("/metrics").is(200)
	require.Contains(s.t, a.header.Get("Content-Type"), "text/plain")
	out, types := map[string][]sample{}, map[string]string{}
	for line := range strings.Lines(string(a.body)) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			require.NotContains(s.t, types, name)
			types[name] = kind
			continue
		}
		if strings.HasPrefix(line, "# HELP ") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		require.Positive(s.t, at, line)
		value, err := strconv.ParseFloat(line[at+1:], 64)
		require.NoError(s.t, err, line)
		name, labels, _ := strings.Cut(line[:at], "{")
		family := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && types[base] != "" {
				family = base
			}
		}
		require.NotEmpty(s.t, types[family], line)
		require.Regexp(s.t, `^[a-zA-Z_:][a-zA-Z0-9_:]*$`, name)
		out[name] = append(out[name], sample{strings.TrimSuffix(labels, "}"), value})
	}
	return out
}

func TestMetricsAndStatus(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.traces(plain("m", "m1", 1, ids(1, 2), ids(3)), plain("m", "m2", 2, ids(1, 2, 3, 4), ids(5)), plain("m", "m2", 2, ids(9), ids(5))).is(207)
	s.send("POST", "/v1/traces?ack=queryable", plain("m", "m1", 1, ids(1, 2), ids(3)).json(), "Content-Type", typeJSON).is(200)
	s.export("")
	m := s.metrics()
	for _, name := range []string{"icecore_commit_requests_count", "icecore_commit_requests_bucket", "icecore_commit_seconds_sum", "icecore_commits_total", "icecore_commit_queue",
		"icecore_drain_lag_seconds", "icecore_drains_total", "icecore_drain_rows_total", "icecore_drain_bytes_total", "icecore_journal_pending_bytes", "icecore_journal_kept_bytes",
		"icecore_merge_lag_seconds", "icecore_merge_waiting_rollouts", "icecore_duckdb_memory_bytes", "icecore_disk_bytes", "icecore_disk_free_bytes", "icecore_tape_head_bytes",
		"icecore_ingest_open_requests", "icecore_ingest_held_bytes", "icecore_traces_total", "icecore_tokens_sent_total", "icecore_tokens_kept_total", "go_goroutines", "process_resident_memory_bytes"} {
		require.NotEmpty(t, m[name], name)
	}
	by := map[string]float64{}
	for _, v := range m["icecore_traces_total"] {
		by[v.labels] = v.value
	}
	require.Equal(t, map[string]float64{`status="stored"`: 2, `status="duplicate"`: 1, `status="refused"`: 1}, by)
	require.Equal(t, 8.0, m["icecore_tokens_sent_total"][0].value)
	require.Equal(t, 5.0, m["icecore_tokens_kept_total"][0].value, "each token once")
	require.Equal(t, 0.0, m["icecore_journal_pending_bytes"][0].value)
	files := ""
	for _, v := range m["icecore_disk_bytes"] {
		require.Positive(t, v.value+1)
		files += v.labels
	}
	require.Contains(t, files, "control.sqlite")
	require.Contains(t, files, "warehouse.duckdb")

	var st object
	s.get("/v1/status").is(200).into(&st)
	for _, name := range []string{"commit_queue", "newest_batch", "drained_batch", "journal_pending_bytes", "journal_kept_bytes", "drain_lag_seconds", "disk_free_bytes",
		"disk_bytes", "tape_head_bytes", "duckdb_memory_bytes", "version", "ingest_open_requests", "ingest_held_bytes", "merge_waiting_rollouts", "merge_lag_seconds", "open_leases", "oldest_open_lease"} {
		require.Contains(t, st, name)
	}
	require.Equal(t, st["newest_batch"], st["drained_batch"])
	require.NotEmpty(t, st["duckdb_memory_bytes"])
	require.Equal(t, "ok\n", string(s.get("/healthz").body))
	require.Equal(t, "ready\n", string(s.get("/readyz").body))
}

// A full disk is said to be full, nothing is taken in, and reading goes on.
func TestDiskFloor(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.traces(plain("disk", "d1", 1, ids(1), ids(2))).is(200)
	s.stop()
	full := startOn(t, s.dir, nil, "--disk-floor=1000TB")
	a := full.traces(plain("disk", "d2", 2, ids(1), ids(2)))
	a.problem(503, "disk_full")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	full.get("/readyz").problem(503, "not_ready")
	full.get("/healthz").is(200)
	full.get("/v1/traces/d2").problem(404, "not_found")
	require.Len(t, full.export("").rows, 1)
}

func TestDemo(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	testdata, err := filepath.Abs(capturesDir)
	require.NoError(t, err)
	out, stderr, err := commandIn(t, "", []string{"TMPDIR=" + tmp}, nil, "demo", "--once", "--captures", testdata, "--memory-limit=512MiB")
	require.NoError(t, err, "%s%s", out, stderr)
	for _, want := range []string{"imported: 598 traces stored, 0 duplicates, 0 refused", "By strict_tree", "By polar_compat(end_of_turn=151645)",
		"sent", "kept", "dispositions trained", "boundaries", "abandoned_retry", "dropped_by_policy", "token_ids", "loss_mask", "logprobs", "list<float32", "icecore export", "/v1/trajectories"} {
		require.Contains(t, out, want)
	}
	for _, harness := range []string{"codex", "claude-code", "qwen-code", "pi"} {
		require.Regexp(t, `(?m)^\s+`+harness+`\s+\d+`, out)
	}
	require.NotContains(t, out, "Serving")
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left, "nothing is left behind")

	// Also when its reader has seen enough.
	cmd := exec.CommandContext(t.Context(), icecore, "demo", "--once", "--captures", testdata, "--memory-limit=512MiB")
	cmd.Env = append(cleanEnv(), "TMPDIR="+tmp)
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = pipe.Read(make([]byte, 10))
	require.NoError(t, err)
	require.NoError(t, pipe.Close())
	require.Error(t, cmd.Wait())
	left, err = os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)

	parent := filepath.Join(t.TempDir(), "here")
	out, stderr, err = commandIn(t, "", []string{"TMPDIR=/nonexistent"}, nil, "demo", "--once", "--captures", testdata, "--data", parent, "--memory-limit=512MiB")
	require.NoError(t, err, "%s%s", out, stderr)
	_, stderr, err = commandIn(t, t.TempDir(), []string{"TMPDIR=" + tmp}, nil, "demo", "--once")
	require.Error(t, err)
	require.Contains(t, stderr, "testdata/captures")
}
