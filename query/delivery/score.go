package delivery

import (
	"fmt"

	"icecore/query/advantage"
)

func (r *Request) advantages() advantage.Options {
	o := advantage.Options{Estimator: advantage.Estimator(r.Estimator), Population: r.Sigma == "population", KeepSingle: r.Single == "reward"}
	if r.Epsilon != nil {
		o.Epsilon = *r.Epsilon
	}
	return o
}

// rewards is the group as advantages are computed from it.
func (p *pick) rewards() []advantage.Rollout {
	out := make([]advantage.Rollout, len(p.members))
	for i, m := range p.members {
		out[i] = advantage.Rollout{Reward: m.reward, Trained: m.trained}
	}
	return out
}

// score computes the advantages of groups. Only rewards that are too large for
// the estimator cannot be scored: failing the lease for them would fail the next
// one too, and so on.
func (g *gatherer) score(picks []*pick) {
	o := g.r.advantages()
	for _, p := range picks {
		var err error
		if p.outcome, err = o.Group(p.rewards()); err != nil {
			p.unscorable = true
			g.a.opts.Log.Warn("a group is skipped: its rewards cannot be scored", "consumer", g.consumer, "group", p.group.GroupID, "err", err)
		}
	}
}

// overLease computes the advantages of an estimator that compares all rollouts of
// a lease.
func overLease(r *Request, picks []*pick) error {
	groups := make([][]advantage.Rollout, len(picks))
	for i, p := range picks {
		groups[i] = p.rewards()
	}
	out, err := r.advantages().Lease(groups)
	if err != nil {
		return fmt.Errorf("score a lease: %w", err)
	}
	for i, p := range picks {
		p.outcome = out[i]
	}
	return nil
}
