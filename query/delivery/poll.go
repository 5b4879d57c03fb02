package delivery

import (
	"context"
	"time"

	"icecore/problem"
	"icecore/store"
)

// Bounds of how often one waiter looks: commits may come by the hundred in a
// second, and each of them may wake everybody.
const (
	lookPause = 50 * time.Millisecond
	// lookShare: looking takes at most one part in so many of the time.
	lookShare = 5
)

// held is a lease that answers a request.
type held struct {
	*store.Lease
	plan *plan
	// opened: by this request; fresh: and nobody else can know its key.
	opened, fresh bool
}

// wait looks for something to deliver until there is something or the request's
// time is up; then lease is nil, and idle says why. The error is the answer.
func (a *API) wait(ctx context.Context, name string, r *Request) (*held, *idle, error) {
	a.metrics.waiting.Inc()
	defer a.metrics.waiting.Dec()
	c := a.consumer(name)
	defer a.release(c)
	deadline := time.Now().Add(seconds(r.WaitSeconds))
	total := skipped{}
	for told := time.Now(); ; told = time.Now() {
		h, i, err := a.look(ctx, c, name, r, told, total)
		if err != nil || h != nil {
			return h, nil, err
		}
		total.add(i.skipped)
		if !time.Now().Before(deadline) {
			out := *i
			out.skipped = total
			return nil, &out, nil
		}
		if err := a.sleep(ctx, i, deadline); err != nil {
			return nil, nil, err
		}
	}
}

// sleep waits until the outcome of a look may be another, or the deadline has
// come; and then until it is time to look again.
func (a *API) sleep(ctx context.Context, i *idle, deadline time.Time) error {
	until := earliest(i.moment, deadline)
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-i.changed:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-a.stopping:
		return stopping()
	}
	pause := time.Until(earliest(i.began.Add(max(lookPause, lookShare*i.took)), deadline))
	if pause <= 0 {
		return nil
	}
	timer.Reset(pause)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-a.stopping:
		return stopping()
	}
}

func stopping() error {
	return problem.New(problem.ShuttingDown, "the server is shutting down; ask again with the same key")
}
