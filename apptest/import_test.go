package apptest

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fileCalls are calls as a file may hold them.
func fileCalls() (out []call) {
	for i := range 12 {
		c := plain("file-"+itoa(i%3), fmt.Sprintf("f%02d", i), int64(i), ids(1, int32(i)), ids(2, 3, 4)).with("harness", []string{"codex", "pi"}[i%2],
			"response_logprobs", append(lps(math.NaN(), -0.1), nil), "started_at", fmt.Sprintf("2026-01-31T09:30:%02d.123Z", i),
		)
		if i%4 == 0 {
			c = c.with("response_logprobs", nil, "seq", nil)
		}
		if i%5 == 0 {
			delete(c, "response_logprobs")
			delete(c, "response_token_ids")
		}
		out = append(out, c)
	}
	return out
}

// makeFiles writes the calls of calls.ndjson in every other format.
const makeFiles = `
import gzip, json, sys
import pyarrow as pa, pyarrow.parquet as pq, pyarrow.feather as feather
d = sys.argv[1]
rows = [json.loads(l) for l in open(d + "/calls.ndjson")]
num = lambda v: None if v is None else float(v)
def col(name, typ, conv=lambda v: v):
    return pa.array([conv(r.get(name)) for r in rows], typ)
def table(list_=pa.list_, text=pa.string(), stamp=pa.timestamp("us", "UTC"), ints=pa.int32(), floats=pa.float32(), seq=pa.int64()):
    times = pa.array([r["started_at"].replace("Z", "") for r in rows]).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    if stamp is not None: times = times.cast(stamp) if stamp.tz else pa.array(times.cast(pa.int64()), pa.int64()).cast(pa.timestamp("us")).cast(stamp)
    else: times = col("started_at", text)
    cols = {"trace_id": col("trace_id", text), "rollout_id": col("rollout_id", text), "seq": col("seq", seq),
            "prompt_token_ids": col("prompt_token_ids", list_(ints)), "response_token_ids": col("response_token_ids", list_(ints)),
            "response_logprobs": col("response_logprobs", list_(floats), lambda v: None if v is None else [num(x) for x in v]),
            "harness": col("harness", pa.string()).dictionary_encode(), "started_at": times}
    return pa.table(cols)
plain = table()
large = table(list_=pa.large_list, text=pa.large_string(), stamp=pa.timestamp("ns", "Europe/Berlin"))
other = table(stamp=pa.timestamp("ms"), ints=pa.int64(), floats=pa.float64(), seq=pa.int32())
def stream(t, path, **o):
    with pa.OSFile(path, "wb") as f, pa.ipc.new_stream(f, t.schema, options=pa.ipc.IpcWriteOptions(**o)) as w: w.write_table(t, max_chunksize=5)
def file(t, path, **o):
    with pa.OSFile(path, "wb") as f, pa.ipc.new_file(f, t.schema, options=pa.ipc.IpcWriteOptions(**o)) as w: w.write_table(t, max_chunksize=5)
stream(plain, d + "/s.arrows"); stream(large, d + "/l.arrow", compression="zstd"); file(plain, d + "/f.arrow"); file(other, d + "/g.ipc", compression="lz4")
feather.write_feather(large, d + "/x.feather", compression="zstd")
pq.write_table(plain, d + "/p.parquet"); pq.write_table(large, d + "/q.parquet", compression="zstd", row_group_size=4); pq.write_table(other, d + "/r.parquet", store_schema=False, version="1.0", compression="gzip")
pq.write_table(table(stamp=None), d + "/t.parquet", data_page_version="2.0", use_dictionary=False)
for name in ["p.parquet", "s.arrows"]:
    gzip.open(d + "/" + name + ".gz", "wb").write(open(d + "/" + name, "rb").read())
`

// The same calls in whatever kind of file are the same traces.
func TestImportEveryFormat(t *testing.T) {
	t.Parallel()
	s := start(t)
	dir := t.TempDir()
	calls := fileCalls()
	write := func(name string, content []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	lines := ndjson(calls)
	write("calls.ndjson", lines)
	write("c.jsonl", append(append([]byte("\r\n\n"), bytes.ReplaceAll(lines, []byte("\n"), []byte("\r\n"))...), []byte("   \n")...))
	write("a.json", jsonArray(calls))
	write("w.json", append(append([]byte(`{"traces": `), jsonArray(calls)...), '}'))
	write("many.json", lines)
	write("z.ndjson.gz", append(gzipped(lines[:len(lines)/2]), gzipped(lines[len(lines)/2:])...))
	write("z.jsonl.zst", zstded(lines))
	write("a.json.zst", zstded(jsonArray(calls)))
	py(t, makeFiles, nil, dir)
	run := func(stdin []byte, args ...string) []string {
		out, stderr, err := command(t, bytes.NewReader(stdin), append([]string{"import", "-q", "--server", s.url}, args...)...)
		require.NoError(t, err, "%v: %s%s", args, out, stderr)
		return importCounts(t, out)
	}
	require.Equal(t, []string{"12", "0", "0", "0"}, run(nil, filepath.Join(dir, "calls.ndjson")))
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Greater(t, len(all), 15)
	for _, f := range all {
		require.Equal(t, []string{"0", "12", "0", "0"}, run(nil, filepath.Join(dir, f.Name())), f.Name())
	}
	// Whole directories, and standard input.
	write("notes.txt", []byte("no traces"))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "deeper"), 0o700))
	write("deeper/more.ndjson", plain("deep", "deep", 1, ids(1), ids(2)).json())
	require.Equal(t, []string{"1", itoa(12 * len(all)), "0", "0"}, run(nil, dir))
	require.Equal(t, []string{"0", "12", "0", "0"}, run(lines, "-"))
	for format, name := range map[string]string{"json": "a.json", "arrow": "f.arrow", "parquet": "p.parquet"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, []string{"0", "12", "0", "0"}, run(content, "--format", format, "-"), format)
	}
	_, stderr, err := command(t, nil, "import", "--server", s.url, filepath.Join(dir, "notes.txt"))
	require.Error(t, err)
	require.Contains(t, stderr, "its ending names no format")
	_, stderr, err = command(t, nil, "import", "--server", s.url, filepath.Join(dir, "absent.ndjson"))
	require.Error(t, err)
	require.Contains(t, stderr, "absent.ndjson")
	for name, content := range map[string][]byte{"bad.json": []byte(`[{"trace_id":`), "bad.ndjson.gz": gzipped(lines)[:200], "bad.parquet": lines, "bad.arrow": lines, "bad.ndjson.zst": zstded(lines)[:100], "empty.arrow": nil} {
		write(name, content)
		_, stderr, err = command(t, nil, "import", "-q", "--server", s.url, filepath.Join(dir, name))
		require.Error(t, err, name)
		require.Contains(t, stderr, name)
	}
}

// Refused items are told with the file and the line, and the exit status is 1;
// what is well is stored.
func TestImportTellsRefusals(t *testing.T) {
	t.Parallel()
	s := start(t)
	dir := t.TempDir()
	good := plain("tell", "good", 1, ids(1), ids(2))
	lines := strings.Join([]string{string(good.json()), "", `{"trace_id":"cut`, string(good.with("model", "x").json()), string(good.with("trace_id", "neg", "prompt_token_ids", ids(-1)).json()),
		`{"rollout":{"rollout_id":"tell","split":"dev"}}`, `{"rollout":{"rollout_id":"tell","split":"train"},"finish":{"status":"succeeded"},"reward":{"reward_id":"w","rollout_id":"tell","value":1}}`,
		`{"finish":{"status":"failed"},"rollout":{"rollout_id":"tell"}}`, `{"reward":{"reward_id":"w","rollout_id":"tell","value":2}}`}, "\n")
	file := filepath.Join(dir, "lines.ndjson")
	require.NoError(t, os.WriteFile(file, []byte(lines), 0o600))
	out, stderr, err := command(t, nil, "import", "-q", "--server", s.url, file)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, stderr, "6 items were refused")
	for line, code := range map[string]string{":3: ": "invalid_json", ":4 good: ": "conflict", ":5 neg: ": "invalid_token_id", ":6: ": "invalid_field", ":8: ": "conflict", ":9 w: ": "conflict"} {
		require.Contains(t, out, "refused "+file+line+code, out)
	}
	require.Equal(t, "1", importCounts(t, out)[0])
	r, rewards := s.rollout("tell")
	require.Equal(t, []string{"train", "succeeded"}, []string{*r.Split, *r.Status})
	require.False(t, r.Reopened)
	require.Equal(t, 1.0, rewards[0].Value)

	// In other formats by number.
	bad := []call{good, good.with("trace_id", "x", "seq", int64(-1))}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), jsonArray(bad), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.arrow"), arrowOf(bad, 9), 0o600))
	out, _, err = command(t, nil, "import", "-q", "--server", s.url, filepath.Join(dir, "a.json"), filepath.Join(dir, "a.arrow"))
	require.Error(t, err)
	require.Contains(t, out, "a.json#1 x: invalid_field")
	require.Contains(t, out, "a.arrow row 1 x: invalid_field")
	require.Equal(t, []string{"0", "2", "2", "0"}, importCounts(t, out))
}

// An import goes on through limits of the server by halving, and through a
// server that is away.
func TestImportMeetsLimits(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-request=4KiB", "--max-items=7")
	var calls []call
	for i := range 60 {
		calls = append(calls, plain("lim", "lim"+itoa(i), int64(i), ids(1), ids(int32(i))))
	}
	calls = append(calls, plain("lim", "too large", 99, make([]int32, 5000), nil))
	out, _, err := command(t, bytes.NewReader(ndjson(calls)), "import", "-q", "--server", s.url, "-")
	require.Error(t, err)
	require.Equal(t, []string{"60", "0", "1", "0"}, importCounts(t, out))
	require.Contains(t, out, "standard input:61: request_too_large")
}

func TestImportThroughARestart(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := strings.TrimPrefix(s.url, "http://")
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, stderr, err := command(t, nil, "import", "-q", "--parallel=1", "--retry-for=90s", "--server", s.url, capturesDir)
		done <- result{out + stderr, err}
	}()
	var list rolloutPage
	eventually(t, "some of it has come", func() bool {
		s.get("/v1/rollouts").is(200).into(&list)
		return list.Total > 2
	})
	s.kill()
	again := startOn(t, s.dir, nil, "--listen", address)
	r := <-done
	require.NoError(t, r.err, r.out)
	// What was stored without being answered is now a duplicate.
	counts := importCounts(t, r.out)
	require.Equal(t, "0", counts[2])
	require.Equal(t, "102", counts[3])
	require.Equal(t, 598, atoi(t, counts[0])+atoi(t, counts[1]))
	c, err := captured()
	require.NoError(t, err)
	total := 0
	again.get("/v1/rollouts?limit=1000").is(200).into(&list)
	for _, one := range list.Rollouts {
		total += one.Traces
	}
	require.Equal(t, len(c.calls), total)

	// Nobody there, and no patience.
	_, stderr, err := command(t, nil, "import", "-q", "--retry-for=0s", "--server", "http://127.0.0.1:1", capturesDir)
	require.Error(t, err)
	require.Contains(t, stderr, "no server listens at http://127.0.0.1:1")
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	var n int
	_, err := fmt.Sscan(s, &n)
	require.NoError(t, err)
	return n
}

// An interrupted import ends soon, also while it waits.
func TestImportInterrupted(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Retry-After", "3000")
		w.WriteHeader(http.StatusServiceUnavailable)
		asked <- struct{}{}
	}))
	defer busy.Close()
	cmd := exec.CommandContext(t.Context(), icecore, "import", "-q", "--retry-for=10h", "--server", busy.URL, capturesDir)
	cmd.Env = cleanEnv()
	require.NoError(t, cmd.Start())
	<-asked
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
}
