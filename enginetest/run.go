package enginetest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"
)

// piece is what one choice goes on by: a chunk of a streamed answer.
type piece struct {
	*answer
	from, to int // ids
	text     string
	deltas   []delta
	finish   string // set in the choice's last
	apart    bool   // the finish stands in a chunk of its own
}

// serve samples and answers.
func (c *call) serve(w http.ResponseWriter, d dialect) {
	out := &outlet{c: c, w: w, d: d, deaf: c.script.fault(c.attempt, c.req.Stream, "deaf") != nil}
	err := c.script.Time.Headers.pass(c.ctx)
	if err == nil {
		err = c.sleep(time.Duration(c.script.Time.HeadersMS) * time.Millisecond)
	}
	if err == nil {
		err = c.e.control.pass(c.ctx, false)
	}
	if err == nil && c.req.Stream {
		err = out.start()
	}
	if err == nil {
		err = c.sleep(time.Duration(c.script.Time.FirstByteMS) * time.Millisecond)
	}
	if err == nil {
		err = c.sample(out)
	}
	var f *faulted
	switch cause := context.Cause(c.ctx); {
	case err == nil:
		out.finish("done")
	case errors.As(err, &f):
		out.fail(f.Fault)
	case errors.Is(cause, errAborted):
		out.abort()
	case errors.Is(cause, errRestarted):
		c.close("restart")
		panic(http.ErrAbortHandler)
	default:
		c.close("client_gone")
		panic(http.ErrAbortHandler)
	}
}

// sample draws ids, choice by choice in turn, and hands them on.
func (c *call) sample(out *outlet) error {
	t := &c.script.Time
	f := c.script.fault(c.attempt, c.req.Stream, "cut_clean", "cut_broken", "error_event", "abort")
	for round := 0; ; round++ {
		more := false
		for _, a := range c.answers {
			from := int(a.sampled.Load())
			if from == len(a.ids) && (from > 0 || round > 0) {
				continue
			}
			if f != nil && from >= f.At && a.index == 0 {
				return &faulted{f}
			}
			to := c.next(from, len(a.ids), round, f)
			if err := c.wait(t, from, to == len(a.ids)); err != nil {
				return err
			}
			c.weigh(a, from)
			a.sampled.Store(int64(to))
			if err := out.piece(c.cut(a, from, to)); err != nil {
				return err
			}
			more = more || to < len(a.ids)
		}
		if !more {
			break
		}
	}
	if f != nil {
		return &faulted{f} // At lies behind the end: after the last id
	}
	return nil
}

// next is where the chunk that begins at from ends. What happens at an id happens
// between chunks.
func (c *call) next(from, end, round int, f *Fault) int {
	size := 1
	if sizes := c.script.Chunks.Sizes; len(sizes) > 0 {
		size = max(1, sizes[round%len(sizes)])
	}
	to := min(from+size, end)
	marks := []int{c.script.Weights.BumpAt, c.script.Time.StallAt}
	if f != nil {
		marks = append(marks, f.At)
	}
	for _, m := range marks {
		if m > from && m < to {
			to = m
		}
	}
	if c.script.Time.NeverEnds && to == end && from < end-1 {
		to = end - 1
	}
	return to
}

// wait lets pass what has to before the chunk at from.
func (c *call) wait(t *Time, from int, last bool) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if err := t.Gate.pass(c.ctx); err != nil {
		return err
	}
	d := c.e.options.Delay + time.Duration(t.TokenMS)*time.Millisecond
	if t.StallMS > 0 && from == t.StallAt {
		d += time.Duration(t.StallMS) * time.Millisecond
	}
	if err := c.sleep(d); err != nil {
		return err
	}
	if t.NeverEnds && last {
		<-c.ctx.Done()
		return c.ctx.Err()
	}
	return c.e.control.pass(c.ctx, true)
}

// weigh notes which weights sample from here on.
func (c *call) weigh(a *answer, from int) {
	if w := c.script.Weights; w.BumpAt > 0 && from >= w.BumpAt && a.index == 0 && c.state.bumped.CompareAndSwap(false, true) {
		c.e.SetVersion(w.BumpTo)
	}
	v := c.e.Version()
	if n := len(a.versions); n == 0 || a.versions[n-1].Version != v {
		a.versions = append(a.versions, VersionAt{Start: from, Version: v})
	}
	if from == 0 && a.index == 0 {
		c.e.ledger.change(c.entry, false, func(entry *Entry) { entry.First = time.Now() })
	}
}

// cut makes the piece of ids[from:to], and takes its text apart.
func (c *call) cut(a *answer, from, to int) *piece {
	p := &piece{answer: a, from: from, to: to}
	last := to == len(a.ids)
	p.text = a.show(from, to, last)
	p.deltas = a.parser.push(p.text)
	if last {
		p.deltas = append(p.deltas, a.parser.end()...)
		if a.finish == "stop" && a.parser.calls > 0 {
			a.finish = "tool_calls"
		}
		p.finish = a.finish
	}
	if c.script.Chunks.ArgumentsAtEnd {
		p.deltas = a.keep(p.deltas, last)
	}
	a.whole.add(p.deltas)
	return p
}

// keep holds arguments back until the next call opens or the answer ends.
func (a *answer) keep(deltas []delta, last bool) (out []delta) {
	flush := func() {
		if a.kept.arguments != "" {
			out = append(out, delta{call: &callDelta{index: a.kept.index, arguments: a.kept.arguments}})
		}
		a.kept = callDelta{}
	}
	for _, d := range deltas {
		if d.call == nil {
			out = append(out, d)
			continue
		}
		if d.call.id != "" {
			flush()
			out = append(out, d)
			continue
		}
		a.kept.index = d.call.index
		a.kept.arguments += d.call.arguments
	}
	if last {
		flush()
	}
	return out
}

// sampled is what was sampled until now. The ledger's lock is held.
func (c *call) sampled() []Sampled {
	out := make([]Sampled, len(c.answers))
	for i, a := range c.answers {
		n := len(a.drawn())
		out[i] = Sampled{IDs: a.drawn(), Logprobs: a.logprobs[:n:n], Sent: int(a.sent.Load())}
	}
	return out
}

// planned is what is going to be sampled if nothing comes between.
func (c *call) planned() []Sampled {
	out := make([]Sampled, len(c.answers))
	for i, a := range c.answers {
		out[i] = Sampled{IDs: a.ids, Logprobs: a.logprobs}
	}
	return out
}

// close writes the ledger: nothing is sampled any more.
func (c *call) close(ended string) {
	c.e.ledger.change(c.entry, true, func(entry *Entry) {
		entry.Choices = c.sampled()
		for i, a := range c.answers {
			entry.Choices[i].Versions = slices.Clone(a.versions)
			if ended != "client_gone" {
				entry.Choices[i].Finish = a.finish
			}
		}
		entry.call = nil
		entry.Ended, entry.Finished = ended, time.Now()
		if entry.Status == 0 {
			entry.Status = http.StatusOK
		}
	})
}
