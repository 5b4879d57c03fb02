package enginetest

import (
	"net/http"
	"strconv"
)

// outlet is the connection of one call.
type outlet struct {
	c      *call
	w      http.ResponseWriter
	d      dialect
	buf    []byte
	chunks int
	deaf   bool // goes on when the client has left
	gone   bool // and it has
}

func (o *outlet) header(kind string) {
	h := o.w.Header()
	h.Set("Content-Type", kind)
	h.Set("X-Request-Id", o.c.id)
	if name := o.c.script.Weights.Header; name != "" {
		h.Set(name, o.c.opened)
	}
}

// start answers the headers of a stream and what stands before the first id.
func (o *outlet) start() error {
	o.header("text/event-stream; charset=utf-8")
	o.w.WriteHeader(http.StatusOK)
	return o.write(o.d.head(o.buf[:0], o.c))
}

// piece sends a chunk, or keeps it for the whole answer.
func (o *outlet) piece(p *piece) error {
	if !o.c.req.Stream {
		return nil
	}
	b := o.buf[:0]
	ch := &o.c.script.Chunks
	if ch.Comments {
		b = append(b, ": a comment\n\n"...)
	}
	b = o.d.piece(b, o.c, p)
	o.chunks++
	if ch.EmptyEvery > 0 && o.chunks%ch.EmptyEvery == 0 {
		b = o.d.piece(b, o.c, &piece{answer: p.answer, from: p.to, to: p.to})
	}
	if err := o.write(b); err != nil || o.gone {
		return err
	}
	p.sent.Store(int64(p.to))
	return nil
}

// write sends b at once, as events or in small pieces.
func (o *outlet) write(b []byte) error {
	o.buf = b
	if o.c.script.Chunks.Lines == "crlf" {
		b = crlf(b)
	}
	size := o.c.script.Chunks.Bytes
	if size <= 0 {
		size = len(b)
	}
	rc := http.NewResponseController(o.w)
	for len(b) > 0 {
		n := min(size, len(b))
		_, err := o.w.Write(b[:n])
		if err == nil {
			err = rc.Flush()
		}
		if err != nil {
			if o.gone = true; o.deaf {
				return nil
			}
			return err //nolint:wrapcheck // looked at by nobody: the client has left
		}
		b = b[n:]
	}
	return nil
}

// finish ends an answer well, as far as the script lets it. The ledger is written
// before the answer's end is.
func (o *outlet) finish(ended string) {
	c := o.c
	odd := c.script.fault(c.attempt, c.req.Stream, "no_finish", "done_twice", "no_done")
	if odd != nil && ended == "done" {
		ended = odd.Kind
	}
	if !c.req.Stream {
		for _, a := range c.answers {
			a.sent.Store(a.sampled.Load())
		}
	}
	c.close(ended)
	var err error
	if c.req.Stream {
		b := o.d.tail(o.buf[:0], c)
		done := []byte("data: [DONE]\n\n")
		switch {
		case odd == nil || odd.Kind == "no_finish":
			b = append(b, done...)
		case odd.Kind == "done_twice":
			b = append(append(b, done...), done...)
		}
		err = o.write(b)
	} else {
		o.header("application/json")
		b := o.d.whole(o.buf[:0], c)
		o.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		_, err = o.w.Write(b)
	}
	if err != nil || o.gone {
		c.e.ledger.change(c.entry, true, func(entry *Entry) { entry.Ended = "client_gone" })
	}
}

// abort ends every choice with finish abort, as the engine was told.
func (o *outlet) abort() {
	for _, a := range o.c.answers {
		n := int(a.sampled.Load())
		if n == len(a.ids) && n > 0 {
			continue
		}
		a.finish = "abort"
		p := &piece{answer: a, from: n, to: n, finish: "abort", apart: true}
		if o.c.script.fault(o.c.attempt, o.c.req.Stream, "repeat_last") != nil && n > 0 {
			p.from = n - 1
		}
		p.deltas = a.parser.end()
		a.whole.add(p.deltas)
		if o.c.req.Stream && o.write(o.d.piece(o.buf[:0], o.c, p)) != nil {
			break // found out again below
		}
	}
	o.finish("aborted")
}

// fail ends an answer as a fault wants it.
func (o *outlet) fail(f *Fault) {
	c := o.c
	switch f.Kind {
	case "abort":
		o.abort()
		return
	case "error_event":
		status, message := f.Status, f.Message
		if status == 0 {
			status = http.StatusInternalServerError
		}
		if message == "" {
			message = "scripted error event"
		}
		c.close(f.Kind)
		if !c.req.Stream {
			writeJSON(o.w, status, errorBody(status, message))
			return
		}
		_ = o.write(append(o.d.event(o.buf[:0], c, status, message), "data: [DONE]\n\n"...)) // nobody to tell
		return
	}
	c.close(f.Kind)
	if !c.req.Stream {
		o.header("application/json")
		b := o.d.whole(o.buf[:0], c)
		if f.Kind == "cut_broken" {
			o.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		}
		_ = o.write(b[:len(b)/2])
	}
	if f.Kind == "cut_broken" {
		panic(http.ErrAbortHandler)
	}
}

func crlf(b []byte) []byte {
	out := make([]byte, 0, len(b)+8)
	for _, c := range b {
		if c == '\n' {
			out = append(out, '\r')
		}
		out = append(out, c)
	}
	return out
}
