package wire

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"icecore/trace"
)

// capture reads one recorded NDJSON file, or skips.
func capture(tb testing.TB, name string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("../testdata/captures", name+".ndjson.zst"))
	if err != nil {
		tb.Skip("no captures: ", err)
	}
	z, err := zstd.NewReader(nil)
	require.NoError(tb, err)
	defer z.Close()
	out, err := z.DecodeAll(raw, nil)
	require.NoError(tb, err)
	return out
}

// equalTraces compares all of two traces: ids however they are cut into pieces,
// log-probabilities by their bits.
func equalTraces(tb require.TestingT, want, got *trace.Trace) {
	require.NotNil(tb, got)
	w, g := *want, *got
	require.Equal(tb, w.PromptIDs == nil, g.PromptIDs == nil, "prompt known")
	require.Equal(tb, w.PromptIDs.Flat(), g.PromptIDs.Flat())
	require.Equal(tb, logprobBits(w.ResponseLogprobs), logprobBits(g.ResponseLogprobs))
	w.PromptIDs, g.PromptIDs, w.ResponseLogprobs, g.ResponseLogprobs = nil, nil, nil, nil
	for _, b := range []*[]byte{&w.Sampling, &w.Usage, &w.Metadata, &w.Extra, &w.RequestBody, &w.ResponseBody} {
		if *b == nil {
			*b = []byte("(absent)")
		}
	}
	for _, b := range []*[]byte{&g.Sampling, &g.Usage, &g.Metadata, &g.Extra, &g.RequestBody, &g.ResponseBody} {
		if *b == nil {
			*b = []byte("(absent)")
		}
	}
	require.Equal(tb, w, g)
}

// logprobBits gives -1 for a position that is not known.
func logprobBits(l *trace.Logprobs) []int64 {
	if l == nil {
		return nil
	}
	out := make([]int64, 0, l.Len())
	for i := range l.Values {
		if v, known := l.At(i); known {
			out = append(out, int64(math.Float32bits(v)))
		} else {
			out = append(out, -1)
		}
	}
	return out
}

// one decodes body, which holds one item.
func one(t *testing.T, body string) Item[trace.Trace] {
	t.Helper()
	items, err := TracesJSON([]byte(body), Limits{})
	require.NoError(t, err)
	require.Len(t, items, 1)
	return items[0]
}

// with is a valid trace with more fields.
func with(fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return `{"trace_id":"t","rollout_id":"r","seq":0` + fields + `}`
}
