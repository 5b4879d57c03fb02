package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/store/warehouse"
	"icecore/trace"
)

// losing is a warehouse whose process is lost at some writes, before they are
// committed or after.
type losing struct {
	waist
	calls atomic.Int64
	// lose says what happens at the n-th write.
	lose func(n int64) fate
}

type fate int

const (
	goesWell fate = iota
	lostBefore
	lostAfter
)

func (l *losing) Apply(ctx context.Context, adds []warehouse.Addition, before func() error, stmts ...string) error {
	f := l.lose(l.calls.Add(1))
	if f == lostBefore {
		return fmt.Errorf("%w: %w", warehouse.ErrOutOfOrder, warehouse.ErrGone)
	}
	err := l.waist.Apply(ctx, adds, before, stmts...)
	if f == lostAfter && err == nil {
		err = fmt.Errorf("%w: %w", warehouse.ErrOutOfOrder, warehouse.ErrGone)
	}
	return err
}

// A write whose process was lost is neither lost nor doubled.
func TestWritesSurviveTheLossOfTheProcess(t *testing.T) {
	t.Parallel()
	for name, fates := range map[string][]fate{
		"before":        {lostBefore},
		"after":         {lostAfter},
		"before, twice": {lostBefore, lostBefore},
		"both":          {lostBefore, lostAfter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			s := open(t, Options{})
			l := &losing{waist: s.warehouse}
			l.lose = func(n int64) fate {
				if int(n) > len(fates) {
					return goesWell
				}
				return fates[n-1]
			}
			s.warehouse = l
			put(t, s, call("a", "r", []int32{1}, []int32{2}), call("b", "r", []int32{1, 2}, []int32{3}))
			require.Greater(t, l.calls.Load(), int64(len(fates))-1)
			rows := func(text string) int64 {
				n, err := s.wh().Int(ctx, text)
				require.NoError(t, err)
				return n
			}
			require.EqualValues(t, 2, rows(`SELECT count(*) FROM ice.traces`))
			r, err := s.Rollout(ctx, "r")
			require.NoError(t, err)
			for _, write := range []func() error{
				func() error {
					return s.Publish(ctx, []*Merge{{Generation: 1, RolloutKey: r.Key, Policy: "p", Through: 1, Traces: []MergedTrace{{Key: 1, Disposition: "trained"}}},
						{Generation: 2, RolloutKey: r.Key, Policy: "p", Through: 1}})
				},
				func() error { _, err := s.DropOld(ctx, 0); return err },
			} {
				l.calls.Store(0)
				require.NoError(t, write())
			}
			require.EqualValues(t, 1, rows(`SELECT count(*) FROM ice.generations`))
			require.EqualValues(t, 0, rows(`SELECT count(*) FROM ice.merged_traces`))
		})
	}
}

// Whoever waits is told when it goes on for too long.
func TestProcessLostTooOften(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	l := &losing{waist: s.warehouse}
	l.lose = func(n int64) fate {
		if n <= maxRepeats+1 {
			return lostBefore
		}
		return goesWell
	}
	s.warehouse = l
	_, batch, err := s.PutTraces(t.Context(), []*trace.Trace{call("a", "r", []int32{1}, []int32{2})})
	require.NoError(t, err)
	require.ErrorIs(t, s.WaitDrained(t.Context(), batch), ErrWarehouse)
	require.Eventually(t, func() bool { return s.Drained() == batch }, time.Minute, 5*time.Millisecond)
	l.calls.Store(0)
	require.ErrorIs(t, s.DropPolicy(t.Context(), "p"), warehouse.ErrGone)
}
