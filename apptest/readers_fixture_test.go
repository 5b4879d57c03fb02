package apptest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
)

// cut is a stream that ends too early: its first bytes, and what comes after
// them.
type cut struct {
	length int
	tail   []byte
}

// raised is the verdict of a reader that did not take a stream for a whole one.
// Any other is the number of rows that it gave, and the sum of their token ids.
const raised = "raised"

// reader reads streams from memory and says of each what it took it for.
type reader struct {
	name string
	// column of it in the table of readersDo.
	column int
	// packed: it reads compressed buffers without being taught to.
	packed bool
	read   func(t *testing.T, whole []byte, cuts []cut) []string
}

var readers = []reader{
	{"pyarrow", 0, true, inPython("memory")},
	{"pyarrow, from a stream", 0, true, inPython("stream")},
	{"arrow-go", 1, true, inGo},
	{"apache-arrow for JavaScript", 2, false, inJavaScript("memory")},
	{"apache-arrow for JavaScript, from a stream", 2, false, inJavaScript("chunks")},
}

func inGo(_ *testing.T, whole []byte, cuts []cut) (out []string) {
	for _, c := range cuts {
		out = append(out, goVerdict(io.MultiReader(bytes.NewReader(whole[:c.length]), bytes.NewReader(c.tail))))
	}
	return out
}

func goVerdict(r io.Reader) string {
	in, err := ipc.NewReader(r)
	if err != nil {
		return raised
	}
	defer in.Release()
	rows, ids := 0, 0
	for in.Next() {
		rec := in.RecordBatch()
		rows += int(rec.NumRows())
		ids += idsOf(rec.Column(rec.Schema().FieldIndices("token_ids")[0]).(*array.List), 0, int(rec.NumRows()))
	}
	if in.Err() != nil {
		return raised
	}
	return fmt.Sprint(rows, ids)
}

// idsOf sums the token ids of some rows.
func idsOf(l *array.List, from, to int) (sum int) {
	values := l.ListValues().(*array.Int32).Int32Values()
	for at := from; at < to; at++ {
		first, end := l.ValueOffsets(at)
		for _, id := range values[first:end] {
			sum += int(id)
		}
	}
	return sum
}

// truths gives, by number of rows, the verdicts that are true of a stream's first
// rows.
func truths(t *testing.T, whole []byte) (out []string) {
	t.Helper()
	in, err := ipc.NewReader(bytes.NewReader(whole))
	require.NoError(t, err)
	defer in.Release()
	ids := 0
	out = append(out, "0 0")
	for in.Next() {
		rec := in.RecordBatch()
		for i := range int(rec.NumRows()) {
			ids += idsOf(rec.Column(rec.Schema().FieldIndices("token_ids")[0]).(*array.List), i, i+1)
			out = append(out, fmt.Sprint(len(out), ids))
		}
	}
	require.NoError(t, in.Err())
	return out
}

// readInPython has read.js's rules.
const readInPython = `
import io, sys, urllib.request, pyarrow as pa, pyarrow.compute as pc
source, way, *body = sys.argv[1:]
def said(open):
    try:
        rows = ids = 0
        for batch in pa.ipc.open_stream(open()):
            rows += batch.num_rows
            ids += pc.sum(batch["token_ids"].flatten()).as_py() or 0
        return f"{rows} {ids}"
    except Exception:
        return "raised"
if way == "fetch":
    print(said(lambda: urllib.request.urlopen(source, *(b.encode() for b in body))))
else:
    whole = open(source, "rb").read()
    for line in sys.stdin:
        length, _, tail = line.strip().partition(" ")
        data = whole[:int(length)] + bytes.fromhex(tail)
        print(said(lambda: pa.BufferReader(data) if way == "memory" else io.BytesIO(data)))
`

func inPython(way string) func(*testing.T, []byte, []cut) []string {
	return func(t *testing.T, whole []byte, cuts []cut) []string {
		t.Helper()
		return lines(py(t, readInPython, asked(cuts), tempFile(t, whole), way))
	}
}

func inJavaScript(way string) func(*testing.T, []byte, []cut) []string {
	return func(t *testing.T, whole []byte, cuts []cut) []string {
		t.Helper()
		return lines(js(t, asked(cuts), tempFile(t, whole), way))
	}
}

// javaScript is the program that reads with apache-arrow; "": it is not installed.
var javaScript = sync.OnceValue(func() string {
	dir, err := filepath.Abs("javascript")
	if err != nil || exec.Command("node", "-e", "require.resolve('apache-arrow', {paths: ['"+dir+"']})").Run() != nil { //nolint:noctx,gosec // a moment; a path of ours
		return ""
	}
	return filepath.Join(dir, "read.js")
})

// js runs read.js.
func js(t *testing.T, stdin []byte, args ...string) string {
	t.Helper()
	require.NotEmpty(t, javaScript(), "apache-arrow for JavaScript was not found: run `make javascript`, which needs node and npm")
	var out, log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "node", append([]string{javaScript()}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &log
	require.NoError(t, cmd.Run(), "%s", &log)
	return out.String()
}

func lines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// asked writes cuts as read.js takes them.
func asked(cuts []cut) []byte {
	var out []byte
	for _, c := range cuts {
		out = fmt.Appendf(out, "%d %s\n", c.length, hex.EncodeToString(c.tail))
	}
	return out
}

// cutsIn gives places inside each message of a stream with these boundaries: in
// its length, in its description and in its body; and some more.
func cutsIn(places []int) (out []int) {
	r := rand.New(rand.NewPCG(uint64(len(places)), 1))
	for i, to := range places[1:] {
		from := places[i]
		for _, at := range []int{1, 4, 6, 8, 9, 200, (to - from) / 2, to - from - 9, to - from - 8, to - from - 1} {
			if 0 < at && from+at < to {
				out = append(out, from+at)
			}
		}
		for range min(8, to-from-1) {
			out = append(out, from+1+r.IntN(to-from-1))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// manyRows stores groups whose rows fill several batches of one stream.
func manyRows(s *server) {
	s.t.Helper()
	r := rand.New(rand.NewPCG(9, 9))
	for g := range 3 {
		list := withPut(group(fmt.Sprint("g", g), 1, 0, 0, 1), "harness", []string{"codex", "pi", "codex"}[g])
		for i := range list {
			list[i].calls = []call{}
			for n := range 200 {
				list[i].calls = append(list[i].calls, plain(list[i].id, fmt.Sprintf("%s/%03d", list[i].id, n), int64(n),
					ids(r.Int32N(1<<20), r.Int32N(1<<20), r.Int32N(1<<20)), ids(r.Int32N(1<<20), 7)))
			}
		}
		s.perform(list...)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // arguments of ours
	}
	return v
}
