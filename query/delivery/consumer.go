package delivery

import (
	"context"
	"time"
)

// consumer is what the server keeps in mind of a consumer; all of it can be
// forgotten.
type consumer struct {
	// turn holds one token: whoever has it plans, and opens leases.
	turn chan struct{}
	// users counts the requests that have a hold of this.
	users int
	// last is what a request found that found nothing.
	last *idle
}

// idle is the outcome of a look that found nothing to deliver. It holds until
// changed is closed or moment has come.
type idle struct {
	// asked is the request that it answers.
	asked   string
	began   time.Time
	took    time.Duration
	changed <-chan struct{}
	// moment is the next one at which time alone may make something ready; zero:
	// none.
	moment  time.Time
	waiting waiting
	skipped skipped
}

// keptConsumers is how many consumers are kept in mind that no request is about.
const keptConsumers = 256

// consumer gives the state of a consumer, until release.
func (a *API) consumer(name string) *consumer {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.consumers[name]
	if c == nil {
		c = &consumer{turn: make(chan struct{}, 1)}
		a.consumers[name] = c
	}
	c.users++
	return c
}

func (a *API) release(c *consumer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.users--
	if len(a.consumers) <= keptConsumers {
		return
	}
	for name, other := range a.consumers {
		if other.users == 0 {
			delete(a.consumers, name)
		}
	}
}

// take waits for one of the places of a channel, as long as ctx allows; give
// gives it back.
func take(ctx context.Context, places chan struct{}) (give func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inTurn runs fn while nobody plans for the consumer: a plan that began before a
// seek would settle groups after it by what held before.
func (a *API) inTurn(ctx context.Context, name string, fn func() error) error {
	c := a.consumer(name)
	defer a.release(c)
	give, err := take(ctx, c.turn)
	if err != nil {
		return err
	}
	defer give()
	return fn()
}

// answers says whether an earlier look answers a request that was last told of a
// change at a time: it began later, or nothing has happened since.
func (i *idle) answers(asked string, told time.Time) bool {
	if i == nil || i.asked != asked {
		return false
	}
	return !i.began.Before(told) || !i.over()
}

// over says that the outcome may be another now.
func (i *idle) over() bool {
	select {
	case <-i.changed:
		return true
	default:
		return !i.moment.IsZero() && !time.Now().Before(i.moment)
	}
}
