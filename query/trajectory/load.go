package trajectory

import (
	"context"
	"fmt"
	"runtime/debug"

	"icecore/merge/pass"
	"icecore/store"
	"icecore/trace"
)

// Bounds of what is read at once. Every read has a price, since DuckDB unpacks
// 2,048 rows at a time: some ten milliseconds of processor time for lists of
// hundreds of ids.
const (
	loadRollouts = 64
	loadTokens   = 4 << 20
)

// loadEnd is where the load that begins at row at ends: whole rollouts, few
// enough.
func (p *Plan) loadEnd(at int) int {
	rollouts, tokens := 0, 0
	for i := at; i < len(p.Wants); i++ {
		if i == at || p.Wants[i].Rollout != p.Wants[i-1].Rollout {
			if rollouts++; i > at && (rollouts > loadRollouts || tokens > loadTokens) {
				return i
			}
		}
		tokens += p.Wants[i].Length
	}
	return len(p.Wants)
}

// load is some rollouts on their way: first their calls are read, then the
// log-probs, then rows are made of them.
type load struct {
	wants []Want
	calls []*store.RolloutCalls
	rows  []*Row
	err   error
}

// loads reads the rollouts of a plan. The ids of one load are read beside the
// log-probs of the one before it, while the one before that is sent; no more are
// held. The last load has the error, if there is one. Whoever stops taking loads
// ends ctx.
func loads(ctx context.Context, from Source, p *Plan) <-chan *load {
	called, made := make(chan *load), make(chan *load)
	go func() {
		defer close(called)
		for at := 0; at < len(p.Wants); {
			to := p.loadEnd(at)
			l := &load{wants: p.Wants[at:to]}
			if !l.do(func() error { return l.readCalls(ctx, from) }).pass(ctx, called) {
				return
			}
			at = to
		}
	}()
	go func() {
		defer close(made)
		for l := range called {
			if !l.do(func() error { return l.makeRows(ctx, from, p) }).pass(ctx, made) {
				return
			}
		}
	}()
	return made
}

// pass hands a load on; false: it is the last. From then on it is the taker's alone.
func (l *load) pass(ctx context.Context, to chan<- *load) bool {
	more := l.err == nil
	select {
	case to <- l:
		return more
	case <-ctx.Done():
		return false
	}
}

// do takes a load a step on, unless one before has failed. It turns a panic over
// damaged rows into the end of this stream: loads are made in goroutines of their
// own, where a panic would end the server.
func (l *load) do(step func() error) *load {
	defer func() {
		if p := recover(); p != nil {
			l.err = fmt.Errorf("make trajectories: %v\n%s", p, debug.Stack())
		}
	}()
	if l.err == nil {
		l.err = step()
	}
	return l
}

func (l *load) readCalls(ctx context.Context, from Source) (err error) {
	var keys []int64
	through := int64(0)
	for i, w := range l.wants {
		if i == 0 || w.Rollout != l.wants[i-1].Rollout {
			keys = append(keys, w.Rollout)
			through = max(through, w.Through)
		}
	}
	l.calls, err = from.LoadCalls(ctx, keys, through)
	return err
}

// makeRows merges the calls again as they were merged for the plan. A policy is a
// pure function, so that gives the same rows; it costs less than reading them back.
func (l *load) makeRows(ctx context.Context, from Source, p *Plan) error {
	logprobs, err := from.LoadLogprobs(ctx, l.calls)
	if err != nil {
		return err
	}
	wants := l.wants
	for len(wants) > 0 {
		c := l.calls[0]
		l.calls = l.calls[1:]
		c.Until(wants[0].Through)
		m := pass.Run(c, p.Policy)
		for len(wants) > 0 && wants[0].Rollout == c.Key {
			r := p.row(m, &wants[0], logprobs)
			if r == nil || r.length != wants[0].Length {
				return fmt.Errorf("make trajectory %d of rollout %d: merging gave another row than the one planned", wants[0].Row, c.Key)
			}
			l.rows = append(l.rows, r)
			wants = wants[1:]
		}
	}
	return nil
}

// row makes one row; nil: the merge has none at that place, or none of p's kinds.
func (p *Plan) row(m *pass.Merged, w *Want, logprobs map[int64]*trace.Logprobs) *Row {
	if w.Row >= len(m.Result.Trajectories) {
		return nil
	}
	r := New(m, p.Rollouts[w.Rollout].ID, w.Row, logprobs)
	if p.Kinds != nil {
		r = r.Restrict(p.Kinds)
	}
	return r
}
