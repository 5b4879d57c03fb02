package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

var errBeginTime = errors.New("the store did not take the call in time")

// begin makes the intents durable. While they cannot be, the call waits, though not for
// ever: then it is refused. Nothing is lost by that, since no engine was asked.
func (c *call) begin(ctx context.Context, o *outcome) error {
	defer c.g.metrics.beginTime(c.g.now())()
	tries, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var late <-chan time.Time
	if limit := c.g.settings.Limits.BeginTimeout; limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	a := &announcement{g: c.g, ids: c.ids, rollout: c.caller.rollout}
	started := c.started.UnixMicro()
	for _, id := range c.ids {
		a.intents = append(a.intents, &trace.Intent{TraceID: id, RolloutID: c.caller.rollout, StartedAt: &started})
	}
	ended := make(chan error, 1)
	go func() { ended <- a.announce(tries) }()
	var err error
	select {
	case err = <-ended:
		if err == nil {
			o.intents, o.begun = a.intents, true
			return nil
		}
		ended <- err
	case <-late:
		giveUp()
		c.g.metrics.captureFailed("begin_timeout")
		err = errBeginTime
	case <-ctx.Done():
		giveUp()
		err = context.Cause(ctx)
	}
	a.withdraw(ended)
	if errors.Is(err, ErrRefused) {
		return &turn.Fault{Status: http.StatusInternalServerError, Code: turn.CodeStorage, Message: "the call cannot be announced to the store", Cause: err}
	}
	return &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeStorage, RetryAfter: storeAgain,
		Message: "overloaded: the store takes nothing now; send this call again later", Cause: err}
}

// announcement is a call on its way into the store. One goroutine after the other has it,
// and has it longer than the call is there: the call's request is not in it.
type announcement struct {
	g       *Gateway
	ids     []string
	rollout string
	intents []*trace.Intent
	// unsure: a try failed, and the intents may be durable nevertheless.
	unsure bool
}

// announce tries until the intents are durable, until the store says that it is of no use
// now, or until ctx ends.
func (a *announcement) announce(ctx context.Context) error {
	g, wait := a.g, newBackoff()
	for {
		// ctx ends the wait for the store; what the store has begun it ends.
		var err error
		if wrong := g.safely(a.ids[0], func() { err = g.capture.Begin(ctx, a.intents) }); wrong != nil {
			err = wrong
		}
		if err == nil {
			return nil
		}
		a.unsure = a.unsure || !errors.Is(err, ErrNotNow)
		g.metrics.captureFailed("begin")
		g.log.Warn("announce call failed", "rollout", a.rollout, "err", err)
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrNotNow) || !wait.sleep(ctx) {
			return err
		}
	}
}

// withdraw takes back what may be durable, once announcing has ended: else the rollout
// would wait for a call that never was. It goes on when the harness has its answer.
func (a *announcement) withdraw(ended <-chan error) {
	g := a.g
	g.open.Add(1) // as the call itself still does
	go func() {
		defer g.open.Done()
		if err := <-ended; err != nil && !a.unsure {
			return
		}
		for wait := newBackoff(); ; {
			var err error
			if wrong := g.safely(a.ids[0], func() { err = g.capture.Withdraw(g.life, a.intents) }); wrong != nil {
				err = wrong
			}
			if err == nil {
				return
			}
			g.metrics.captureFailed("withdraw")
			if !wait.sleep(g.life) {
				g.log.Error("a call was refused, and its announcement may have stayed: its rollout is incomplete",
					"call", a.ids, "rollout", a.rollout, "err", err)
				return
			}
		}
	}()
}
