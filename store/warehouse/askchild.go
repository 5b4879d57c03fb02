package warehouse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// asking is one user's statement that a process runs.
type asking struct{ id int64 }

// Ask is Engine.Ask. It comes back when the child has: a statement that does not
// stop within AskGrace after ctx has ended, or each has failed, costs the child
// its life. A statement that meets the child's death gets a *Fault: FaultMemory or
// FaultCrashed if it ran alone, otherwise FaultInterrupted, for nobody knows whose
// fault it was.
func (c *Child) Ask(ctx context.Context, a Ask, each func(arrow.RecordBatch) error) (Reply, error) {
	body, err := writeAsk(a)
	if err != nil {
		return Reply{}, err
	}
	p, err := c.afterDrain(ctx)
	if err != nil {
		return Reply{}, err
	}
	me := &asking{id: c.askID.Add(1)}
	p.begin(me, c.how.MaxMemory)
	defer p.over(me)
	o, err := p.ask(ctx, me, body, each, c.how.AskGrace)
	var reply Reply
	if o.Reply != nil {
		reply = *o.Reply
	}
	if err == nil {
		return reply, o.Failed.err()
	}
	if consumer, ok := errors.AsType[*consumerError](err); ok {
		return reply, consumer.error
	}
	if ctx.Err() == nil && !p.alive() {
		return reply, p.reason().fault(me, c.how.MaxMemory)
	}
	return reply, p.broken(ctx, err)
}

// ask makes the call and waits until the child has come back from it.
func (p *process) ask(ctx context.Context, me *asking, body []byte, each func(arrow.RecordBatch) error, grace time.Duration) (o outcome, err error) {
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	// Until the child has taken the statement on, its end could not be waited for.
	patient := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
			p.kill(verdict{reason: reasonOverran, by: me})
		case <-call.Done():
		}
	})
	resp, err := p.post(call, "/ask?id="+strconv.FormatInt(me.id, 10), bytes.NewReader(body))
	patient()
	if err == nil {
		stop := context.AfterFunc(ctx, cancel)
		o, err = readRows(resp.Body, each)
		stop()
		_ = resp.Body.Close() // what is left of it does not matter
	}
	if err == nil || errors.Is(err, errUnsent) {
		return o, err
	}
	cancel() // the child notices that the connection is gone, and interrupts DuckDB
	select {
	case <-p.exited:
		return o, err
	default:
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer done()
	if _, waitErr := p.call(last, "/wait", []byte(strconv.FormatInt(me.id, 10)), nil); waitErr != nil {
		p.kill(verdict{reason: reasonOverran, by: me})
		<-p.exited
	}
	return o, err
}

// Statements that wait for the drain look again so often, and wait so long.
const (
	drainLook  = 20 * time.Millisecond
	drainFirst = 10 * time.Second
)

// afterDrain gives the running process. When a statement of a user's has cost the
// one before it, the drain goes first, if something waits for it: one that is sent
// again and again would keep it from ever ending.
func (c *Child) afterDrain(ctx context.Context) (*process, error) {
	for {
		p, err := c.process(ctx)
		if err != nil {
			return nil, err
		}
		if !p.drainFirst || p.applied.Load() || time.Since(p.born) > drainFirst || c.how.Behind == nil || !c.how.Behind() {
			return p, nil
		}
		select {
		case <-time.After(drainLook): // nobody announces that there is nothing to drain
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the drain: %w", ctx.Err())
		}
	}
}

// fault says what a statement is told that ran when its process was lost.
func (v verdict) fault(me *asking, limit int64) error {
	f := &Fault{Code: FaultInterrupted, Position: -1,
		Message: "the warehouse was started anew because of another statement, or from outside, or is being stopped; send this one again"}
	switch {
	case v.by != me:
	case v.reason == reasonMemory:
		f.Code = FaultMemory
		f.Message = fmt.Sprintf("the warehouse passed its limit of %d MiB while this statement ran; "+
			"ask for fewer rows or shorter lists at once", limit/mib)
	case v.reason == reasonCrashed:
		f.Code, f.Message = FaultCrashed, "the warehouse's process died while this statement ran"
	}
	return f
}

// begin notes that a statement runs. While one does, memory is watched.
func (p *process) begin(me *asking, limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks[me] = struct{}{}
	if !p.watching && limit > 0 {
		p.watching = true
		go p.watch(limit)
	}
}

func (p *process) over(me *asking) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asks, me)
}

// alone gives the one statement that runs; nil: there is none, or there are more.
// p.mu is held.
func (p *process) alone() *asking {
	if len(p.asks) != 1 {
		return nil
	}
	for a := range p.asks {
		return a
	}
	return nil
}

// watchEvery is how often memory is looked at: at some gigabytes a second that
// is some ten megabytes too late.
const watchEvery = 10 * time.Millisecond

// watch kills the process when it passes the limit, for as long as statements of
// users run.
func (p *process) watch(limit int64) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.exited:
			return
		case <-tick.C:
		}
		if p.resident() > limit {
			p.mu.Lock()
			by := p.alone()
			p.mu.Unlock()
			p.kill(verdict{reason: reasonMemory, by: by})
			return
		}
		p.mu.Lock()
		idle := len(p.asks) == 0
		if idle {
			p.watching = false
		}
		p.mu.Unlock()
		if idle {
			return
		}
	}
}
