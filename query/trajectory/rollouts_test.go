package trajectory

import (
	"context"
	"fmt"

	"pgregory.net/rapid"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/store"
	"icecore/trace"
)

var both = []trace.Kind{trace.KindAgent, trace.KindAuxiliary}

// rollouts generates calls over few ids that extend, retry and edit each other,
// of both kinds.
func rollouts(key int64) *rapid.Generator[*store.RolloutCalls] {
	return rapid.Custom(func(t *rapid.T) *store.RolloutCalls {
		r := &store.RolloutCalls{Key: key, Through: 1}
		few := rapid.SliceOfN(rapid.Int32Range(1, 3), 0, 4)
		for i := range rapid.IntRange(1, 10).Draw(t, "calls") {
			var prompt []int32
			if i > 0 {
				other := rapid.SampledFrom(r.Calls).Draw(t, "other")
				whole := other.Prompt.Concat(other.Response).Flat()
				if rapid.IntRange(0, 4).Draw(t, "cut") == 0 {
					whole = whole[:rapid.IntRange(0, len(whole)).Draw(t, "kept")]
				}
				prompt = whole
			}
			prompt = append(append([]int32{}, prompt...), few.Draw(t, "more")...)
			seq, version := int64(i), rapid.Int64Range(0, 3).Draw(t, "version")
			c := store.Call{
				Key: key*100 + int64(i), Batch: 1, TraceID: fmt.Sprintf("t%d-%02d", key, i), Seq: &seq,
				Prompt: trace.TokensOf(prompt), Response: trace.TokensOf(append([]int32{}, few.Draw(t, "response")...)),
				PolicyVersion: &version, Status: trace.StatusOK,
				FinishReason: rapid.SampledFrom([]string{"stop", "length"}).Draw(t, "finish"),
				Kind:         rapid.SampledFrom([]trace.Kind{trace.KindAgent, trace.KindAgent, trace.KindAuxiliary}).Draw(t, "kind"),
			}
			if version == 0 {
				c.PolicyVersion = nil
			}
			r.Calls = append(r.Calls, c)
		}
		return r
	})
}

func policies() *rapid.Generator[merge.Policy] {
	end := int32(2)
	return rapid.SampledFrom([]merge.Policy{
		{Name: merge.StrictTree}, {Name: merge.PerRequest}, {Name: merge.PolarCompat}, {Name: merge.PolarCompat, EndOfTurn: &end}})
}

func rows(m *pass.Merged) []*Row {
	var out []*Row
	for i := range m.Result.Trajectories {
		out = append(out, New(m, "r", i, nil))
	}
	return out
}

// fixed is a source of rollouts that are there already.
type fixed map[int64]*store.RolloutCalls

// LoadCalls implements Source.
func (f fixed) LoadCalls(_ context.Context, keys []int64, _ int64) (out []*store.RolloutCalls, err error) {
	for _, k := range keys {
		c := *f[k]
		out = append(out, &c)
	}
	return out, nil
}

// logprob is that of a response's n-th token: every third is not known.
func logprob(n int) (v float32, known bool) { return -float32(n) / 8, n%3 != 2 }

// LoadLogprobs implements Source.
func (f fixed) LoadLogprobs(_ context.Context, rs []*store.RolloutCalls) (map[int64]*trace.Logprobs, error) {
	out := map[int64]*trace.Logprobs{}
	for _, r := range rs {
		for i := range r.Calls {
			l := &trace.Logprobs{}
			for j := range r.Calls[i].Response.Len() {
				if v, known := logprob(j); known {
					l.Append(v)
				} else {
					l.AppendUnknown()
				}
			}
			out[r.Calls[i].Key] = l
		}
	}
	return out, nil
}
