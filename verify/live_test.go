package verify

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/store"
	"icecore/trace"
)

// A server that is writing, draining, checkpointing and merging meanwhile must
// give no false alarm.
func TestRunningServerIsOK(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var runner *pass.Runner
	s, err := store.Open(ctx, store.Options{Dir: t.TempDir(), MemoryLimit: 1 << 30, Threads: 1, DrainInterval: 5 * time.Millisecond,
		CheckpointInterval: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		OnDrain: func(keys []int64) {
			if runner != nil {
				runner.Changed(keys)
			}
		}})
	require.NoError(t, err)
	runner, err = pass.New(ctx, s, pass.Options{Quiet: 5 * time.Millisecond, Policies: []merge.Policy{{}, {Name: merge.PolarCompat}},
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- write(ctx, s) }()

	control, warehouse, _, release := s.Databases()
	defer release()
	for i, seen := 0, false; i < 4 || !seen; i++ { // until there was something to check
		r, err := Run(ctx, Source{Control: control, Warehouse: warehouse}, Options{PageTokens: 5000})
		require.NoError(t, err)
		require.True(t, r.OK(), text(t, r))
		seen = seen || r.Traces > 0 && r.Generations > 0
		older, err := Run(ctx, Source{Control: control, Warehouse: warehouse, ThroughBatch: max(1, r.ThroughBatch/2)}, Options{})
		if r.ThroughBatch > 1 {
			require.NoError(t, err)
			require.True(t, older.OK(), text(t, older))
		}
	}
	cancel()
	require.NoError(t, <-done)
	runner.Close()
	control, warehouse, drained, release := s.Databases()
	defer release()
	r, err := Run(context.Background(), Source{Control: control, Warehouse: warehouse, ThroughBatch: drained}, Options{})
	require.NoError(t, err)
	require.True(t, r.OK(), text(t, r))
	require.NotZero(t, r.Traces)
	require.NotZero(t, r.Generations)
	require.NoError(t, s.Close(context.Background()))
}

// write puts whatever can be put until ctx ends.
func write(ctx context.Context, s *store.Store) error {
	history := map[int][]int32{}
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(3 * time.Millisecond) // a test among others, on few cores
		n := rand.IntN(12)
		rollout := fmt.Sprintf("r%d", n)
		h := append(slices.Clone(history[n]), int32(i%50))
		t := &trace.Trace{TraceID: fmt.Sprintf("t%d", i), RolloutID: rollout, Seq: num(int64(i)), PromptIDs: trace.TokensOf(h),
			ResponseIDs: []int32{1, int32(i % 3)}, RequestBody: fmt.Appendf(nil, `{"history":%d}`, h)}
		history[n] = append(h[:len(h):len(h)], 1, int32(i%3))
		if len(history[n]) > 200 {
			history[n] = nil
		}
		if e := t.Validate(trace.Limits{}); e != nil {
			return e
		}
		if i%5 == 0 {
			if _, _, err := s.PutIntents(ctx, []*trace.Intent{{TraceID: t.TraceID, RolloutID: rollout}, {TraceID: "open" + t.TraceID, RolloutID: rollout}}); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if _, _, err := s.PutTraces(ctx, []*trace.Trace{t}); err != nil && ctx.Err() == nil {
			return err
		}
		if i%7 == 0 {
			w := &trace.Reward{RewardID: fmt.Sprintf("w%d", i), RolloutID: rollout, Name: "outcome", Value: 1, Revision: int64(i)}
			if _, _, err := s.PutRewards(ctx, []*trace.Reward{w}); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if i%11 == 0 {
			if _, _, _, err := s.FinishRollout(ctx, rollout, &trace.Finish{Status: "failed"}); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}
