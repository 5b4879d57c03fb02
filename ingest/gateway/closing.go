package gateway

import (
	"context"
	"net/http"

	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// closing is the end of an answer as it will be sent once the traces are stored.
type closing struct {
	// status and header are of an answer that has not begun.
	status int
	header http.Header
	// tail is what is still to be sent: the last events, or the whole body.
	tail []byte
	// response is everything that the harness got, tail included; nil: not kept.
	response []byte
	flags    []string
	// beat is a heartbeat for the time of storing; nil: none was made.
	beat []byte
}

// deliver is run, guarded: whatever panics, the outcome is had and the engine let go.
func (d *delivery) deliver(left context.Context) *outcome {
	if err := d.c.g.safely(d.c.ids[0], func() { d.run(left) }); err != nil {
		d.c.cancel(errPanicked)
		if d.outcome == nil {
			d.outcome = <-d.done
		}
		d.outcome.fault = faultOf(nil, err)
	}
	return d.outcome
}

// close makes the end of the answer, and says what the call's status is. cause is why it
// was cancelled; nil: it was not.
func (d *delivery) close(o *outcome, cause error) (cl closing, status trace.Status) {
	if status = o.status(cause); status == trace.StatusOK {
		if err := d.c.g.safely(d.c.ids[0], func() { d.closeWell(o, &cl) }); err != nil {
			o.fault = faultOf(nil, err)
		}
		status = o.status(cause)
	}
	if status != trace.StatusOK {
		cl = closing{}
		f := o.fault
		if f == nil {
			f = &turn.Fault{Status: http.StatusConflict, Code: turn.CodeAborted, Message: cause.Error()}
		}
		d.closeBadly(f, &cl)
	}
	d.o.keep(cl.tail)
	if d.o.over {
		cl.flags = append(cl.flags, "response_too_large")
	}
	cl.response = d.o.sent
	return cl, status
}

func (d *delivery) closeWell(o *outcome, cl *closing) {
	c, usage := d.c, o.counted()
	if !c.request.Stream {
		a := &turn.Answer{Head: c.head(), Usage: usage}
		a.Head.PromptTokens = usage.Prompt
		for i := range c.ids {
			choice := turn.Choice{Message: o.gather.Message(i), Refusal: o.gather.Refusal(i), Logprobs: o.gather.Logprobs(i), End: turn.End{Choice: i}}
			for _, e := range o.ends {
				if e.Choice == i {
					choice.End = e
				}
			}
			a.Choices = append(a.Choices, choice)
		}
		body, err := c.provider.Whole(c.request, a)
		if err != nil {
			o.fault = faultOf(nil, err)
			return
		}
		cl.status, cl.tail = http.StatusOK, body
		if f, ok := c.provider.(turn.WholeFlagger); ok {
			cl.flags = f.WholeFlags(c.request, a)
		}
		return
	}
	d.o.begin()
	d.start(usage.Prompt)
	if c.g.struggling.Load() > 0 {
		// The store is in trouble, so this may take long, and heartbeats cannot be
		// made behind the end.
		cl.beat = d.stream.Heartbeat(nil)
	}
	cl.tail = d.stream.End(d.takeBuf(), o.ends, usage)
	if f, ok := d.stream.(turn.Flagger); ok {
		cl.flags = f.Flags()
	}
}

// counted is the engine's usage, and where it says nothing that can be read the number of
// ids: a harness that is told 0 does not know when to compact.
func (o *outcome) counted() turn.Usage {
	u := o.usage
	if u.Prompt == nil && len(o.sampled) > 0 && o.sampled[0] != nil && o.sampled[0].PromptIDs != nil {
		n := int64(len(o.sampled[0].PromptIDs))
		u.Prompt = &n
	}
	if u.Completion != nil {
		return u
	}
	sum := int64(0)
	for _, s := range o.sampled {
		if s == nil || s.IDs == nil {
			return u
		}
		sum += int64(len(s.IDs))
	}
	u.Completion = &sum
	return u
}

// takeBuf is what was written and not sent, which then goes with the end.
func (d *delivery) takeBuf() []byte {
	buf := d.o.buf
	d.o.buf = nil
	return buf
}

func (d *delivery) closeBadly(f *turn.Fault, cl *closing) {
	if !d.o.begun {
		if !d.outcome.begun {
			d.o.id = "" // there will be no trace
		}
		cl.status, cl.header, cl.tail = d.c.g.faultBody(d.c.provider, f)
		return
	}
	err := d.c.g.safely(d.c.ids[0], func() {
		d.start(nil)
		cl.tail = d.stream.Fail(d.takeBuf(), f)
	})
	if err != nil {
		cl.tail = nil // the connection breaks without a word
	}
}
