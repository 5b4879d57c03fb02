package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// learner trains on what it is given, and dies often.
type learner struct {
	*consumers
	name string
	r    *rand.Rand
	n    int
	// kind says that it does everything as it should.
	kind func() bool
}

// run leases and settles until ctx ends.
func (l *learner) run(ctx context.Context, consumer string) {
	for ctx.Err() == nil && len(l.home.faults()) == 0 {
		l.n++
		seconds := 1 + l.r.IntN(2)
		body := object{"key": fmt.Sprintf("%s-%d", l.name, l.n), "max_groups": 1 + l.r.IntN(4), "lease_seconds": seconds, "wait_seconds": 0.3}
		what := l.r.IntN(100)
		if l.kind() {
			what = 99
		}
		if what < 5 { // the learner is killed while it reads
			l.broken(ctx, consumer, body)
			continue
		}
		// Its first answer may be lost, and its time be over before the next.
		if b, _ := l.lease(ctx, consumer, body, time.Now().Add(time.Duration(seconds)*time.Second)); b != nil {
			l.settle(ctx, b, body, what)
		}
	}
}

// broken leaves in the middle of an answer.
func (l *learner) broken(ctx context.Context, consumer string, body object) {
	short, cancel := context.WithTimeout(ctx, time.Duration(l.r.IntN(30))*time.Millisecond)
	defer cancel()
	l.home.once(short, request{"POST", "/v1/consumers/" + consumer + "/lease", jsonOf(body)})
	l.did("killed while it read")
}

func (l *learner) settle(ctx context.Context, b *batch, body object, what int) {
	lease := "/v1/leases/" + b.lease
	switch {
	case what < 14: // killed while it trains
		l.did("killed while it trained")
	case what < 22:
		l.giveBack(ctx, b)
	case what < 40: // slow: others may be given its groups before it is done
		time.Sleep(time.Until(b.expires) + time.Duration(l.r.IntN(300))*time.Millisecond)
		l.did("late")
		l.ack(ctx, b)
	case what < 47: // killed while it acknowledges
		short, cancel := context.WithTimeout(ctx, time.Duration(l.r.IntN(10))*time.Millisecond)
		defer cancel()
		l.home.once(short, request{"POST", lease + "/ack", b.settleBody()})
		l.doubt(b)
	case what < 55: // started again, with the key that it was at
		if again, _ := l.lease(ctx, b.consumer, body, b.expires); again != nil {
			l.ack(ctx, again)
		}
	case what < 61: // holds on
		if a := l.home.ask(ctx, request{"POST", lease + "/extend", []byte(`{"lease_seconds": 3}`)}); a != nil && a.status == http.StatusOK {
			b.expires = time.Now().Add(2500 * time.Millisecond)
			time.Sleep(time.Duration(l.r.IntN(1500)) * time.Millisecond)
			l.did("extended")
		}
		l.ack(ctx, b)
	case what < 68: // twice
		l.ack(ctx, b)
		l.ack(ctx, b)
	default:
		l.ack(ctx, b)
	}
}

// giveBack returns a lease. Then it is lost to its learner.
func (l *learner) giveBack(ctx context.Context, b *batch) {
	back := request{"POST", "/v1/leases/" + b.lease + "/nack", jsonOf(object{"delay_seconds": l.r.Float64() / 4, "reason": "out of memory"})}
	for range 1 + l.r.IntN(2) {
		a := l.home.ask(ctx, back)
		if a != nil && a.status != http.StatusOK && !(a.code == "lease_lost" && time.Now().After(b.expires)) {
			l.home.fail("%s gives lease %s back: %d %s", l.name, b.lease, a.status, a.body)
		}
	}
	l.did("returned")
	if a := l.home.ask(ctx, request{"POST", "/v1/leases/" + b.lease + "/ack", b.settleBody()}); a != nil && a.code != "lease_lost" {
		l.home.fail("%s acknowledges lease %s, which it gave back: %d %s", l.name, b.lease, a.status, a.body)
	}
}
