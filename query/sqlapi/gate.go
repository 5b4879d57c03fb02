package sqlapi

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"icecore/problem"
)

// gate bounds the statements at once. Each holds a place from its arrival until
// its answer is sent, so that what slow readers hold is bounded too; and a turn
// while the warehouse works on it. Turns are given in order of arrival.
type gate struct {
	places  int64
	taken   atomic.Int64
	turns   *semaphore.Weighted
	running atomic.Int64
	waiting atomic.Int64
}

func newGate(running, waiting int) *gate {
	return &gate{places: int64(running + waiting), turns: semaphore.NewWeighted(int64(running))}
}

// enter takes a place. The statement leaves it with the function that it gets.
func (g *gate) enter() (leave func(), err error) {
	if g.taken.Add(1) > g.places {
		g.taken.Add(-1)
		return nil, problem.New(problem.TooManyQueries,
			fmt.Sprintf("%d statements run, wait or are being answered, which is as many as may (--sql-running, --sql-waiting)", g.places))
	}
	return func() { g.taken.Add(-1) }, nil
}

// turn waits until the statement may run. The error is ctx's.
func (g *gate) turn(ctx context.Context) (over func(), err error) {
	g.waiting.Add(1)
	err = g.turns.Acquire(ctx, 1)
	g.waiting.Add(-1)
	if err != nil {
		return nil, fmt.Errorf("wait for a turn: %w", err)
	}
	g.running.Add(1)
	return func() {
		g.running.Add(-1)
		g.turns.Release(1)
	}, nil
}
