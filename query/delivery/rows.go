package delivery

import (
	"context"
	"slices"

	"icecore/merge/pass"
	"icecore/query/trajectory"
	"icecore/store"
	"icecore/trace"
)

// readRows finds the rows that each member delivers, merging first what is not
// merged.
func (g *gatherer) readRows(ctx context.Context, picks []*pick) error {
	members := map[int64]*member{}
	var keys []int64
	batch := int64(0)
	for _, p := range picks {
		for _, m := range p.members {
			members[m.Key] = m
			keys = append(keys, m.Key)
			batch = max(batch, m.LastBatch)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	s := g.a.s
	if err := s.WaitDrained(ctx, batch); err != nil {
		return err
	}
	if err := g.a.m.Ensure(ctx, keys, g.policy); err != nil {
		return err
	}
	published, err := s.MergedRows(ctx, keys, g.policy.String())
	if err != nil {
		return err
	}
	closer, err := s.CloserLook(ctx, keys)
	if err != nil {
		return err
	}
	var look []int64
	for _, r := range published {
		m := members[r.RolloutKey]
		if m.through = r.Through; closer[r.RolloutKey] {
			if len(look) == 0 || look[len(look)-1] != r.RolloutKey {
				look = append(look, r.RolloutKey)
			}
			continue
		}
		if slices.Contains(g.kinds, trace.KindAgent) {
			m.rows = append(m.rows, row{r.Row, r.Length, r.TrainedTokens, r.VersionMin, r.VersionMax})
		}
	}
	unprompted, err := g.lookCloser(ctx, look, members)
	if err != nil {
		return err
	}
	for _, p := range picks {
		p.sum(unprompted)
	}
	return nil
}

// closerLooks is how many rollouts are loaded together to be looked at closely.
const closerLooks = 16

// lookCloser makes the rows of rollouts that are not delivered as they are
// published, and counts by rollout those that begin with a trained token.
func (g *gatherer) lookCloser(ctx context.Context, keys []int64, members map[int64]*member) (unprompted map[int64]int, err error) {
	unprompted = map[int64]int{}
	for at := 0; at < len(keys); at += closerLooks {
		part := keys[at:min(at+closerLooks, len(keys))]
		through := int64(0)
		for _, k := range part {
			through = max(through, members[k].through)
		}
		calls, err := g.a.s.LoadCalls(ctx, part, through)
		if err != nil {
			return nil, err
		}
		for _, c := range calls {
			m := members[c.Key]
			unprompted[c.Key] = g.restricted(m, c)
		}
	}
	return unprompted, nil
}

// restricted sets a member's rows to those of the wanted kinds.
func (g *gatherer) restricted(m *member, calls *store.RolloutCalls) (unprompted int) {
	calls.Until(m.through)
	merged := pass.Run(calls, g.policy)
	for i := range merged.Result.Trajectories {
		r := trajectory.New(merged, m.ID, i, nil).Restrict(g.kinds)
		if r == nil {
			continue
		}
		if r.PromptLength() == 0 && !g.r.IncludeUnprompted {
			unprompted++
			continue
		}
		oldest, newest := r.Versions()
		if r.Undated() {
			oldest = nil // what is known of the others says nothing of these tokens
		}
		m.rows = append(m.rows, row{i, r.Length(), r.TrainedTokens(), oldest, newest})
	}
	return unprompted
}

// sum adds up the rows of a group.
func (p *pick) sum(unprompted map[int64]int) {
	for _, m := range p.members {
		p.left.UnpromptedRows += unprompted[m.Key]
		p.rows += len(m.rows)
		for _, r := range m.rows {
			m.trained += int64(r.trained)
			p.tokens += int64(r.length)
			p.longest = max(p.longest, r.length)
			switch {
			case r.oldest == nil:
				p.unknown = true
			case p.oldest == nil || *r.oldest < *p.oldest:
				p.oldest = r.oldest
			}
		}
		p.trained += m.trained
	}
}
