package pass

import (
	"context"
	"fmt"

	"icecore/merge"
	"icecore/store"
)

// merged puts a result into the form in which it is stored: one row per trace
// and one per trajectory, from which tokens and spans follow.
func (r *Runner) merged(ctx context.Context, l *live, policy merge.Policy) (*store.Merge, error) {
	res := l.tree.Run(policy)
	id, err := r.s.RolloutID(ctx, l.calls.Key)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	calls := l.calls.Calls
	m := &store.Merge{Generation: r.generation, RolloutKey: l.calls.Key, Policy: policy.String(), Through: l.calls.Through,
		Traces: make([]store.MergedTrace, len(calls)), Rows: make([]store.MergedRow, len(res.Trajectories))}
	key := func(call int) int64 {
		if call == merge.None {
			return 0
		}
		return calls[call].Key
	}
	for i := range calls {
		n := &res.Nodes[i]
		m.Traces[i] = store.MergedTrace{Key: calls[i].Key, Disposition: string(n.Disposition), PreviousKey: key(n.Parent),
			Cut: n.Cut, SpanStart: -1, Row: n.Row}
		m.SampledTokens += int64(calls[i].Response.Len())
		if n.Row != merge.None {
			m.Traces[i].SpanStart = n.SpanStart
			m.TrainedTokens += int64(n.ResponseLen)
		}
	}
	for _, b := range res.Boundaries {
		t := &m.Traces[b.Call]
		t.Boundary, t.NearestKey, t.Shared = string(b.Kind), key(b.Nearest), b.Shared
	}
	ranges := versionRanges{calls: calls, nodes: res.Nodes, known: make([]versionRange, len(calls))}
	for i, t := range res.Trajectories {
		row := store.MergedRow{RolloutKey: l.calls.Key, Row: i, ID: merge.TrajectoryID(id, policy, calls[t.Namer].TraceID),
			NamingKey: key(t.Namer), LastKey: key(t.Last), Length: t.Length, TrainedTokens: t.TrainedTokens, Rewritten: t.Rewritten}
		row.VersionMin, row.VersionMax = ranges.of(t.Last)
		m.Rows[i] = row
	}
	return m, nil
}

// versionRange is the policy versions that sampled a path's spans.
type versionRange struct {
	store.VersionRange
	done bool
}

// versionRanges finds them, each call once: paths share their beginnings.
type versionRanges struct {
	calls []store.Call
	nodes []merge.Node
	known []versionRange
}

func (v *versionRanges) of(last int) (lo, hi *int64) {
	var path []int
	for c := last; c != merge.None && !v.known[c].done; c = v.nodes[c].Parent {
		path = append(path, c)
	}
	for i := len(path) - 1; i >= 0; i-- {
		c := path[i]
		var r versionRange
		if p := v.nodes[c].Parent; p != merge.None {
			r = v.known[p]
		}
		if v.nodes[c].Row != merge.None {
			r.Widen(&v.calls[c])
		}
		r.done = true
		v.known[c] = r
	}
	return v.known[last].Min, v.known[last].Max
}
