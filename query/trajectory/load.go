package trajectory

import (
	"context"
	"fmt"
	"runtime/debug"

	"icecore/merge/pass"
	"icecore/trace"
)

// Bounds of what is read at once.
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

type loaded struct {
	rows []*Row
	err  error
}

// safeLoad turns a panic over damaged rows into the end of this stream: it runs in
// a goroutine of its own, where a panic would end the server.
func safeLoad(ctx context.Context, from Source, p *Plan, wants []Want) (l loaded) {
	defer func() {
		if p := recover(); p != nil {
			l = loaded{err: fmt.Errorf("make trajectories: %v\n%s", p, debug.Stack())}
		}
	}()
	l.rows, l.err = load(ctx, from, p, wants)
	return l
}

// load reads the calls of some rollouts and merges them again as they were
// merged for the plan. A policy is a pure function, so that gives the same rows;
// it costs less than reading them back.
func load(ctx context.Context, from Source, p *Plan, wants []Want) ([]*Row, error) {
	var keys []int64
	through := int64(0)
	for i, w := range wants {
		if i == 0 || w.Rollout != wants[i-1].Rollout {
			keys = append(keys, w.Rollout)
			through = max(through, w.Through)
		}
	}
	calls, err := from.LoadCalls(ctx, keys, through)
	if err != nil {
		return nil, err
	}
	logprobs, err := from.LoadLogprobs(ctx, calls)
	if err != nil {
		return nil, err
	}
	out := make([]*Row, 0, len(wants))
	for len(wants) > 0 {
		c := calls[0]
		calls = calls[1:]
		c.Until(wants[0].Through)
		m := pass.Run(c, p.Policy)
		for len(wants) > 0 && wants[0].Rollout == c.Key {
			r := p.row(m, &wants[0], logprobs)
			if r == nil || r.length != wants[0].Length {
				return nil, fmt.Errorf("make trajectory %d of rollout %d: merging gave another row than the one planned", wants[0].Row, c.Key)
			}
			out = append(out, r)
			wants = wants[1:]
		}
	}
	return out, nil
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
