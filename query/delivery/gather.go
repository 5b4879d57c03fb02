package delivery

import (
	"context"
	"time"

	"icecore/merge"
	"icecore/store"
	"icecore/trace"
)

// Bounds of how many groups are looked at together: few at first, so that a large
// backlog is not merged for a small lease; more when those were not enough, since
// each look has a price of its own.
const (
	lookGroups     = 16
	lookMostGroups = 512
	lookRollouts   = 4096
	// skipsAtOnce is how many skips are kept until they are written: a learner that
	// leaves meanwhile does not undo them.
	skipsAtOnce = 512
)

// gathered is what looking at ready groups gave.
type gathered struct {
	picks []*pick
	// skips are to be written yet, and what they count for; written are.
	skips    []store.Skip
	skipped  skipped
	written  skipped
	filtered int
	// cutBy is the limit that ended the look while more was ready; "": none did.
	cutBy string
	// leased counts groups that wait for a rollout in an open lease; moment is when
	// time alone brings the first back.
	leased int
	moment time.Time
}

// gatherer looks at the ready groups of one consumer for one request.
type gatherer struct {
	a        *API
	consumer string
	r        *Request
	policy   merge.Policy
	kinds    []trace.Kind
	// from is the policy version from which on the consumer is given groups; nil:
	// from all.
	from *int64
	out  gathered
	// Of the picks.
	rows   int64
	tokens int64
}

// gather looks at groups in their order until the request has enough.
func (a *API) gather(ctx context.Context, consumer string, r *Request, from *int64, ready *store.Ready) (*gathered, error) {
	policy, err := merge.ParsePolicy(r.Policy)
	if err != nil {
		return nil, err
	}
	g := &gatherer{a: a, consumer: consumer, r: r, policy: policy, from: from}
	for _, k := range r.Kinds {
		g.kinds = append(g.kinds, trace.Kind(k))
	}
	most := r.MaxGroups
	if r.Groups != nil {
		most = *r.Groups
	}
	some := int(min(lookGroups, most))
	for int64(len(g.out.picks)) < most {
		next, err := ready.Peek(ctx, some)
		if err != nil {
			return nil, err
		}
		if len(next) == 0 {
			return &g.out, nil
		}
		n := few(next)
		some = min(2*some, lookMostGroups)
		full, err := g.look(ctx, next[:n])
		if err != nil || full {
			return &g.out, err
		}
		ready.Drop(n)
	}
	more, err := ready.Peek(ctx, 1)
	if len(more) > 0 {
		g.out.cutBy = g.limit(&pick{})
	}
	return &g.out, err
}

// few is how many of the groups are looked at together.
func few(ready []store.Candidate) (n int) {
	for rollouts := 0; n < len(ready) && (n == 0 || rollouts+ready[n].Known <= lookRollouts); n++ {
		rollouts += ready[n].Known
	}
	return n
}

// look looks at some groups; full: there is no room for the next.
func (g *gatherer) look(ctx context.Context, groups []store.Candidate) (full bool, err error) {
	picks, err := g.members(ctx, groups)
	if err != nil {
		return false, err
	}
	if err := g.readRows(ctx, picks); err != nil {
		return false, err
	}
	g.score(picks)
	for _, p := range picks {
		if reason := g.skip(p); reason != "" {
			g.skipGroup(p, reason)
			continue
		}
		if g.out.cutBy = g.limit(p); g.out.cutBy != "" {
			return true, nil
		}
		g.out.picks = append(g.out.picks, p)
		g.rows += int64(p.rows)
		g.tokens += p.tokens
	}
	if len(g.out.skips) < skipsAtOnce {
		return false, nil
	}
	if err := g.a.s.SkipGroups(ctx, g.consumer, g.out.skips); err != nil {
		return false, err
	}
	g.out.written.add(g.out.skipped)
	g.out.skips, g.out.skipped = nil, skipped{}
	return false, nil
}

// limit names the field of the request that leaves a group no room; "": it has
// room, as the first group does whatever its size.
func (g *gatherer) limit(p *pick) string {
	r, n := g.r, int64(len(g.out.picks))
	switch {
	case n == 0, r.Groups != nil && n < *r.Groups:
		return ""
	case r.Groups != nil:
		return "groups"
	case n >= r.MaxGroups:
		return "max_groups"
	case g.rows+int64(p.rows) > r.MaxTrajectories:
		return "max_trajectories"
	case g.tokens+p.tokens > r.MaxTokens:
		return "max_tokens"
	}
	return ""
}

// skipGroup settles a group without delivering it.
func (g *gatherer) skipGroup(p *pick, reason string) {
	g.out.skips = append(g.out.skips, store.Skip{Key: p.group.Key, Reason: reason, PolicyVersionMin: p.version()})
	g.out.skipped.count(reason, p)
}
