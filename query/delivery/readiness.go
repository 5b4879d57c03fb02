package delivery

import (
	"time"

	"icecore/store"
)

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

// asked is what a request wants of the store; what it leaves open is as the server
// is told.
func (a *API) asked(r *Request) store.Asked {
	w := &r.Where
	out := store.Asked{Rewarded: r.RequireReward, Quiet: a.opts.Quiet, Incomplete: a.opts.Incomplete, Seed: r.Seed,
		Filter: store.GroupFilter{GroupIDs: w.GroupID, Splits: w.Split, Harnesses: w.Harness, Models: w.Model, TaskIDs: w.TaskID}}
	if r.Quiet != nil {
		out.Quiet = seconds(*r.Quiet)
	}
	if r.Incomplete != nil {
		out.Incomplete = seconds(*r.Incomplete)
	}
	if !w.Complete {
		out.Incomplete = -1
	}
	return out
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
