package ingest

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"icecore/httpbody"
	"icecore/problem"
)

// gate bounds what ingest holds: open requests, and the bytes of their bodies.
type gate struct {
	opts Options
	open atomic.Int64
	held atomic.Int64
	pool sync.Pool
}

// enter admits a request or says that too many are open.
func (g *gate) enter() error {
	if g.open.Add(1) > int64(g.opts.MaxOpen) {
		g.open.Add(-1)
		return problem.New(problem.TooManyRequests, "too many ingest requests are open; send this one again later")
	}
	return nil
}

func (g *gate) leave() { g.open.Add(-1) }

var errBudget = errors.New("too many request bytes are held")

// body is an inflated request body and what it counts for in the gate.
type body struct {
	g     *gate
	bytes []byte
	held  int64
}

// grow counts n more bytes; it fails when the gate has no room for them.
func (b *body) grow(n int) error {
	if b.g.held.Add(int64(n)) > b.g.opts.MaxBufferedBytes {
		b.g.held.Add(-int64(n))
		return errBudget
	}
	b.held += int64(n)
	return nil
}

// maxPooled keeps rare large buffers from staying around.
const maxPooled = 8 << 20

// release ends the request: it gives buffer and count back. Decoded items must
// not refer to it.
func (b *body) release() {
	b.g.leave()
	b.g.held.Add(-b.held)
	b.held = 0
	if cap(b.bytes) <= maxPooled {
		buf := b.bytes[:0]
		b.g.pool.Put(&buf)
	}
	b.bytes = nil
}

// read admits a request and inflates its body, within all limits.
func (g *gate) read(c echo.Context) (*body, error) {
	if err := g.enter(); err != nil {
		return nil, err
	}
	b := &body{g: g}
	var buf []byte
	if p, ok := g.pool.Get().(*[]byte); ok {
		buf = *p
	}
	if err := b.grow(cap(buf)); err != nil {
		buf = nil
	}
	inflated, err := httpbody.ReadTo(c, g.opts.ReadTimeout, buf, g.opts.MaxRequestBytes, b.grow)
	if err == nil {
		b.bytes = inflated
		return b, nil
	}
	b.release()
	if errors.Is(err, errBudget) {
		return nil, problem.New(problem.TooManyBytes, "too many request bytes are in work; send this request again later")
	}
	return nil, err
}
