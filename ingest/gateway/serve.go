package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// maxChoices bounds n.
const maxChoices = 128

// admit makes a call of a request. The error is a *turn.Fault.
func (g *Gateway) admit(v *visit) (*call, error) {
	c := &call{g: g, provider: v.provider, caller: v.caller, body: v.incoming.Body, started: g.now()}
	var err error
	if wrong := g.safely("decode", func() { c.request, err = v.provider.Decode(v.incoming) }); wrong != nil {
		return nil, wrong
	}
	if err != nil {
		return nil, err
	}
	r := c.request
	if r.N < 0 || r.N > maxChoices {
		return nil, turn.Invalid("n", fmt.Sprintf("n is not between 1 and %d", maxChoices))
	}
	c.requested = r.Model
	if c.model, c.options = g.resolve(r.Model); c.options == nil {
		return nil, g.noModel(r.Model)
	}
	if c.agent, err = agentOf(v.incoming.Header, r); err != nil {
		return nil, err
	}
	if line := billingLine(r); line != "" && g.recents.unstable(c.caller.rollout, c.agent.thread, line) && !c.options.StripBillingLine {
		g.metrics.unstablePrefix()
	}
	c.params = prepare(r, c.options)
	if c.tools, err = toolsHash(r.Tools); err != nil {
		return nil, turn.Invalid("tools", "the tools cannot be written as JSON: "+err.Error())
	}
	c.headers = kept(v.incoming.Header)
	for range r.Choices() {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make trace id: %w", err)
		}
		c.ids = append(c.ids, id.String())
	}
	return c, nil
}

func (g *Gateway) resolve(model string) (string, *settings.Model) {
	var served []string
	for _, m := range g.engines.Models() {
		served = append(served, m.Name)
	}
	return g.settings.Resolve(model, served)
}

// serve answers one call and stores what it left. A returned error was not answered.
func (g *Gateway) serve(v *visit, s *slot, held *share) error {
	c, err := g.admit(v)
	if err != nil {
		return err
	}
	held.shrink(waiting)
	// The call's own life: it ends for causes of ours, never because a context did.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(v.r.Context()))
	c.cancel = cancel
	defer cancel(nil)
	g.running.Store(c, struct{}{})
	defer g.running.Delete(c)
	if limit := g.settings.Limits.Call; limit > 0 {
		defer time.AfterFunc(limit, func() { cancel(errCallTime) }).Stop()
	}
	if g.aborting.Load() {
		cancel(errStopping) // it slipped in while those that run were cancelled
	}
	d := &delivery{c: c, o: newOut(v.w, g.settings.Limits.Patience, c.ids[0], g.settings.Bodies == settings.BodiesHarness), in: newFeed(), done: make(chan *outcome, 1)}
	d.o.kind = contentType(c.request)
	defer d.o.to.Done()
	go func() { d.done <- c.sample(ctx, d.in) }()
	// From here on a panic must not keep the call from its traces. The link is looked for
	// while the store announces the call: hashing a long history takes time.
	mine := &earlier{}
	_ = g.safely(c.ids[0], func() { mine = g.link(c, v) })
	o := d.deliver(v.r.Context())
	closing, status := d.close(o, context.Cause(ctx))
	broke, durable, gone := true, false, false
	defer func() {
		g.recents.end(c.caller.rollout, mine, fateFor(o, status, broke))
		if durable && status == trace.StatusOK && (gone || d.o.broken != nil) {
			g.undelivered(c)
		}
	}()
	_ = g.safely(c.ids[0], func() { g.ended(c, o, status) })
	stored := g.store(c, o, status, closing, s, held)
	lost := d.awaitStored(v.r.Context(), stored, closing.beat)
	durable, gone = o.begun && lost == nil, v.r.Context().Err() != nil
	err = d.finish(closing, status, lost)
	// A harness that left while the trace was stored has no answer: what it sends next
	// is that call again.
	broke = lost != nil || d.o.broken != nil || v.r.Context().Err() != nil
	return err
}

// link finds the call that this one repeats, and ends that one if it is to be ended.
func (g *Gateway) link(c *call, v *visit) *earlier {
	c.hash = hashOf(v.route.api, v.route.path, c.body)
	mine, to := g.recents.begin(c.caller.rollout, c.ids[0], c.agent.thread+"\x00"+c.hash, c.agent.retry, func() { c.cancel(errSuperseded) })
	c.link = to
	if to.running != nil && c.agent.retry > 0 && g.settings.Retries.Marked == settings.MarkedCancel {
		to.running()
	}
	return mine
}

func fateFor(o *outcome, s trace.Status, broke bool) fate {
	switch {
	case !o.begun:
		return fateNever
	case s == trace.StatusOK && !broke:
		return fateOK
	}
	return fateBroke
}

// ended counts a call, and tells of one that did not end well.
func (g *Gateway) ended(c *call, o *outcome, status trace.Status) {
	if !o.begun {
		// Nothing names its id: there will be no trace of it.
		g.refused(c.provider.API(), c.caller.rollout, c.headers["x-client-request-id"], o.fault)
		return
	}
	g.metrics.call(c, o, status)
	if status != trace.StatusOK {
		g.log.Info("gateway: call did not end well", "trace", c.ids[0], "rollout", c.caller.rollout, "api", c.provider.API(), "model", c.model,
			"engine", o.engine, "status", status, "err", o.fault)
	}
}

// undelivered tells of an answer whose trace was stored as ok before it showed that
// nobody reads it. A trace does not change any more, so it cannot say so itself.
func (g *Gateway) undelivered(c *call) {
	g.metrics.undelivered.Inc()
	g.log.Info("gateway: answer not delivered; its trace was stored as ok", "trace", c.ids[0], "rollout", c.caller.rollout, "api", c.provider.API())
}

// contentType is that of a stream.
func contentType(r *turn.Request) string {
	if r.Array {
		return "application/json"
	}
	return "text/event-stream"
}

// store begins to store the call's traces and gives how that ended. It goes on when the
// harness leaves and when the handler does; the call counts as open until it is done.
func (g *Gateway) store(c *call, o *outcome, status trace.Status, cl closing, s *slot, held *share) <-chan error {
	stored := make(chan error, 1)
	if !o.begun {
		stored <- nil
		return stored
	}
	var traces []*trace.Trace
	if g.safely(c.ids[0], func() { traces = c.record(o, status, cl.response, cl.flags) }) != nil {
		traces = c.bare(o)
	}
	s.kept = true
	held.use()
	go func() {
		defer held.drop()
		var err error
		if wrong := g.safely(c.ids[0], func() { err = g.keep(g.life, traces) }); wrong != nil {
			err = wrong
		}
		if err == nil {
			g.metrics.stored(traces)
		}
		// The place is free before the harness has its end: it may call again at once.
		s.free()
		stored <- err
	}()
	return stored
}

// finish sends the closing of an answer, now that its traces are durable. lost says
// that they are not.
func (d *delivery) finish(cl closing, status trace.Status, lost error) error {
	switch {
	case lost != nil && !errors.Is(lost, errLost):
		// Not durable, and it may yet become so: the harness must not take this answer
		// for a whole one.
		f := faultOf(nil, lost)
		if !d.o.begun {
			return &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeStorage, RetryAfter: storeAgain,
				Message: "overloaded: the call could not be stored; send it again later", Cause: f}
		}
		panic(http.ErrAbortHandler)
	case status == trace.StatusClientGone && d.o.broken != nil:
		panic(http.ErrAbortHandler) // nobody reads
	case !d.o.begun:
		if err := d.o.whole(cl.status, cl.header, cl.tail); err != nil {
			d.c.g.log.Debug("gateway: answer not delivered", "trace", d.c.ids[0], "err", err)
		}
		return nil
	}
	err := d.o.write(cl.tail)
	if err != nil || status != trace.StatusOK {
		// A stream that did not end well must not end cleanly: some harnesses would
		// take it for the whole answer.
		panic(http.ErrAbortHandler)
	}
	return nil
}
