package apptest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func exportTo(t *testing.T, s *server, args ...string) (file []byte, stderr string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	_, stderr, err := command(t, nil, append([]string{"export", "--server", s.url, "--out", out}, args...)...)
	require.NoError(t, err, stderr)
	file, err = os.ReadFile(out)
	require.NoError(t, err)
	return file, stderr
}

// The same rows in every format, whatever the page size.
func TestExportFormatsAreEqual(t *testing.T) {
	t.Parallel()
	s := start(t)
	varied(s)
	want := s.export("").rows
	for _, page := range []string{"1", "3", "2000"} {
		file, stderr := exportTo(t, s, "--page", page)
		require.Contains(t, stderr, "exported: 7 trajectories")
		table, err := readArrow(bytes.NewReader(file))
		require.NoError(t, err)
		require.Equal(t, encodeRows(want), encodeRows(table.rows))
		_, counts := table.schema.Metadata().GetValue("icecore.rows")
		require.False(t, counts, "counts of a page are not those of the file")
		version, _ := table.schema.Metadata().GetValue("icecore.schema_version")
		require.Equal(t, "1", version)

		lines, _ := exportTo(t, s, "--page", page, "--format", "ndjson")
		require.Equal(t, encodeRows(want), encodeRows(fileRows(t, "ndjson", lines)))

		parquet, _ := exportTo(t, s, "--page", page, "--format", "parquet")
		require.Equal(t, "same 7", py(t, `
import struct, sys, pyarrow as pa, pyarrow.parquet as pq
a = pa.ipc.open_stream(open(sys.argv[1], "rb")).read_all(); b = pq.read_table(sys.argv[2])
a.validate(full=True); b.validate(full=True)
assert a.schema.names == b.schema.names
for x, y in zip(a.to_pylist(), b.to_pylist()):
    for k in x:
        u, v = x[k], y[k]
        if k == "logprobs": u, v = [None if w is None else struct.pack("<f", w) for w in u], [None if w is None else struct.pack("<f", w) for w in v]
        assert u == v, (k, u, v)
assert b.schema.metadata[b"icecore.schema_version"] == b"1"
print("same", b.num_rows, end="")`, nil, tempFile(t, file), tempFile(t, parquet)))
	}
	for _, c := range []struct {
		query string
		args  []string
	}{
		{"harness=codex&split=train", []string{"--harness", "codex", "--split", "train"}},
		{"complete=true", []string{"--complete"}},
		{"policy_version_min=4&policy_version_max=6", []string{"--version-min", "4", "--version-max", "6"}},
		{polar(9), []string{"--policy", "polar_compat(end_of_turn=9)"}},
		{"rollout_id=a&rollout_id=b%2F%C3%BC", []string{"--rollout", "a", "--rollout", "b/ü"}},
		{"group_id=g&task_id=t&model=none", []string{"--group", "g", "--task", "t", "--model", "none"}},
		{"status=succeeded", []string{"--status", "succeeded"}},
	} {
		file, _ := exportTo(t, s, append(c.args, "--page", "2")...)
		table, err := readArrow(bytes.NewReader(file))
		require.NoError(t, err)
		require.Equal(t, encodeRows(s.export(c.query).rows), encodeRows(table.rows), c.query)
	}
	stdout, _, err := command(t, nil, "export", "--server", s.url, "--out", "-", "--format", "ndjson")
	require.NoError(t, err)
	require.Equal(t, 7, strings.Count(stdout, "\n"))
	for _, bad := range [][]string{{"--policy", "best"}, {"--cursor", "x"}, {"--page", "0"}, {"--format", "csv"}, {"--version-min", "x"}} {
		_, stderr, err := command(t, nil, append([]string{"export", "--server", s.url, "--out", filepath.Join(t.TempDir(), "x")}, bad...)...)
		require.Error(t, err, bad)
		require.NotEmpty(t, stderr)
	}
}

// A cursor and what came before it are the whole.
func TestExportResumes(t *testing.T) {
	t.Parallel()
	s := start(t)
	varied(s)
	want := s.export("").rows
	first := s.export("limit=3")
	file, _ := exportTo(t, s, "--cursor", first.next)
	rest, err := readArrow(bytes.NewReader(file))
	require.NoError(t, err)
	require.Equal(t, encodeRows(want), encodeRows(append(first.rows, rest.rows...)))

	// A disk that is full: nothing is claimed to be written.
	out := filepath.Join(t.TempDir(), "full")
	require.NoError(t, os.Symlink("/dev/full", out))
	for _, format := range []string{"arrow", "ndjson", "parquet"} {
		_, stderr, err := command(t, nil, "export", "--server", s.url, "--out", out, "--page", "2", "--format", format)
		require.Error(t, err)
		require.Contains(t, stderr, "no space left")
		require.NotContains(t, stderr, "--cursor")
	}
}

// An export whose server goes away in the middle leaves the rows it had, and says
// where to go on.
func TestExportInterrupted(t *testing.T) {
	t.Parallel()
	s := start(t)
	varied(s)
	want := s.export("").rows
	target, err := url.Parse(s.url)
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	for _, format := range []string{"arrow", "ndjson", "parquet"} {
		var pages atomic.Int32
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/trajectories" {
				if pages.Add(1) > 2 {
					panic(http.ErrAbortHandler)
				}
			}
			forward.ServeHTTP(w, r)
		}))
		t.Cleanup(proxy.Close)
		part := filepath.Join(t.TempDir(), "part")
		_, stderr, err := command(t, nil, "export", "--server", proxy.URL, "--out", part, "--page", "2", "--format", format, "--retry-for", "0s")
		require.Error(t, err)
		m := regexp.MustCompile(`4 rows are written; go on with --cursor (\S+)`).FindStringSubmatch(stderr)
		require.NotNil(t, m, stderr)
		rest, _ := exportTo(t, s, "--format", format, "--cursor", m[1])
		require.Equal(t, encodeRows(want), encodeRows(append(fileRows(t, format, readFile(t, part)), fileRows(t, format, rest)...)))
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	require.NoError(t, err)
	return raw
}

// fileRows reads a file that export wrote.
func fileRows(t *testing.T, format string, file []byte) (rows []exported) {
	t.Helper()
	if format == "parquet" { // by way of pyarrow
		stream := py(t, `
import sys, base64, io, pyarrow as pa, pyarrow.parquet as pq
t = pq.read_table(io.BytesIO(sys.stdin.buffer.read()))
out = pa.BufferOutputStream()
with pa.ipc.new_stream(out, t.schema) as w: w.write_table(t)
print(base64.b64encode(out.getvalue().to_pybytes()).decode(), end="")`, file)
		var err error
		file, err = base64.StdEncoding.DecodeString(stream)
		require.NoError(t, err)
	}
	if format != "ndjson" {
		table, err := readArrow(bytes.NewReader(file))
		require.NoError(t, err)
		return table.rows
	}
	in := bufio.NewScanner(bytes.NewReader(file))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var x exported
		require.NoError(t, json.Unmarshal(in.Bytes(), &x))
		rows = append(rows, x)
	}
	require.NoError(t, in.Err())
	return rows
}
