package delivery

import (
	"context"
	"slices"
	"time"

	"icecore/store"
	"icecore/trace"
)

// members reads the rollouts of the groups that match, and decides which of them
// take part.
func (g *gatherer) members(ctx context.Context, groups []store.Candidate) ([]*pick, error) {
	keys := make([]int64, len(groups))
	for i := range groups {
		keys[i] = groups[i].Key
	}
	byGroup, err := g.a.s.GroupRollouts(ctx, keys)
	if err != nil {
		return nil, err
	}
	var rollouts []int64
	var picks []*pick
	for _, c := range groups {
		known := byGroup[c.Key]
		if len(known) == 0 {
			continue // they went to another group meanwhile; others may come
		}
		if !g.r.Where.match(known) {
			g.out.filtered++
			continue
		}
		picks = append(picks, &pick{group: c})
		for i := range known {
			rollouts = append(rollouts, known[i].Key)
		}
	}
	rewards, err := g.a.s.Rewards(ctx, rollouts)
	if err != nil {
		return nil, err
	}
	given, err := g.a.s.Given(ctx, g.consumer, rollouts)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(picks, func(p *pick) bool {
		if g.mustWait(byGroup[p.group.Key], given) {
			return true
		}
		drop := g.choose(p, byGroup[p.group.Key], rewards, given)
		if drop {
			g.skipGroup(p, skipFailed)
		}
		return drop
	}), nil
}

// mustWait says that a rollout of a group is in an open lease: it was given in
// another group, and moved since. Delivered without it, this group could not have
// it when that lease comes back.
func (g *gatherer) mustWait(rollouts []store.Rollout, given map[int64]int64) bool {
	var until time.Time
	for i := range rollouts {
		if at := given[rollouts[i].Key]; at > 0 {
			until = latest(until, time.UnixMicro(at))
		}
	}
	if until.IsZero() {
		return false
	}
	g.out.leased++
	g.out.moment = earliest(g.out.moment, until)
	return true
}

// match says whether all rollouts of a group match. What the store can tell of a
// group by itself, it has told.
func (w *Where) match(rollouts []store.Rollout) bool {
	for i := range rollouts {
		r := &rollouts[i]
		for _, t := range []struct {
			want []string
			is   string
		}{{w.Split, r.Split}, {w.Harness, r.Harness}, {w.Model, r.Model}, {w.TaskID, r.TaskID}, {w.GroupID, r.GroupID}} {
			if _, ok := slices.BinarySearch(t.want, t.is); t.want != nil && !ok {
				return false
			}
		}
	}
	return true
}

// choose decides which rollouts of a group take part, and with what reward;
// drop: the group is not delivered because of a failed one.
func (g *gatherer) choose(p *pick, rollouts []store.Rollout, rewards map[int64][]trace.Reward, given map[int64]int64) (drop bool) {
	for _, r := range rollouts {
		if r.Status == "" {
			p.left.Unfinished++
			continue
		}
		p.finished++
		if _, ok := given[r.Key]; ok {
			p.left.Repeated++
			continue
		}
		m := &member{Rollout: r, through: r.LastBatch}
		if w := trace.Outcome(rewards[r.Key]); w != nil {
			m.rewardID, m.reward = w.RewardID, &w.Value
		}
		failed := r.Status != "succeeded" // as the store counts who is settled
		switch {
		case failed || g.r.Where.Complete && r.OpenIntents > 0:
			switch g.r.OnFailed {
			case dropGroup:
				drop = true
				continue
			case exclude:
				if failed {
					p.left.ExcludedFailed++
				} else {
					p.left.ExcludedIncomplete++
				}
				continue
			}
			p.left.ScoredFailed++
			if m.reward == nil {
				m.reward = &g.r.FailedScore
			}
		case m.reward == nil:
			p.left.Unscored++
			if g.r.RequireReward {
				continue // more rollouts than the group declared: this one comes too late
			}
		}
		p.members = append(p.members, m)
	}
	if declared := p.group.Declared; declared != nil {
		p.left.BeyondDeclared = int(max(int64(len(p.members))-*declared, 0))
	}
	slices.SortStableFunc(p.members, func(a, b *member) int { return bySample(a.SampleIndex, b.SampleIndex) })
	return drop
}

// bySample orders sample indexes, absent ones last.
func bySample(a, b *int64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	case *a < *b:
		return -1
	case *a > *b:
		return 1
	}
	return 0
}
