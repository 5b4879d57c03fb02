package gateway

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// maxAttempts is how many engines one call tries.
const maxAttempts = 3

// sample announces a call, has an engine answer it, and gives the answer to out while
// it comes. It runs in a goroutine of its own, reads the engine alone, and returns when
// there is nothing more to come. It never panics.
func (c *call) sample(ctx context.Context, out *feed) *outcome {
	o := &outcome{}
	if err := c.g.safely(c.ids[0], func() { o.fault = c.attempt(ctx, out, o) }); err != nil {
		o.fault = faultOf(nil, err)
	}
	if o.ended.IsZero() {
		o.ended = c.g.now()
	}
	return o
}

func (c *call) attempt(ctx context.Context, out *feed, o *outcome) *turn.Fault {
	e, err := c.g.engines.Pick(c.model, c.affinity())
	if err != nil {
		return faultOf(context.Cause(ctx), err)
	}
	if err := c.begin(ctx, o); err != nil {
		return faultOf(context.Cause(ctx), err)
	}
	out.announce()
	fault := c.ask(ctx, e, out, o)
	if fault == nil {
		c.remember(o)
	}
	return fault
}

// ask has engines tried, one after the other, until one has begun to answer; then it
// reads that one to its end. nil: every choice came to its end.
func (c *call) ask(ctx context.Context, e sampler, out *feed, o *outcome) *turn.Fault {
	ec := c.engineCall()
	o.drift = c.beginDrift()
	var tried []string
	for {
		o.engine, o.kind = e.Name(), e.Kind()
		c.planSplice(ctx, e, ec, &o.drift)
		o.before = c.g.versionAt(ctx, e, c.model, versionAge)
		flags := len(o.flags)
		begun, fault := c.answer(ctx, e, ec, out, o)
		if fault != nil && !begun && ec.PromptIDs != nil && fault.Code != turn.CodeEngineUnreachable && context.Cause(ctx) == nil {
			// What continuity adds must not cost a call.
			o.attempts = append(o.attempts, attempt{o.engine, fault.Code, fault.Status})
			// Under another id: the first attempt may still be aborted by its own.
			again := *ec
			again.PromptIDs, again.TraceIDs = nil, append([]string{c.ids[0] + "-again"}, c.ids[1:]...)
			ec = &again
			o.drift.unsplice("refused")
			o.flags = o.flags[:flags] // nor is what was odd about it of this call's answer
			begun, fault = c.answer(ctx, e, ec, out, o)
		}
		if fault == nil {
			o.attempts = append(o.attempts, attempt{Engine: o.engine})
			return nil
		}
		o.attempts = append(o.attempts, attempt{o.engine, fault.Code, fault.Status})
		if begun || fault.Code != turn.CodeEngineUnreachable || len(o.attempts) >= maxAttempts || context.Cause(ctx) != nil {
			return fault
		}
		tried = append(tried, o.engine)
		next, err := c.g.engines.Pick(c.model, c.affinity(), tried...)
		if err != nil {
			return fault // of the engine that was tried: it tells more
		}
		c.g.log.Warn("engine unreachable; trying another", "engine", o.engine, "next", next.Name(), "err", fault)
		e = next
	}
}

// answer reads one engine's answer. begun: it gave something, so no other engine may be
// asked.
func (c *call) answer(ctx context.Context, e sampler, ec *engine.Call, out *feed, o *outcome) (begun bool, fault *turn.Fault) {
	// Nothing of an attempt before stays: its answer is not the call's.
	o.sampled, o.usage, o.rawRequest, o.rawResponse, o.firstToken = nil, turn.Usage{}, nil, nil, time.Time{}
	stop := c.limitFirstByte()
	defer stop()
	s, err := e.Do(ctx, ec)
	if err != nil {
		return false, faultOf(context.Cause(ctx), err)
	}
	defer func() {
		c.collect(s, o)
		c.complete(ctx, e, o)
		c.label(ctx, e, ec, o)
		if err := s.Close(); err != nil {
			c.g.log.Debug("close engine's answer", "engine", o.engine, "err", err)
		}
	}()
	out.accept()
	named := callIDs{traces: c.ids}
	for {
		p, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return begun, faultOf(context.Cause(ctx), err)
		}
		if !begun {
			begun = true
			stop()
		}
		o.ends = append(o.ends, p.Ends...)
		if named.fill(p.Deltas); named.minted && !slices.Contains(o.flags, flagCallIDs) {
			o.flags = append(o.flags, flagCallIDs)
		}
		for i := range p.Deltas {
			o.gathered(&p.Deltas[i], c.request.Stream)
		}
		if o.firstToken.IsZero() && len(p.Deltas) > 0 {
			o.firstToken = c.g.now()
		}
		if !c.request.Stream {
			continue
		}
		if err := out.put(ctx, &p); err != nil {
			return true, faultOf(context.Cause(ctx), err)
		}
	}
}

// gathered keeps what was said. Log-probs in the harness's own form go by: only an
// answer in one piece needs them later.
func (o *outcome) gathered(d *turn.Delta, streamed bool) {
	if streamed {
		light := *d
		light.Logprobs = nil
		o.gather.Add(light)
		return
	}
	o.gather.Add(*d)
}

// collect takes over what the engine says that it saw and sampled, however the answer
// ended.
func (c *call) collect(s answer, o *outcome) {
	o.sampled = make([]*engine.Sampled, len(c.ids))
	for i := range c.ids {
		o.sampled[i] = s.Sampled(i)
	}
	o.usage = s.Usage()
	o.rawRequest, o.rawResponse = s.Raw()
	if at := s.FirstToken(); !at.IsZero() {
		o.firstToken = at
	}
	o.ended = c.g.now()
}

// complete asks for the weights after the last token, for as long as that matters: an
// engine that told nothing before has nothing to compare.
func (c *call) complete(ctx context.Context, e sampler, o *outcome) {
	o.after.pushed = c.g.versions.At(c.model)
	if o.before.engine == nil && o.before.text == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), versionWait)
	defer cancel()
	o.after.engine, o.after.text = e.Version(ctx, 0)
}
