package verify

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/store"
	"icecore/trace"
)

// An announced call that is withdrawn after its rollout's end, drained before or not,
// leaves databases that agree.
func TestWithdrawnAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, drained := range map[string]bool{"drained": true, "not drained": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, dir := t.Context(), t.TempDir()
			s, err := store.Open(ctx, store.Options{Dir: dir, DrainInterval: time.Hour, CheckpointInterval: time.Hour,
				MemoryLimit: 1 << 30, Threads: 1, Log: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			f := &filler{ctx: ctx, s: s}
			_, _, err = s.PutIntents(ctx, []*trace.Intent{{TraceID: "never", RolloutID: "made"}})
			require.NoError(t, err)
			require.NoError(t, f.put(f.made("a", 2, []int32{1}, []int32{2})))
			_, _, f.batch, err = s.FinishRollout(ctx, "made", &trace.Finish{Status: "failed"})
			require.NoError(t, err)
			if drained {
				f.drain()
			}
			require.NoError(t, s.WithdrawCalls(ctx, []string{"never"}))
			require.NoError(t, f.err)
			r, err := s.Rollout(ctx, "made")
			require.NoError(t, err)
			require.True(t, r.Complete())
			require.NoError(t, s.Close(ctx))
			report, err := Run(ctx, open(t, dir), Options{})
			require.NoError(t, err)
			require.True(t, report.OK(), text(t, report))
			require.EqualValues(t, 1, report.Rollouts)
		})
	}
}
