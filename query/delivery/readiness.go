package delivery

import (
	"time"

	"icecore/store"
)

// readiness is when a group may be delivered.
type readiness struct {
	requireReward bool
	// quiet is how long a group without a declared size must bring no new rollout.
	quiet time.Duration
	// incomplete is how long a finished rollout may wait for announced calls that
	// have not come; negative: nobody waits for them.
	incomplete time.Duration
}

// standing says what a group waits for.
type standing int

const (
	isReady standing = iota
	notFinished
	isMissing
	notRewarded
	isQuiet
)

// judge says how a group stands at a time. When time alone can change that,
// moment is when.
func (r *readiness) judge(c *store.Candidate, now time.Time) (s standing, moment time.Time) {
	enough := c.Settled
	if !r.requireReward {
		enough = c.Finished
	}
	need := c.Known
	if c.Declared != nil {
		need = int(min(*c.Declared, int64(1)<<31))
	}
	need = max(need, 1)
	switch {
	case enough >= need:
	case c.Finished < need && c.Finished == c.Known:
		return isMissing, moment
	case c.Finished < need:
		return notFinished, moment
	default:
		return notRewarded, moment
	}
	if c.GroupID != "" && c.Declared == nil {
		moment = time.UnixMicro(c.NewestAt).Add(r.quiet)
	}
	if r.incomplete >= 0 && c.IncompleteAt > 0 {
		moment = latest(moment, time.UnixMicro(c.IncompleteAt).Add(r.incomplete))
	}
	if moment.After(now) {
		return isQuiet, moment
	}
	return isReady, time.Time{}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earliest passes over times that are not there.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// waiting counts the groups that are not delivered, by why.
type waiting struct {
	NotFinished, NotRewarded, Quiet int
	// Missing declare more rollouts than are known, and all known ones are finished.
	Missing int
	// Leased are in leases of this consumer now, Filtered do not match where: the
	// other counts are of those that do.
	Leased, Filtered int
	// TooFew are ready, but fewer than groups asks for.
	TooFew int
}

func (w *waiting) count(s standing) {
	switch s {
	case notFinished:
		w.NotFinished++
	case isMissing:
		w.Missing++
	case notRewarded:
		w.NotRewarded++
	case isQuiet:
		w.Quiet++
	case isReady:
	}
}

// readiness of a request; what it leaves open is as the server is told.
func (a *API) readiness(r *Request) readiness {
	out := readiness{requireReward: r.RequireReward, quiet: a.opts.Quiet, incomplete: a.opts.Incomplete}
	if r.Quiet != nil {
		out.quiet = seconds(*r.Quiet)
	}
	if r.Incomplete != nil {
		out.incomplete = seconds(*r.Incomplete)
	}
	if !r.Where.Complete {
		out.incomplete = -1
	}
	return out
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
