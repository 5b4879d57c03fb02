package apptest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
)

// arrowCalls are rows that use every kind of column.
func arrowCalls(tag string) []call {
	return []call{
		everything("arrow-"+tag, tag+"-1"),
		plain("arrow-"+tag, tag+"-2", 2, ids(1, 2, 3), ids(4, 5)).with("colour", "red"),
		plain("arrow-"+tag, tag+"-3", 3, ids(), ids(4)).with("response_logprobs", logprobs{nil}, "colour", "blue"),
	}
}

// boundaries are the places between the messages of a stream.
func boundaries(t *testing.T, stream []byte) (at []int) {
	t.Helper()
	for i := 0; i < len(stream); {
		at = append(at, i)
		size := int(binary.LittleEndian.Uint32(stream[i+4:]))
		i += 8
		if size == 0 {
			require.Len(t, stream, i)
			break
		}
		// The body's length, by way of the flatbuffer's table.
		meta := stream[i : i+size]
		table := int(binary.LittleEndian.Uint32(meta))
		vtable := table - int(int32(binary.LittleEndian.Uint32(meta[table:])))
		body := 0
		if binary.LittleEndian.Uint16(meta[vtable:]) > 10 {
			if off := int(binary.LittleEndian.Uint16(meta[vtable+10:])); off != 0 {
				body = int(binary.LittleEndian.Uint64(meta[table+off:]))
			}
		}
		i += size + body
	}
	return append(at, len(stream))
}

// A stream that is cut anywhere, also between two messages, is refused whole.
func TestArrowCut(t *testing.T) {
	t.Parallel()
	s := start(t)
	stream := arrowOf(arrowCalls("cut"), 1)
	places := boundaries(t, stream)
	require.Len(t, places, 6) // schema, three batches, the end marker, the end
	for _, place := range places[:len(places)-1] {
		for _, n := range []int{place - 1, place, place + 1, place + 4, place + 7, place + 9} {
			if n >= 0 && n < len(stream) {
				s.send("POST", "/v1/traces", stream[:n], "Content-Type", typeArrow).problem(400, "invalid_arrow")
			}
		}
	}
	for n := 0; n < len(stream); n += 37 {
		s.send("POST", "/v1/traces", stream[:n], "Content-Type", typeArrow).problem(400, "invalid_arrow")
	}
	for name, more := range map[string][]byte{"a byte": {0}, "a marker": {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, "a stream": stream} {
		s.send("POST", "/v1/traces", append(bytes.Clone(stream), more...), "Content-Type", typeArrow).problem(400, "invalid_arrow")
		_ = name
	}
	s.send("POST", "/v1/traces", append(bytes.Clone(stream[:len(stream)-8]), poison...), "Content-Type", typeArrow).problem(400, "invalid_arrow")
	s.get("/v1/rollouts/arrow-cut").problem(404, "not_found")
	s.send("POST", "/v1/traces", stream, "Content-Type", typeArrow).is(200).all("stored", 3)
}

// Flipped bytes, lying lengths and offsets are refused or mean something else;
// they never harm the server, and nothing of a refused stream is stored.
func TestArrowDamaged(t *testing.T) {
	t.Parallel()
	s := start(t)
	rng := rand.New(rand.NewPCG(5, 8))
	sent, whole := 0, 0
	for _, opts := range [][]ipc.Option{nil, {ipc.WithZstd()}, {ipc.WithLZ4()}} {
		tag := "d" + itoa(sent)
		stream := arrowOf(arrowCalls(tag), 2, opts...)
		for range 400 {
			damaged := bytes.Clone(stream)
			for range 1 + rng.IntN(3) {
				at := rng.IntN(len(damaged))
				switch rng.IntN(4) {
				case 0:
					damaged[at] ^= 1 << rng.IntN(8)
				case 1:
					damaged[at] = byte(rng.Uint32())
				default: // a word: lengths and offsets
					at = at / 4 * 4
					values := []uint32{0, 1, 0xff, 0xffff, math.MaxInt32, 1 << 31, math.MaxUint32, rng.Uint32(), uint32(len(damaged))}
					binary.LittleEndian.PutUint32(damaged[at:], values[rng.IntN(len(values))])
				}
			}
			sent++
			a := s.send("POST", "/v1/traces", damaged, "Content-Type", typeArrow)
			require.Contains(t, []int{200, 207, 400, 413, 422}, a.status, "%s", a.body)
			if a.status != 200 && a.status != 207 && a.status != 422 {
				continue
			}
			whole++
			for _, i := range a.items().Items {
				if i.Status == "stored" {
					s.get(path("traces", i.ID) + "?include=bodies").is(200)
				}
			}
		}
	}
	require.Less(t, whole, sent)
	s.export("")
	require.Less(t, s.peak(), atMost(700<<20))
	s.healthy()
}

// Columns of another type than the contract's refuse the request; those of the
// same kind are taken.
func TestArrowColumnTypes(t *testing.T) {
	t.Parallel()
	s := start(t)
	out := py(t, pyPost+`
T = {"trace_id": pa.string(), "rollout_id": pa.string(), "seq": pa.int64(), "prompt_token_ids": pa.list_(pa.int32()),
     "response_token_ids": pa.list_(pa.int32()), "response_logprobs": pa.list_(pa.float32()), "harness": pa.string(), "started_at": pa.timestamp("us", "UTC")}
V = {"trace_id": ["a", "b"], "rollout_id": ["types"] * 2, "seq": [1, 2], "prompt_token_ids": [[1], [2, 3]], "response_token_ids": [[4], []],
     "response_logprobs": [[-0.5], []], "harness": ["h", None], "started_at": [0, 1000000]}
def send(**types):
    t = dict(T, **types)
    arrays = []
    for k in t:
        v = V[k]
        if k == "started_at" and not pa.types.is_timestamp(t[k]):
            v = ["1970-01-01T00:00:00Z", "1970-01-01T01:00:01+01:00"]
        elif k == "started_at":
            v = pa.array([0, 1], pa.int64()).cast(pa.timestamp("s", t[k].tz)).cast(t[k])
        arrays.append(v if isinstance(v, pa.Array) else pa.array(v, t[k]))
    return post(pa.table(arrays, names=list(t)))
def outcome(r):
    return r[0], [i.get("code", i["status"]) for i in r[1].get("items", [])] or r[1].get("code")
print(outcome(send()))
l = pa.large_list
for types in [dict(trace_id=pa.large_string(), harness=pa.dictionary(pa.int8(), pa.string())), dict(trace_id=pa.string_view()),
              dict(prompt_token_ids=l(pa.int32()), response_token_ids=l(pa.int64()), response_logprobs=l(pa.float64())),
              dict(prompt_token_ids=pa.list_(pa.uint32()), response_token_ids=pa.list_(pa.int16()), seq=pa.uint8()),
              dict(seq=pa.uint64()),
              dict(started_at=pa.timestamp("ns")), dict(started_at=pa.timestamp("s", "Asia/Tokyo")), dict(started_at=pa.string()),
              dict(harness=pa.dictionary(pa.int32(), pa.large_string()))]:
    print(outcome(send(**types)))
print("--")
for types in [dict(seq=pa.float64()), dict(seq=pa.decimal128(5)), dict(prompt_token_ids=pa.list_(pa.float32())),
              dict(response_token_ids=pa.list_(pa.float64()))]:
    print(outcome(send(**types)))
`, nil, s.url)
	good, bad, _ := bytes.Cut([]byte(out), []byte("--\n"))
	lines := bytes.Split(bytes.TrimSpace(good), []byte("\n"))
	require.Equal(t, "(200, ['stored', 'stored'])", string(lines[0]), out)
	for _, line := range lines[1:] {
		require.Equal(t, "(200, ['duplicate', 'duplicate'])", string(line), out)
	}
	for line := range bytes.Lines(bad) {
		require.Equal(t, "(400, 'invalid_arrow')\n", string(line), out)
	}
}

// pyPost sends a table as POST /v1/traces does want it.
const pyPost = `
import json, sys, urllib.request, urllib.error
import pyarrow as pa
def post(table, options=None):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as w:
        w.write_table(table)
    req = urllib.request.Request(sys.argv[1] + "/v1/traces", sink.getvalue().to_pybytes(), {"Content-Type": "application/vnd.apache.arrow.stream"})
    try:
        with urllib.request.urlopen(req) as a:
            return a.status, json.load(a)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)
`
