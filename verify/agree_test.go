package verify

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/merge"
	"icecore/trace"
)

// The witness and package merge must read the law alike, on small calls of few
// different ids, where everything collides.
func TestWitnessAgreesWithMerge(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for n := range 4_000 {
		var traces []jsonTrace
		var calls []*call
		tree := merge.NewTree()
		for i := range 1 + rng.IntN(9) {
			w := randomTrace(rng, i, traces)
			traces = append(traces, w)
			c := w.call()
			c.key = int64(i)
			calls = append(calls, c)
			tree.Add(merge.CallOf(&trace.Trace{TraceID: w.TraceID, Seq: w.Seq, PromptIDs: trace.TokensOf(w.Prompt), ResponseIDs: w.Response,
				IDsIncomplete: w.Incomplete, Status: trace.Status(w.Status), FinishReason: w.FinishReason,
				ChoiceGroup: w.ChoiceGroup, ChoiceIndex: w.ChoiceIndex}))
		}
		end := int32(rng.IntN(3))
		for _, p := range []merge.Policy{{Name: merge.StrictTree}, {Name: merge.PerRequest}, {Name: merge.PolarCompat}, {Name: merge.PolarCompat, EndOfTurn: &end}} {
			requireAgreement(t, judge(calls, p.Name, p.EndOfTurn), calls, tree.Run(p), func() string {
				return fmt.Sprintf("seed %d, case %d, %s: %s", seed, n, p, describeTraces(traces))
			})
		}
	}
}

func describeTraces(traces []jsonTrace) string {
	s := ""
	for _, w := range traces {
		seq, index := int64(-1), int64(-1)
		if w.Seq != nil {
			seq = *w.Seq
		}
		if w.ChoiceIndex != nil {
			index = *w.ChoiceIndex
		}
		s += fmt.Sprintf("\n%s seq %d %v → %v (nil %v %v) incomplete %v %s %s group %q %d", w.TraceID, seq, w.Prompt, w.Response,
			w.Prompt == nil, w.Response == nil, w.Incomplete, w.Status, w.FinishReason, w.ChoiceGroup, index)
	}
	return s
}

// randomTrace makes a trace that often goes on from an earlier one.
func randomTrace(rng *rand.Rand, i int, before []jsonTrace) jsonTrace {
	ids := func(n int) []int32 {
		out := make([]int32, rng.IntN(n+1))
		for i := range out {
			out[i] = int32(rng.IntN(3))
		}
		return out
	}
	w := jsonTrace{TraceID: fmt.Sprintf("%c%d", 'a'+rng.IntN(3), i), Prompt: ids(3), Response: ids(3)}
	if len(before) > 0 && rng.IntN(4) > 0 {
		from := before[rng.IntN(len(before))]
		w.Prompt = slices.Clone(from.Prompt)
		if rng.IntN(2) > 0 {
			w.Prompt = append(append(w.Prompt, from.Response...), ids(2)...)
		}
		if rng.IntN(3) == 0 {
			w.Response = append(slices.Clone(from.Response), ids(1)...)
		}
		if w.Prompt == nil {
			w.Prompt = []int32{}
		}
	}
	if rng.IntN(4) > 0 {
		seq := int64(rng.IntN(4))
		w.Seq = &seq
	}
	switch rng.IntN(20) {
	case 0:
		w.Prompt = nil
	case 1:
		w.Response = nil
	case 2:
		w.Incomplete = true
	}
	if rng.IntN(3) == 0 {
		w.Status = "aborted"
	}
	if rng.IntN(2) == 0 {
		w.FinishReason = []string{"stop", "tool_calls", "length"}[rng.IntN(3)]
	}
	if rng.IntN(3) == 0 {
		w.ChoiceGroup = []string{"g", "h"}[rng.IntN(2)]
		if rng.IntN(2) == 0 {
			index := int64(rng.IntN(2))
			w.ChoiceIndex = &index
		}
	}
	return w
}

func requireAgreement(t *testing.T, j *judgement, calls []*call, r *merge.Result, what func() string) {
	index := func(c *call) int {
		if c == nil {
			return merge.None
		}
		return int(c.key)
	}
	for i, c := range calls {
		v, n := j.of[c], r.Nodes[i]
		if v.disposition != string(n.Disposition) || v.row != n.Row || v.row >= 0 && v.spanStart != n.SpanStart ||
			v.inRow && (index(v.previous) != n.Parent || v.cut != n.Cut) {
			require.Fail(t, "the two differ", "call %d: witness %+v, merge %+v\n%s", i, v, n, what())
		}
	}
	boundaries := 0
	for _, b := range r.Boundaries {
		v := j.of[calls[b.Call]]
		if v.boundary != string(b.Kind) || index(v.nearest) != b.Nearest || v.shared != b.Shared {
			require.Fail(t, "the two differ", "boundary of call %d: witness %+v, merge %+v\n%s", b.Call, v, b, what())
		}
		boundaries++
	}
	for _, v := range j.of {
		if v.boundary != "" {
			boundaries--
		}
	}
	require.Zero(t, boundaries, what())
	require.Len(t, r.Trajectories, len(j.rows), what())
	for i, row := range j.rows {
		m := r.Trajectories[i]
		if index(row.namer) != m.Namer || index(row.last) != m.Last || row.length != m.Length || row.rewritten != m.Rewritten {
			require.Fail(t, "the two differ", "row %d: witness %+v, merge %+v\n%s", i, row, m, what())
		}
	}
}
