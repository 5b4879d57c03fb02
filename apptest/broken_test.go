package apptest

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
)

const bigRollouts = 8

// much stores more than sockets buffer.
func much(s *server) {
	s.t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	for r := range bigRollouts {
		p := make([]int32, 500_000)
		for i := range p {
			p[i] = rng.Int32N(150_000)
		}
		c := plain("big"+itoa(r), "big"+itoa(r), 1, p, ids(1, 2))
		s.send("POST", "/v1/traces", arrowOf([]call{c}, 1), "Content-Type", typeArrow).is(200).all("stored", 1)
	}
}

// A server that dies while it streams leaves nothing that reads as whole.
func TestKilledWhileStreaming(t *testing.T) {
	t.Parallel()
	s := start(t)
	much(s)
	for _, format := range []string{"arrow", "ndjson"} {
		s = killedWhileStreaming(s, format)
	}
}

// killedWhileStreaming kills the server and gives the one that came after it.
func killedWhileStreaming(s *server, format string) *server {
	t := s.t
	t.Helper()
	resp, err := s.http.Get(s.url + "/v1/trajectories?format=" + format) //nolint:noctx // the client has a timeout
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // it breaks
	head := make([]byte, 1<<20)
	_, err = io.ReadFull(resp.Body, head)
	require.NoError(t, err)
	require.Equal(t, itoa(bigRollouts), resp.Header.Get("Icecore-Rows"))

	// pyarrow reads the first batch, waits for the server to die, and reads on.
	verdict := streamInPython(t, s.url+"/v1/trajectories")
	s.kill()
	rest, err := io.ReadAll(resp.Body)
	require.Error(t, err, "the connection is broken")
	require.Empty(t, resp.Trailer.Get("Icecore-Complete"))
	if format == "arrow" {
		n, err := countArrow(io.MultiReader(bytes.NewReader(head), bytes.NewReader(rest), failing{err}))
		require.Error(t, err)
		require.Less(t, n, bigRollouts)
	}
	require.Contains(t, verdict(), "raised")
	verified(t, s.dir)
	again := startOn(t, s.dir, nil)
	allBig(again)
	return again
}

// allBig demands a whole export.
func allBig(s *server) {
	s.t.Helper()
	n, err := countArrow(bytes.NewReader(s.get("/v1/trajectories").is(200).body))
	require.NoError(s.t, err)
	require.Equal(s.t, bigRollouts, n)
}

func countArrow(r io.Reader) (n int, err error) {
	in, err := ipc.NewReader(r)
	if err != nil {
		return 0, err
	}
	defer in.Release()
	for in.Next() {
		n += int(in.RecordBatch().NumRows())
	}
	return n, in.Err()
}

// failing is what a broken connection reads like.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// streamInPython starts pyarrow on a stream. When it has read the first batch,
// the function is returned that lets it go on and says what it came to.
func streamInPython(t *testing.T, url string) func() string {
	t.Helper()
	require.NotEmpty(t, python(), noPython)
	cmd := exec.CommandContext(t.Context(), python(), "-c", `
import sys, urllib.request, pyarrow as pa
reader = pa.ipc.open_stream(urllib.request.urlopen(sys.argv[1]))
reader.read_next_batch()
print("first", flush=True)
sys.stdin.readline()
try:
    print("read", reader.read_all().num_rows, flush=True)
except Exception as e:
    print("raised", type(e).__name__, flush=True)
`+leave, url)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "first\n", first)
	return func() string {
		_, err = io.WriteString(in, "on\n")
		require.NoError(t, err)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.NoError(t, cmd.Wait())
		return line
	}
}

// poison is what a stream ends with that could not be completed; package query
// tests that it does.
var poison = []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// The poison alone, behind whole batches and on a connection that ends well, is
// enough for the two readers that matter.
func TestPoisonIsNoEnd(t *testing.T) {
	t.Parallel()
	s := start(t)
	varied(s)
	whole := s.get("/v1/trajectories").is(200).body
	end := []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	require.True(t, bytes.HasSuffix(whole, end))
	broken := append(bytes.Clone(whole[:len(whole)-len(end)]), poison...)

	_, err := readArrow(bytes.NewReader(broken))
	require.Error(t, err)
	read := func(body []byte) string {
		out := py(t, `
import sys, pyarrow as pa
try:
    print("read", pa.ipc.open_stream(sys.stdin.buffer).read_all().num_rows)
except Exception as e:
    print("raised", type(e).__name__)
try:
    print("read", pa.ipc.open_stream(pa.BufferReader(open(sys.argv[1], "rb").read())).read_all().num_rows)
except Exception as e:
    print("raised", type(e).__name__)`, body, tempFile(t, body))
		return strings.Join(strings.Fields(out), " ")
	}
	require.Equal(t, "read 7 read 7", read(whole))
	require.Regexp(t, "^raised \\S+ raised \\S+$", read(broken))
}

// A client that leaves in the middle disturbs nobody.
func TestClientsThatLeave(t *testing.T) {
	t.Parallel()
	s := start(t)
	much(s)
	for range 5 {
		resp, err := s.http.Get(s.url + "/v1/trajectories") //nolint:noctx // the client has a timeout
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		_, err = io.CopyN(io.Discard, resp.Body, 1<<20)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	allBig(s)
	s.healthy()
	// The abandoned answers are in the log as errors of their own.
	s.faulty = true
}
