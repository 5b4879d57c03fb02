package gateway

import (
	"context"
	"net/http"
	"time"

	"icecore/ingest/gateway/sse"
	"icecore/ingest/gateway/turn"
)

// delivery writes one answer to the harness, in the handler's goroutine, while another
// one reads the engine.
type delivery struct {
	c  *call
	o  *out
	in *feed
	// done gives the outcome once nothing more comes.
	done chan *outcome
	// outcome is set once it was taken from done.
	outcome *outcome
	// stream is set from the answer's first event on.
	stream turn.Stream
	beat   *time.Timer
	spare  []turn.Delta
}

// run delivers until the engine has ended and the outcome is there. The closing of the
// answer is not written yet: the traces come first.
func (d *delivery) run(left context.Context) {
	every := d.c.g.settings.Limits.Heartbeat
	d.beat = time.NewTimer(every)
	defer d.beat.Stop()
	gone := left.Done()
	for {
		select {
		case d.outcome = <-d.done:
			d.pass()
			if left.Err() != nil {
				d.c.cancel(errGone)
			}
			return
		case <-d.in.news:
			d.pass()
			d.beat.Reset(every)
		case <-d.beat.C:
			d.heartbeat()
			d.beat.Reset(every)
		case <-gone:
			d.c.cancel(errGone)
			gone = nil // the outcome comes soon
		}
	}
}

// pass writes what waits.
func (d *delivery) pass() {
	deltas, accepted, prompt := d.in.take(d.spare)
	d.spare = deltas
	if !d.c.request.Stream || !accepted && len(deltas) == 0 {
		return
	}
	d.o.begin()
	// The first event tells the prompt's length, so it waits for the engine's first
	// word, or for the first heartbeat.
	if len(deltas) > 0 || prompt != nil {
		d.start(prompt)
	}
	for i := range deltas {
		d.o.buf = d.stream.Delta(d.o.buf, deltas[i])
	}
	d.flush()
}

// start writes the first event, once.
func (d *delivery) start(prompt *int64) {
	if d.stream != nil {
		return
	}
	head := d.c.head()
	head.PromptTokens = prompt
	d.stream = d.c.provider.Stream(d.c.request, head)
	d.o.buf = d.stream.Start(d.o.buf)
}

// heartbeat shows a harness that waits that its answer goes on. Where the engine has
// not accepted yet, the answer begins with it: from then on faults are events. It does
// not begin, and name a trace, before it is sure that the trace comes.
func (d *delivery) heartbeat() {
	if !d.c.request.Stream || !d.in.isAnnounced() {
		return
	}
	d.o.begin()
	d.start(nil)
	d.o.buf = d.stream.Heartbeat(d.o.buf)
	d.flush()
}

// flush sends what was written. A harness that takes nothing has left.
func (d *delivery) flush() {
	if err := d.o.flush(); err != nil {
		d.c.cancel(errGone)
	}
}

// awaitStored waits until the traces are durable, and shows the harness that it does.
// The closing of the answer is in the traces already, so the events of a heartbeat
// cannot be made any more: beat was made before, or is a comment.
func (d *delivery) awaitStored(left context.Context, stored <-chan error, beat []byte) error {
	if beat == nil {
		beat = sse.Comment(nil, "storing")
	}
	every, patience := d.c.g.settings.Limits.Heartbeat, d.c.g.settings.Limits.CaptureWait
	t := time.NewTimer(every)
	defer t.Stop()
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case err := <-stored:
			return err
		case <-late:
			return &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeStorage, RetryAfter: storeAgain, Message: "overloaded: the call could not be stored in time"}
		case <-t.C:
			if d.o.begun && left.Err() == nil {
				d.o.unrecorded(beat)
			}
			t.Reset(every)
		}
	}
}
