package pass

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"icecore/merge"
)

// ErrTooManyPolicies says that a new policy would exceed MaxPolicies.
var ErrTooManyPolicies = errors.New("too many different merge policies have stored results")

// makeRoom lets one more policy publish: of those that nobody configured, the
// one used longest ago gives up its results, which can be made again.
func (r *Runner) makeRoom(ctx context.Context, name string) error {
	if r.known[name] {
		return nil
	}
	for len(r.known) >= r.opts.MaxPolicies {
		oldest := ""
		for have := range r.known {
			if !r.configured(have) && (oldest == "" || r.used[have].Before(r.used[oldest])) {
				oldest = have
			}
		}
		if oldest == "" {
			return fmt.Errorf("%w: %d, and %s would be one more", ErrTooManyPolicies, len(r.known), name)
		}
		if err := r.s.DropPolicy(ctx, oldest); err != nil {
			return err
		}
		r.unswept = true
		delete(r.known, oldest)
		delete(r.used, oldest)
	}
	r.known[name] = true
	return nil
}

func (r *Runner) configured(name string) bool {
	return slices.ContainsFunc(r.opts.Policies, func(p merge.Policy) bool { return p.String() == name })
}

// sweep deletes the merges that have not counted for KeepSuperseded. Those that
// are younger are left to a later one.
func (r *Runner) sweep(ctx context.Context) error {
	r.merging.Lock()
	defer r.merging.Unlock()
	if !r.unswept {
		return nil
	}
	left, err := r.s.DropOld(ctx, r.opts.KeepSuperseded)
	if err != nil {
		return err
	}
	r.unswept = left
	return nil
}
