package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"icecore/problem"
	"icecore/store"
)

// replans is how often a plan is made anew because its groups went elsewhere.
// Only a lease that expired and was then revived takes groups from under a plan.
const replans = 16

// look tries once to answer a request: with the lease that its key names, or a
// new one; else idle says why there is nothing. told is when the request last
// heard that something might have changed; before is what it has skipped already.
// The error is the answer.
func (a *API) look(ctx context.Context, c *consumer, name string, r *Request, told time.Time, before skipped) (*held, *idle, error) {
	give, err := take(ctx, c.turn)
	if err != nil {
		return nil, nil, err
	}
	defer give()
	if r.Key != "" {
		h, i, err := a.resume(ctx, name, r)
		if h != nil || i != nil || err != nil {
			return h, i, fault(ofKey(r.Key, err))
		}
	}
	asked := string(r.kept())
	if c.last.answers(asked, told) {
		again := *c.last
		again.skipped = skipped{} // whoever looked has counted them
		return nil, &again, nil
	}
	done, err := take(ctx, a.planning)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	i := &idle{asked: asked, began: time.Now()}
	for range replans {
		h, err := a.open(ctx, name, r, i, before)
		if errors.Is(err, store.ErrGroupTaken) {
			continue
		}
		i.took = time.Since(i.began)
		a.metrics.looked(i.took)
		if err == nil && h == nil {
			c.last = i
		}
		return h, i, fault(err)
	}
	return nil, nil, problem.Internal(fmt.Errorf("open lease of %s: groups went elsewhere %d times", name, replans))
}

// resume gives the lease that a key names: it, or when its time is over and its
// groups are still there, it revived. No lease, no idle and no error: there is
// none.
func (a *API) resume(ctx context.Context, name string, r *Request) (*held, *idle, error) {
	changed := a.s.GroupsChanged()
	l, err := a.s.LeaseByKey(ctx, name, r.Key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	field, err := differs(l.Request, r.kept())
	if err != nil {
		return nil, nil, err
	}
	if field != "" {
		return nil, nil, problem.New(problem.Conflict, fmt.Sprintf("%s: the lease of key %q was asked for with another one", field, r.Key)).At(field)
	}
	switch l.State {
	case store.LeaseOpen:
	case store.LeaseAcknowledged:
		return nil, nil, store.ErrLeaseAcked
	case store.LeaseReturned, store.LeaseExpired:
		if over := time.UnixMicro(l.ExpiresAt); l.State == store.LeaseReturned && l.SettledAt == 0 && time.Now().Before(over) {
			return nil, &idle{began: time.Now(), changed: changed, moment: over, waiting: waiting{Leased: l.Groups}}, nil
		}
		if l, err = a.s.ReviveLease(ctx, l.ID, int(r.LeaseSeconds)); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, store.ErrLeaseLost
	}
	if l.Plan == nil {
		return nil, nil, store.ErrLeaseLost
	}
	p, err := decodePlan(l.Plan)
	if err != nil {
		return nil, nil, err
	}
	return &held{Lease: l, plan: p}, nil, nil
}

// ofKey says of a lease that a key can no longer give which key it is, and how to
// go on.
func ofKey(key string, err error) error {
	switch {
	case errors.Is(err, store.ErrLeaseAcked):
		return problem.New(problem.LeaseAcknowledged, fmt.Sprintf("key %q is used up: its lease is acknowledged, and what it delivered is settled; "+
			"ask for the next batch under the next key", key)).Because(err)
	case errors.Is(err, store.ErrLeaseLost):
		return problem.New(problem.LeaseLost, fmt.Sprintf("key %q is used up: its lease no longer holds its groups, which come again in another one; "+
			"drop what it delivered, and ask under the next key", key)).Because(err)
	}
	return err
}

// open makes a plan of what is ready and opens a lease for it; nil: nothing is
// ready, and i says what is waited for.
func (a *API) open(ctx context.Context, name string, r *Request, i *idle, before skipped) (*held, error) {
	i.changed, i.moment = a.s.GroupsChanged(), time.Time{}
	ready, err := a.s.ReadyGroups(ctx, name, a.asked(r))
	if err != nil {
		return nil, err
	}
	from, err := a.s.FromPolicyVersion(ctx, name)
	if err != nil {
		return nil, err
	}
	g, err := a.gather(ctx, name, r, from, ready)
	if err != nil {
		return nil, err
	}
	i.skipped.add(g.written)
	if len(g.picks) > 0 && (r.Groups == nil || int64(len(g.picks)) >= *r.Groups) {
		before.add(i.skipped)
		before.add(g.skipped)
		return a.openLease(ctx, name, r, g, before)
	}
	w, err := ready.Waiting(ctx) // only now, since it looks at all that waits
	if err != nil {
		return nil, err
	}
	i.waiting = waiting{NotFinished: w.NotFinished, NotRewarded: w.NotRewarded, Quiet: w.Quiet, Missing: w.Missing,
		Leased: w.Held + g.leased, Filtered: w.Filtered + g.filtered, TooFew: len(g.picks)}
	if w.Moment > 0 {
		i.moment = time.UnixMicro(w.Moment)
	}
	i.moment = earliest(i.moment, g.moment)
	if err := a.s.SkipGroups(ctx, name, g.skips); err != nil {
		return nil, err
	}
	i.skipped.add(g.skipped)
	return nil, nil
}

// openLease gives the groups out.
func (a *API) openLease(ctx context.Context, name string, r *Request, g *gathered, skips skipped) (*held, error) {
	p, err := newPlan(r, g.picks, skips, g.cutBy)
	if err != nil {
		return nil, err
	}
	blob, err := p.encode()
	if err != nil {
		return nil, err
	}
	whole := p.whole()
	n := store.NewLease{Consumer: name, Key: r.Key, Request: r.kept(), Plan: blob, Shards: int(r.Shards), Seconds: int(r.LeaseSeconds),
		Groups: p.leasedGroups(g.picks), Skips: g.skips, Rollouts: len(p.Rollouts), Rows: len(p.Rows), Tokens: whole.tokens, Trained: whole.trained}
	l, err := a.s.OpenLease(ctx, n)
	if err != nil {
		return nil, err
	}
	return &held{Lease: l, plan: p, opened: true, fresh: r.Key == ""}, nil
}
