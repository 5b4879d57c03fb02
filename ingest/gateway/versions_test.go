package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/trace"
)

func n(v int64) *int64 { return &v }

func TestResolveVersion(t *testing.T) {
	t.Parallel()
	spans := []trace.VersionSpan{{Start: 0, Version: 7}, {Start: 2, Version: 8}}
	ids := []int32{1, 2, 3}
	for _, c := range []struct {
		name          string
		s             engine.Sampled
		header        *int64
		before, after moment
		want          *int64
		spans         []trace.VersionSpan
		meta          map[string]any
	}{
		{name: "nothing is known"},
		{name: "engine", before: moment{engine: n(7)}, after: moment{engine: n(7)}, want: n(7), meta: map[string]any{"source": "engine"}},
		{name: "engine over header and trainer", header: n(1), before: moment{engine: n(7), pushed: n(2)}, after: moment{engine: n(7), pushed: n(3)}, want: n(7), meta: map[string]any{"source": "engine"}},
		{name: "header over trainer", header: n(1), before: moment{pushed: n(2)}, after: moment{pushed: n(2)}, want: n(1), meta: map[string]any{"source": "header"}},
		{name: "trainer", before: moment{pushed: n(2)}, after: moment{pushed: n(2)}, want: n(2), meta: map[string]any{"source": "announced"}},
		{name: "trainer moved on", before: moment{pushed: n(2)}, after: moment{pushed: n(3)}, meta: map[string]any{"min": int64(2), "max": int64(3), "dispatch": int64(2), "completion": int64(3)}},
		{name: "engine moved on (row 11)", before: moment{engine: n(7)}, after: moment{engine: n(8)}, header: n(7), meta: map[string]any{"min": int64(7), "max": int64(8), "dispatch": int64(7), "completion": int64(8)}},
		{name: "engine went back", before: moment{engine: n(8)}, after: moment{engine: n(7)}, meta: map[string]any{"min": int64(7), "max": int64(8), "dispatch": int64(8), "completion": int64(7)}},
		{name: "engine is silent afterwards", before: moment{engine: n(7), pushed: n(7)}, after: moment{pushed: n(7)}, meta: map[string]any{"dispatch": int64(7)}},
		{name: "spans of the engine", s: engine.Sampled{IDs: ids, Versions: spans}, before: moment{engine: n(1)}, after: moment{engine: n(9)}, want: n(7), spans: spans},
		{name: "one span", s: engine.Sampled{IDs: ids, Versions: spans[:1]}, want: n(7)},
		{name: "spans beyond the ids", s: engine.Sampled{IDs: ids[:2], Versions: spans}, want: n(7)},
		{name: "spans that are none", s: engine.Sampled{IDs: ids, Versions: spans[1:]}},
		{name: "told by the answer", s: engine.Sampled{Told: "7"}, want: n(7), meta: map[string]any{"source": "engine"}},
		{name: "told otherwise than at dispatch", s: engine.Sampled{Told: "8"}, before: moment{engine: n(7)}, after: moment{engine: n(7)}, meta: map[string]any{"min": int64(7), "max": int64(8), "dispatch": int64(7), "completion": int64(8)}},
		{name: "words", before: moment{text: "default", pushed: n(4)}, after: moment{text: "default", pushed: n(4)}, want: n(4), meta: map[string]any{"source": "announced"}},
		{name: "other words", before: moment{text: "a", pushed: n(4)}, after: moment{text: "b", pushed: n(4)}, meta: map[string]any{"dispatch": "a", "completion": "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := resolveVersion(&c.s, c.header, c.before, c.after)
			require.Equal(t, c.want, got.version)
			require.Equal(t, c.spans, got.spans)
			require.Equal(t, c.meta, got.metadata)
		})
	}
}

// Weights that change amid an answer: spans where the engine tells them, else not known
// (row 11).
func TestWeightsChange(t *testing.T) {
	t.Parallel()
	for face, told := range map[string]bool{"vllm": false, "sglang-sglext": true} {
		s := says("abcdefghij")
		s.Weights = enginetest.Weights{BumpAt: 5, BumpTo: "8", Spans: told}
		r := newRig(t, face, s)
		r.engine.SetVersion("7")
		_, text, broke := r.post("r/v1/chat/completions", hello+`}`)
		require.NoError(t, broke, text)
		got := r.store.wait(t, 1)[0]
		if told {
			require.Equal(t, []trace.VersionSpan{{Start: 0, Version: 7}, {Start: 5, Version: 8}}, got.PolicyVersionSpans)
			require.Equal(t, int64(7), *got.PolicyVersion)
			continue
		}
		require.Nil(t, got.PolicyVersion, "never a guess")
		require.Nil(t, got.PolicyVersionSpans)
		versions, _ := meta(t, got)["versions"].(map[string]any)
		require.InDelta(t, 7, versions["min"], 0)
		require.InDelta(t, 8, versions["max"], 0)
	}
}
