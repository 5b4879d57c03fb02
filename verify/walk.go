package verify

import (
	"context"
	"slices"
)

// page is a run of rollouts that are in memory together.
type page struct {
	first, last int64
	rollouts    []*rollout
	byKey       map[int64]*rollout
	// states and rewards as both databases have them.
	states  [2]map[int64]state
	rewards [2]map[string]reward
	// newer are the rollouts and rewards that batches beyond through touch: the
	// two databases may differ about them.
	newerRollouts map[int64]bool
	newerRewards  map[string]bool
}

// rollout is all that the warehouse holds of one rollout, up to batch through.
type rollout struct {
	key     int64
	id      string
	tapes   map[int64]*tape
	traces  []*traceRow
	byKey   map[int64]*traceRow
	bodies  map[bodyKey]*body
	merges  []*generation
	damaged bool // some ids cannot be told, so merges cannot be checked
}

// name is what findings call the rollout.
func (r *rollout) name() string {
	if r.id != "" {
		return r.id
	}
	return "key " + itoa(r.key)
}

// weight is how much memory a rollout takes, in ids.
type weight struct{ key, ids int64 }

// walk checks rollout by rollout, a page at a time.
func (v *run) walk(ctx context.Context) error {
	weights, err := v.weigh(ctx)
	if err != nil {
		return err
	}
	total := int64(len(weights))
	v.Rollouts = total
	for at := 0; at < len(weights); {
		p := &page{first: weights[at].key, byKey: map[int64]*rollout{}}
		var ids int64
		for at < len(weights) && len(p.rollouts) < pageRollouts && (ids == 0 || ids+weights[at].ids <= v.opts.PageTokens) {
			r := &rollout{key: weights[at].key, tapes: map[int64]*tape{}, byKey: map[int64]*traceRow{}, bodies: map[bodyKey]*body{}}
			p.rollouts = append(p.rollouts, r)
			p.byKey[r.key] = r
			p.last = r.key
			ids += max(weights[at].ids, 1)
			at++
		}
		if err := v.page(ctx, p); err != nil {
			return err
		}
		if v.opts.Progress != nil {
			v.opts.Progress(int64(at), total)
		}
	}
	return nil
}

// weigh lists every rollout that any table names.
func (v *run) weigh(ctx context.Context) ([]weight, error) {
	by := map[int64]int64{}
	for key := range v.indexed {
		by[key] = 0
	}
	read := func(q querier, text string, args ...any) error {
		return q.each(ctx, func(s scan) error {
			var w weight
			if err := s(&w.key, &w.ids); err != nil {
				return err
			}
			by[w.key] += w.ids
			return nil
		}, text, args...)
	}
	err := snapshot(ctx, v.src.Control, func(q querier) error {
		return read(q, `SELECT rollout_key, 0 FROM rollouts UNION SELECT rollout_key, 0 FROM rewards`)
	})
	if err != nil {
		return nil, err
	}
	err = snapshot(ctx, v.src.Warehouse, func(q querier) error {
		return read(q, `SELECT rollout_key, CAST(sum(ids) AS BIGINT) FROM (
			SELECT rollout_key, len(token_ids) AS ids FROM ice.tape_chunks WHERE batch <= $1
			UNION ALL SELECT rollout_key, 4 * len(logprobs) FROM ice.logprob_chunks WHERE batch <= $1
			UNION ALL SELECT rollout_key, raw_bytes // 16 FROM ice.bodies WHERE batch <= $1
			UNION ALL SELECT rollout_key, 128 FROM ice.traces WHERE batch <= $1
			UNION ALL SELECT rollout_key, 4 * len(logprobs) FROM ice.learner_logprob_chunks WHERE batch <= $1
			UNION ALL SELECT rollout_key, 64 FROM ice.learner_posts WHERE batch <= $1
			UNION ALL SELECT rollout_key, 0 FROM ice.tapes WHERE batch <= $1
			UNION ALL SELECT rollout_key, 0 FROM ice.rollouts WHERE batch <= $1
			UNION ALL SELECT rollout_key, 0 FROM ice.rewards WHERE batch <= $1
			UNION ALL SELECT rollout_key, 0 FROM ice.generations
		) GROUP BY 1`, v.through)
	})
	if err != nil {
		return nil, err
	}
	out := make([]weight, 0, len(by))
	for key, ids := range by {
		out = append(out, weight{key, ids})
	}
	slices.SortFunc(out, func(a, b weight) int { return int(min(max(a.key-b.key, -1), 1)) })
	return out, nil
}

// page loads and checks one page. The control database is read first: what it
// knows and the warehouse does not is then a fault, and not only late.
func (v *run) page(ctx context.Context, p *page) error {
	return snapshot(ctx, v.src.Control, func(control querier) error {
		if err := v.loadControl(ctx, control, p); err != nil {
			return err
		}
		err := snapshot(ctx, v.src.Warehouse, func(q querier) error {
			for _, load := range []func(context.Context, querier, *page) error{
				v.loadStates, v.loadRewards, v.loadTapes, v.loadTraces, v.loadLogprobs, v.loadBodies, v.loadMerges, v.loadLearner,
			} {
				if err := load(ctx, q, p); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		v.compareStates(p)
		v.compareRewards(p)
		if err := v.index(ctx, control, p); err != nil {
			return err
		}
		for _, r := range p.rollouts {
			v.rollout(r)
		}
		return nil
	})
}

// rollout checks one rollout by itself.
func (v *run) rollout(r *rollout) {
	for _, t := range r.traces {
		v.Traces++
		v.trace(r, t)
	}
	v.promptHashes(r)
	v.contents(r)
	newest := int64(0)
	for _, t := range r.traces {
		newest = max(newest, t.batch)
	}
	if len(r.merges) == 0 && len(r.traces) > 0 {
		v.Behind++
	}
	for _, g := range r.merges {
		if g.through < newest {
			v.Behind++
		}
		v.merge(r, g)
	}
}
