package store

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/trace"
)

// begin announces calls, all of which must be taken, and gives their numbers.
func begin(t require.TestingT, s *Store, rollout string, ids ...string) (seqs []int64) {
	intents := make([]*trace.Intent, len(ids))
	for i, id := range ids {
		intents[i] = &trace.Intent{TraceID: id, RolloutID: rollout, Seq: ptr(int64(-5))}
	}
	out, _, err := s.BeginCalls(context.Background(), intents)
	require.NoError(t, err)
	for i, o := range out {
		require.Nil(t, o.Err)
		seqs = append(seqs, *intents[i].Seq)
	}
	return seqs
}

// killed gives a copy of the directory as a process leaves it that is killed now.
func killed(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{controlFile, controlFile + "-wal", warehouseFile, warehouseFile + ".wal"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, name), text, 0o600))
	}
	return to
}

func numbered(id, rollout string, seq int64) *trace.Trace {
	c := call(id, rollout, []int32{1}, []int32{2})
	c.Seq = &seq
	return c
}

// TestCallsAreNumbered: in the order of arrival, per rollout, beyond whatever seq the
// rollout has, and the same again for the same call.
func TestCallsAreNumbered(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	require.Equal(t, []int64{1, 2, 3}, begin(t, s, "r", "a", "b", "c"))
	require.Equal(t, []int64{1}, begin(t, s, "other", "x"))
	require.Equal(t, []int64{2, 4}, begin(t, s, "r", "b", "d"), "b has its number already")
	put(t, s, numbered("late", "r", 9))
	require.Equal(t, []int64{10}, begin(t, s, "r", "e"))
	put(t, s, numbered("early", "r", 0), call("none", "r", nil, nil))
	require.Equal(t, []int64{11}, begin(t, s, "r", "f"))
	_, _, err := s.PutIntents(t.Context(), []*trace.Intent{{TraceID: "told", RolloutID: "r", Seq: ptr(int64(20))}, {TraceID: "untold", RolloutID: "r"}})
	require.NoError(t, err)
	require.Equal(t, []int64{21}, begin(t, s, "r", "g"))
	r, err := s.Rollout(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, int64(9), r.OpenIntents) // a b c d e f told untold g
	put(t, s, numbered("g", "r", 21))
	r, err = s.Rollout(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, int64(8), r.OpenIntents)

	put(t, s, numbered("full", "last", math.MaxInt64))
	intents := []*trace.Intent{{TraceID: "g", RolloutID: "r"}, {TraceID: "a", RolloutID: "other"}, {TraceID: "untold", RolloutID: "r"},
		{TraceID: "more", RolloutID: "last"}, {TraceID: "fine", RolloutID: "r"}}
	out, _, err := s.BeginCalls(t.Context(), intents)
	require.NoError(t, err)
	for i, o := range out[:4] {
		require.Equal(t, trace.CodeConflict, o.Err.Code)
		require.Nil(t, intents[i].Seq)
	}
	require.Equal(t, Stored, out[4].Status)
	require.Equal(t, int64(22), *intents[4].Seq)
}

// TestNumbersSurvive: no number is given twice, whether the process ends or is killed,
// before the drain or after it.
func TestNumbersSurvive(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]Options{"drained": {}, "not drained": {DrainInterval: time.Hour}, "rebuilt": {RebuildIndex: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			opts = quiet(t, opts)
			s, err := Open(ctx, opts)
			require.NoError(t, err)
			require.Equal(t, []int64{1, 2}, begin(t, s, "r", "a", "b"))
			_, batch, err := s.PutTraces(ctx, []*trace.Trace{numbered("far", "far", 41), numbered("b", "r", 2)})
			require.NoError(t, err)
			if name == "drained" {
				require.NoError(t, s.WaitDrained(ctx, batch))
			}
			copied := opts
			copied.Dir = killed(t, opts.Dir)
			require.NoError(t, s.Close(ctx))
			for _, o := range []Options{opts, copied} {
				o.TempDir = ""
				s, err := Open(ctx, o)
				require.NoError(t, err)
				require.Equal(t, []int64{2 + 1}, begin(t, s, "r", "c"))
				require.Equal(t, []int64{1}, begin(t, s, "r", "a"))
				require.Equal(t, []int64{42}, begin(t, s, "far", "x"))
				require.NoError(t, s.Close(ctx))
			}
		})
	}
}

// TestOldDatabaseIsNumbered: rollouts of before the gateway go on after the highest seq
// that they have, be it in the warehouse, in the journal or announced.
func TestOldDatabaseIsNumbered(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	opts := quiet(t, Options{})
	s, err := Open(ctx, opts)
	require.NoError(t, err)
	put(t, s, numbered("w1", "warehouse", 7), numbered("w2", "warehouse", 3), call("w3", "warehouse", nil, nil))
	put(t, s, numbered("n", "both", 2))
	require.NoError(t, s.Close(ctx))

	opts.DrainInterval = time.Hour
	s, err = Open(ctx, opts)
	require.NoError(t, err)
	_, _, err = s.PutTraces(ctx, []*trace.Trace{numbered("j1", "journal", 5), numbered("j2", "both", 12), call("j3", "unnumbered", nil, nil)})
	require.NoError(t, err)
	_, _, err = s.PutIntents(ctx, []*trace.Intent{{TraceID: "i1", RolloutID: "announced", Seq: ptr(int64(8))}, {TraceID: "i2", RolloutID: "announced"}})
	require.NoError(t, err)
	opts.Dir = killed(t, opts.Dir)
	opts.TempDir = ""
	require.NoError(t, s.Close(ctx))

	c, err := openControl(filepath.Join(opts.Dir, controlFile))
	require.NoError(t, err)
	for _, text := range []string{`DROP INDEX deliveries_ready`, `ALTER TABLE deliveries DROP COLUMN stage`, `ALTER TABLE deliveries DROP COLUMN place`,
		`ALTER TABLE groups DROP COLUMN stage`, `ALTER TABLE rollouts DROP COLUMN last_seq`, `DROP TABLE gateway_keys`, `DROP TABLE policy_versions`,
		`DELETE FROM meta WHERE key = 'seqs_floored'`, `DELETE FROM schema_version WHERE version > 3`} {
		_, err := c.write.ExecContext(ctx, text)
		require.NoError(t, err, text)
	}
	require.NoError(t, c.close())

	s = open(t, opts)
	for rollout, want := range map[string]int64{"warehouse": 8, "journal": 6, "both": 13, "unnumbered": 1, "announced": 9, "new": 1} {
		require.Equal(t, []int64{want}, begin(t, s, rollout, "next-"+rollout), rollout)
	}
}

// TestLostWarehouseKeepsNumbers: traces that are lost do not free their numbers.
func TestLostWarehouseKeepsNumbers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	opts := quiet(t, Options{})
	s, err := Open(ctx, opts)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, begin(t, s, "r", "a", "b"))
	put(t, s, numbered("a", "r", 1), numbered("b", "r", 2))
	require.NoError(t, s.Close(ctx))
	require.NoError(t, os.Remove(filepath.Join(opts.Dir, warehouseFile)))
	opts.RebuildIndex = true
	s = open(t, opts)
	require.Equal(t, []int64{3}, begin(t, s, "r", "c"))
}

// TestNumbersAgainstModel: whatever is begun, announced and stored, in whatever order
// and over restarts, every new call's seq is above all that its rollout has.
func TestNumbersAgainstModel(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	opts := quiet(t, Options{})
	s, err := Open(ctx, opts)
	require.NoError(t, err)
	runs := 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		highest, given := map[string]int64{}, map[string]int64{}
		for i := range rapid.IntRange(1, 12).Draw(r, "steps") {
			rollout := fmt.Sprint("m", runs, rapid.SampledFrom([]string{"a", "b"}).Draw(r, "rollout"))
			id, seq := fmt.Sprint("m", runs, "-", i), rapid.Int64Range(0, 20).Draw(r, "seq")
			switch rapid.IntRange(0, 9).Draw(r, "step") {
			case 0, 1, 2, 3, 4:
				given[id] = begin(r, s, rollout, id)[0]
				require.Equal(r, highest[rollout]+1, given[id])
				highest[rollout]++
			case 5, 6:
				_, _, err := s.PutTraces(ctx, []*trace.Trace{numbered(id, rollout, seq)})
				require.NoError(r, err)
				highest[rollout] = max(highest[rollout], seq)
			case 7, 8:
				_, _, err := s.PutIntents(ctx, []*trace.Intent{{TraceID: id, RolloutID: rollout, Seq: &seq}})
				require.NoError(r, err)
				highest[rollout] = max(highest[rollout], seq)
			case 9:
				s.committer.cache.clear()
			}
		}
		if runs%40 == 0 {
			require.NoError(r, s.Close(ctx))
			s, err = Open(ctx, opts)
			require.NoError(r, err)
		}
	})
	require.NoError(t, s.Close(ctx))
}

// TestBegunAtOnce: calls that begin at the same moment get different numbers, without
// gaps.
func TestBegunAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	var all []int64
	for i := range 64 {
		wg.Go(func() {
			seqs := begin(t, s, "r", fmt.Sprint("a", i), fmt.Sprint("b", i))
			mu.Lock()
			defer mu.Unlock()
			all = append(all, seqs...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	for i, seq := range all {
		require.Equal(t, int64(i+1), seq)
	}
	require.Len(t, all, 128)
}

// BenchmarkBegin begins one call after the other, or many at once.
func BenchmarkBegin(b *testing.B) {
	for _, atOnce := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(atOnce, " at once"), func(b *testing.B) {
			s := open(b, Options{})
			took := make(chan time.Duration, 1<<20)
			n := 0
			for b.Loop() {
				n++
				var wg sync.WaitGroup
				for i := range atOnce {
					wg.Go(func() {
						started := time.Now()
						begin(b, s, fmt.Sprint("r", i), fmt.Sprint(n, "-", i))
						took <- time.Since(started)
					})
				}
				wg.Wait()
			}
			close(took)
			var all []time.Duration
			for d := range took {
				all = append(all, d)
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
		})
	}
}
