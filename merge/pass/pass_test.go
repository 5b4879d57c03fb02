package pass

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/merge"
	"icecore/store"
	"icecore/trace"
)

var (
	strict = merge.Policy{Name: merge.StrictTree}
	silent = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// pair is a store with a runner over it.
func pair(t *testing.T, dir string, opts Options) (*store.Store, *Runner) {
	t.Helper()
	ctx := context.Background()
	var r *Runner
	s, err := store.Open(ctx, store.Options{Dir: dir, Log: silent, DiskFloor: -1, Threads: 1, MemoryLimit: 512 << 20,
		DrainInterval: time.Millisecond, OnDrain: func(keys []int64) {
			if r != nil {
				r.Changed(keys)
			}
		}})
	require.NoError(t, err)
	opts.Log = silent
	r, err = New(ctx, s, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		r.Close()
		require.NoError(t, s.Close(ctx))
	})
	return s, r
}

// still is a Quiet that never comes: such a runner merges only when asked.
const still = time.Hour

func call(id, rollout string, seq int64, prompt, response []int32) *trace.Trace {
	return &trace.Trace{TraceID: id, RolloutID: rollout, Seq: &seq, PromptIDs: trace.TokensOf(prompt), ResponseIDs: response,
		Status: trace.StatusOK, Kind: trace.KindAgent, PolicyVersion: &seq}
}

func put(t require.TestingT, s *store.Store, ts ...*trace.Trace) {
	out, batch, err := s.PutTraces(context.Background(), ts)
	require.NoError(t, err)
	for _, o := range out {
		require.Equal(t, store.Stored, o.Status, o.Err)
	}
	require.NoError(t, s.WaitDrained(context.Background(), batch))
}

func key(t require.TestingT, s *store.Store, rollout string) int64 {
	r, err := s.Rollout(context.Background(), rollout)
	require.NoError(t, err)
	return r.Key
}

func rows(t require.TestingT, s *store.Store, rollout string, p merge.Policy) []store.MergedRow {
	list, err := s.MergedRows(context.Background(), []int64{key(t, s, rollout)}, p.String())
	require.NoError(t, err)
	return list
}

// What is published for a rollout is what the policy makes of its traces, after
// each of several arrivals, and the same as merging without publishing gives.
func TestPublishedIsWhatThePolicyMakes(t *testing.T) {
	s, r := pair(t, t.TempDir(), Options{Quiet: still, MaxPolicies: 8})
	ctx := context.Background()
	end := int32(2)
	policies := []merge.Policy{strict, {Name: merge.PerRequest}, {Name: merge.PolarCompat}, {Name: merge.PolarCompat, EndOfTurn: &end}}
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		rollout := fmt.Sprint("r", runs)
		var all []*trace.Trace
		id := rapid.Int32Range(0, 2)
		for i := range rapid.IntRange(1, 10).Draw(rt, "calls") {
			prompt := rapid.SliceOfN(id, 0, 3).Draw(rt, "prompt")
			if len(all) > 0 && rapid.Bool().Draw(rt, "goes on") {
				c := all[rapid.IntRange(0, len(all)-1).Draw(rt, "from")]
				prompt = append(c.PromptIDs.Concat(trace.TokensOf(c.ResponseIDs)).Flat(), prompt...)
			}
			c := call(fmt.Sprint(rollout, "-", i), rollout, int64(rapid.IntRange(0, 9).Draw(rt, "seq")), prompt,
				rapid.SliceOfN(id, 0, 3).Draw(rt, "response"))
			all = append(all, c)
		}
		for at := 0; at < len(all); {
			n := rapid.IntRange(1, len(all)-at).Draw(rt, "arrival")
			put(rt, s, all[at:at+n]...)
			at += n
			for _, p := range policies {
				require.NoError(rt, r.Ensure(ctx, []int64{key(rt, s, rollout)}, p))
				compare(rt, s, r, rollout, all[:at], p)
			}
		}
	})
	_, err := s.DropOld(ctx, 0)
	require.NoError(t, err)
}

func compare(t require.TestingT, s *store.Store, r *Runner, rollout string, ts []*trace.Trace, p merge.Policy) {
	calls := make([]merge.Call, len(ts))
	for i, c := range ts {
		calls[i] = merge.CallOf(c)
	}
	want := merge.Run(calls, p)
	m, err := r.Merge(context.Background(), key(t, s, rollout), p)
	require.NoError(t, err)
	published := rows(t, s, rollout, p)
	require.Len(t, published, len(want.Trajectories))
	require.Len(t, m.Result.Trajectories, len(want.Trajectories))
	for i, w := range want.Trajectories {
		require.Equal(t, merge.TrajectoryID(rollout, p, ts[w.Namer].TraceID), published[i].ID)
		require.Equal(t, w.Length, published[i].Length)
		require.Equal(t, w.TrainedTokens, published[i].TrainedTokens)
		require.Equal(t, w.Rewritten, published[i].Rewritten)
		var versions []int64
		var ids []int32
		for _, s := range want.Spans(i) {
			versions = append(versions, *ts[s.Call].PolicyVersion)
		}
		require.Equal(t, slices.Min(versions), *published[i].VersionMin)
		require.Equal(t, slices.Max(versions), *published[i].VersionMax)
		for _, piece := range want.Pieces(i) {
			ids = append(ids, ts[piece.Call].PromptIDs.Concat(trace.TokensOf(ts[piece.Call].ResponseIDs)).Slice(piece.From, piece.To).Flat()...)
		}
		require.Equal(t, ids, m.Tokens(i).Flat())
	}
}

// eventually waits for what a background pass brings about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, time.Minute, time.Millisecond, what)
}

func TestChangedRolloutsAreMergedUnasked(t *testing.T) {
	dir := t.TempDir()
	s, _ := pair(t, dir, Options{Quiet: time.Millisecond, Policies: []merge.Policy{strict, {Name: merge.PerRequest}}})
	put(t, s, call("a", "r", 0, []int32{1}, []int32{2}))
	eventually(t, "the first trace is merged", func() bool { return len(rows(t, s, "r", strict)) == 1 })
	put(t, s, call("b", "r", 1, []int32{7}, []int32{8}))
	for _, p := range []merge.Policy{strict, {Name: merge.PerRequest}} {
		eventually(t, "a late trace is merged again", func() bool { return len(rows(t, s, "r", p)) == 2 })
	}
}

func TestStartTakesUpWhatIsUnmerged(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	s, err := store.Open(ctx, store.Options{Dir: dir, Log: silent, DiskFloor: -1})
	require.NoError(t, err)
	put(t, s, call("a", "r", 0, []int32{1}, []int32{2}))
	require.NoError(t, s.Close(ctx))
	s, r := pair(t, dir, Options{Quiet: time.Millisecond})
	eventually(t, "what the earlier process left is merged", func() bool { return len(rows(t, s, "r", strict)) == 1 })
	eventually(t, "nothing waits", func() bool { n, _ := r.Waiting(); return n == 0 })
}

// Whoever asks for many policies must not keep others from theirs.
func TestPoliciesAreBounded(t *testing.T) {
	s, r := pair(t, t.TempDir(), Options{Quiet: still, MaxPolicies: 2})
	ctx := context.Background()
	put(t, s, call("a", "r", 0, []int32{1}, []int32{2}))
	keys := []int64{key(t, s, "r")}
	require.NoError(t, r.Ensure(ctx, keys, strict))
	for n := range int32(3) {
		p := merge.Policy{Name: merge.PolarCompat, EndOfTurn: &n}
		require.NoError(t, r.Ensure(ctx, keys, p))
		require.Len(t, rows(t, s, "r", p), 1)
		names, err := s.MergedPolicies(ctx)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{strict.String(), p.String()}, names)
	}
	require.Len(t, rows(t, s, "r", strict), 1, "what is configured stays")
}
