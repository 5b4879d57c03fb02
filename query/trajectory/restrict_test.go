package trajectory

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/store"
	"icecore/trace"
)

// trained lists what a row trains: which call at which position with which id.
func trained(r *Row) (out []string) {
	ids := r.Tokens().Flat()
	for i, s := range r.Spans() {
		for at := s.Start; s.Trainable && at < s.End; at++ {
			out = append(out, fmt.Sprint(r.Call(i).TraceID, " ", at, " ", ids[at]))
		}
	}
	return out
}

// A restricted row is a beginning of the row, ends trained, and all that describes
// it is what its own spans say.
func TestRestrict(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := pass.Run(rollouts(1).Draw(t, "rollout"), policies().Draw(t, "policy"))
		sets := map[string][]trace.Kind{"agent": {trace.KindAgent}, "auxiliary": {trace.KindAuxiliary}, "both": both, "none": {}}
		got := map[string][]string{}
		for name, kinds := range sets {
			for _, whole := range rows(m) {
				r := whole.Restrict(kinds)
				ofKind := func(s merge.Span) bool { return s.Trainable && slices.Contains(kinds, m.Calls.Calls[s.Call].Kind) }
				if r == nil {
					require.False(t, slices.ContainsFunc(whole.Spans(), ofKind))
					continue
				}
				requireCut(t, whole, r)
				require.Equal(t, r.TrainedTokens(), len(trained(r)))
				got[name] = append(got[name], trained(r)...)
				if name == "both" && m.Result.Policy.Name != merge.PolarCompat {
					require.Equal(t, whole, r, "strict rows end trained: nothing is cut")
				}
			}
		}
		require.Empty(t, got["none"])
		apart := slices.Concat(got["agent"], got["auxiliary"])
		require.ElementsMatch(t, got["both"], apart, "each trained token is of one kind")
	})
}

func requireCut(t *rapid.T, whole, r *Row) {
	ids := r.Tokens().Flat()
	require.Equal(t, whole.Tokens().Flat()[:r.Length()], ids)
	require.Len(t, ids, r.Length())
	require.Equal(t, whole.ID(), r.ID())
	spans := r.Spans()
	end := spans[len(spans)-1]
	require.True(t, end.Trainable)
	require.Equal(t, r.Length(), end.End)
	require.Equal(t, r.Call(len(spans)-1).FinishReason == "length", r.Truncated())
	first := slices.IndexFunc(spans, func(s merge.Span) bool { return s.Trainable })
	require.Equal(t, spans[first].Start, r.PromptLength())

	faithful := true
	var versions store.VersionRange
	for i, s := range spans {
		c := r.Call(i)
		require.Equal(t, whole.Call(i), c)
		require.Equal(t, c.Response.Flat(), ids[s.Start:s.End])
		faithful = faithful && slices.Equal(c.Prompt.Flat(), ids[:s.Start])
		versions.Widen(c)
	}
	lo, hi := r.Versions()
	require.Equal(t, versions.Min, lo)
	require.Equal(t, versions.Max, hi)
	if !r.Rewritten() {
		require.True(t, faithful, "a log-prob is conditional on exactly the tokens before it")
	} else if r.Length() < whole.Length() {
		require.False(t, faithful, "a row that is cut before its other history holds none")
	}
}

// A call that condenses the history goes on with the agent's chain, and the agent
// goes on with what it made.
func TestRestrictInTheMiddle(t *testing.T) {
	t.Parallel()
	call := func(i int64, kind trace.Kind, finish string, prompt, response []int32) store.Call {
		return store.Call{Key: i, TraceID: fmt.Sprint("t", i), Seq: &i, PolicyVersion: &i, Kind: kind, Status: trace.StatusOK,
			FinishReason: finish, Prompt: trace.TokensOf(prompt), Response: trace.TokensOf(response)}
	}
	run := func(calls ...store.Call) *Row {
		m := pass.Run(&store.RolloutCalls{Key: 1, Calls: calls}, merge.Policy{})
		require.Len(t, m.Result.Trajectories, 1)
		return New(m, "r", 0, nil)
	}
	a := call(1, trace.KindAgent, "stop", []int32{1}, []int32{2, 3})
	b := call(2, trace.KindAuxiliary, "length", []int32{1, 2, 3, 4}, []int32{5})
	c := call(3, trace.KindAgent, "stop", []int32{1, 2, 3, 4, 5, 6}, []int32{7, 8})

	r := run(a, b).Restrict([]trace.Kind{trace.KindAgent})
	require.Equal(t, []int32{1, 2, 3}, r.Tokens().Flat())
	require.False(t, r.Truncated(), "the last call that remains was not")
	lo, hi := r.Versions()
	require.Equal(t, []int64{1, 1}, []int64{*lo, *hi})

	r = run(a, b, c).Restrict([]trace.Kind{trace.KindAgent})
	require.Equal(t, []int32{1, 2, 3, 4, 5, 6, 7, 8}, r.Tokens().Flat())
	require.Equal(t, []merge.Span{{Call: 0, Start: 1, End: 3, Trainable: true}, {Call: 1, Start: 4, End: 5}, {Call: 2, Start: 6, End: 8, Trainable: true}}, r.Spans())
	require.Equal(t, 4, r.TrainedTokens())

	r = run(a, b, c).Restrict([]trace.Kind{trace.KindAuxiliary})
	require.Equal(t, []int32{1, 2, 3, 4, 5}, r.Tokens().Flat())
	require.Equal(t, 4, r.PromptLength())
	require.True(t, r.Truncated())
}
