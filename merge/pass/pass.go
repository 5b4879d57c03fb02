// Package pass runs merge policies over the rollouts that changed and publishes
// what they make.
package pass

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"icecore/merge"
	"icecore/store"
)

// Options configures a Runner. The zero value of each field means its default.
type Options struct {
	// Policies are merged without being asked for. Default: strict_tree.
	Policies []merge.Policy
	// Quiet is how long a rollout must have brought nothing new before it is
	// merged unasked. Default 1 s.
	Quiet time.Duration
	// MaxPolicies bounds how many different policies, parameters included, may
	// have published results. Default 16.
	MaxPolicies int
	// Busy, when set, says that requests are waiting to be stored: merging
	// unasked then waits, at most MaxWait, because nobody waits for it.
	Busy func() bool
	// MaxWait is how long a changed rollout waits for a calm moment. Default
	// 10 s.
	MaxWait time.Duration
	// KeepSuperseded is how long a merge's rows are kept after a newer one has
	// taken its place, or its policy was dropped: longer than any statement of a
	// user's may read them. Default 15 min.
	KeepSuperseded time.Duration
	Log            *slog.Logger
}

const (
	defaultQuiet          = time.Second
	defaultMaxPolicies    = 16
	defaultMaxWait        = 10 * time.Second
	defaultKeepSuperseded = 15 * time.Minute
	// passRollouts bounds one published transaction.
	passRollouts = 256
	// passTokens bounds the ids that one pass holds.
	passTokens = 32 << 20
	// sweepParts is how often in KeepSuperseded old merges are looked for.
	sweepParts = 4
)

// Runner merges rollouts. It is safe for concurrent use.
type Runner struct {
	s    *store.Store
	opts Options

	mu    sync.Mutex
	dirty map[int64]time.Time

	// merging is held while results are computed and published: two merges of
	// one rollout at once would only do the work twice.
	merging    sync.Mutex
	generation int64
	known      map[string]bool
	used       map[string]time.Time
	live       *liveCache
	// unswept says that there may be merges that count no more.
	unswept bool

	stop    chan struct{}
	stopped chan struct{}
}

// New makes a Runner over s and takes up what an earlier process left unmerged.
func New(ctx context.Context, s *store.Store, opts Options) (*Runner, error) {
	if len(opts.Policies) == 0 {
		opts.Policies = []merge.Policy{{Name: merge.StrictTree}}
	}
	if opts.Quiet == 0 {
		opts.Quiet = defaultQuiet
	}
	if opts.MaxPolicies == 0 {
		opts.MaxPolicies = defaultMaxPolicies
	}
	if opts.MaxWait == 0 {
		opts.MaxWait = defaultMaxWait
	}
	if opts.KeepSuperseded == 0 {
		opts.KeepSuperseded = defaultKeepSuperseded
	}
	if opts.Busy == nil {
		opts.Busy = func() bool { return false }
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	r := &Runner{s: s, opts: opts, dirty: map[int64]time.Time{}, known: map[string]bool{}, used: map[string]time.Time{}, live: newLiveCache(),
		unswept: true, // by the process before
		stop:    make(chan struct{}), stopped: make(chan struct{})}
	var err error
	if r.generation, err = s.NewestGeneration(ctx); err != nil {
		return nil, err
	}
	names, err := s.MergedPolicies(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		r.known[n] = true
	}
	for _, p := range opts.Policies {
		r.known[p.String()] = true
		keys, err := s.Unmerged(ctx, p.String())
		if err != nil {
			return nil, err
		}
		r.Changed(keys)
	}
	go r.loop()
	return r, nil
}

// Changed tells the runner of rollouts that have new traces.
func (r *Runner) Changed(keys []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, k := range keys {
		r.dirty[k] = now
	}
}

// Waiting counts the rollouts that are not merged yet, and says how long the
// one that changed first has waited since its last change.
func (r *Runner) Waiting() (n int, oldest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.dirty {
		oldest = max(oldest, time.Since(at))
	}
	return len(r.dirty), oldest
}

// Close stops merging unasked; what is dirty is found again at the next start.
func (r *Runner) Close() {
	close(r.stop)
	<-r.stopped
}

func (r *Runner) loop() {
	defer close(r.stopped)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-r.stop
		cancel()
	}()
	tick := time.NewTicker(max(r.opts.Quiet/4, 5*time.Millisecond))
	defer tick.Stop()
	sweep := time.NewTicker(max(r.opts.KeepSuperseded/sweepParts, 5*time.Millisecond))
	defer sweep.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-sweep.C:
			if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
				r.opts.Log.Error("old merges were not deleted; it will be tried again", "err", err)
			}
		case <-tick.C:
			r.mergeQuiet(ctx)
		}
	}
}

// mergeQuiet merges what nobody has asked for and nothing new has come to.
func (r *Runner) mergeQuiet(ctx context.Context) {
	keys := r.takeQuiet()
	if len(keys) == 0 {
		return
	}
	for _, p := range r.opts.Policies {
		if r.ensureSafe(ctx, keys, p) == nil || ctx.Err() != nil {
			continue
		}
		// One rollout that cannot be merged must not keep back the others.
		for _, k := range keys {
			if err := r.ensureSafe(ctx, []int64{k}, p); err != nil && ctx.Err() == nil {
				r.opts.Log.Error("merge failed; it will be tried again", "policy", p.String(), "rollout_key", k, "err", err)
				r.Changed([]int64{k})
			}
		}
	}
}

// ensureSafe is Ensure, with a panic over damaged rows as its error.
func (r *Runner) ensureSafe(ctx context.Context, keys []int64, policy merge.Policy) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("merge: %v\n%s", p, debug.Stack())
		}
	}()
	return r.Ensure(ctx, keys, policy)
}

func (r *Runner) takeQuiet() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []int64
	wait := r.opts.Quiet
	if r.opts.Busy() {
		wait = max(wait, r.opts.MaxWait)
	}
	for k, at := range r.dirty {
		if time.Since(at) >= wait {
			keys = append(keys, k)
			delete(r.dirty, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// Ensure publishes policy's results for those of the rollouts for which that
// was not done since their last drained trace.
func (r *Runner) Ensure(ctx context.Context, keys []int64, policy merge.Policy) error {
	r.merging.Lock()
	defer r.merging.Unlock()
	name := policy.String()
	through := r.s.Drained()
	for at := 0; at < len(keys); at += passRollouts {
		part := keys[at:min(at+passRollouts, len(keys))]
		stale, err := r.stale(ctx, part, name, through)
		if err != nil {
			return err
		}
		if len(stale) == 0 {
			continue
		}
		if err := r.makeRoom(ctx, name); err != nil {
			return err
		}
		if err := r.publish(ctx, stale, policy, through); err != nil {
			return err
		}
	}
	r.used[name] = time.Now()
	return nil
}

// EnsureAll is Ensure for all rollouts: it asks once which of them are behind.
func (r *Runner) EnsureAll(ctx context.Context, policy merge.Policy) error {
	r.merging.Lock()
	defer r.merging.Unlock()
	name := policy.String()
	through := r.s.Drained()
	stale, err := r.s.Unmerged(ctx, name)
	if err != nil {
		return err
	}
	if len(stale) > 0 {
		if err := r.makeRoom(ctx, name); err != nil {
			return err
		}
	}
	for at := 0; at < len(stale); at += passRollouts {
		if err := r.publish(ctx, stale[at:min(at+passRollouts, len(stale))], policy, through); err != nil {
			return err
		}
	}
	r.used[name] = time.Now()
	return nil
}

func (r *Runner) stale(ctx context.Context, keys []int64, policy string, through int64) ([]int64, error) {
	merged, err := r.s.MergedThrough(ctx, keys, policy)
	if err != nil {
		return nil, err
	}
	newest, err := r.s.NewestTraces(ctx, keys, through)
	if err != nil {
		return nil, err
	}
	var stale []int64
	for _, k := range keys {
		at, ok := merged[k]
		if n, has := newest[k]; has && (!ok || at < n) {
			stale = append(stale, k)
		}
	}
	return stale, nil
}

// publish merges keys a bounded number of tokens at a time.
func (r *Runner) publish(ctx context.Context, keys []int64, policy merge.Policy, through int64) error {
	for len(keys) > 0 {
		var merges []*store.Merge
		tokens := 0
		for tokens < passTokens && len(keys) > 0 {
			n := min(len(keys), 32)
			lives, err := r.live.load(ctx, r.s, keys[:n], through)
			if err != nil {
				return err
			}
			for _, l := range lives {
				r.generation++
				m, err := r.merged(ctx, l, policy)
				if err != nil {
					return err
				}
				merges = append(merges, m)
				tokens += l.tokens
			}
			keys = keys[n:]
		}
		if err := r.s.Publish(ctx, merges); err != nil {
			return err
		}
		r.unswept = true
	}
	return nil
}
