package httpbody

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"icecore/problem"
	"icecore/wire"
)

// Read reads a request's body and undoes its content coding; most bounds it,
// inflated, in bytes. patience is how long the client may send nothing. The error
// is the answer.
func Read(c echo.Context, patience time.Duration, most int64) ([]byte, error) {
	return ReadTo(c, patience, nil, most, nil)
}

// ReadTo is Read into buf, which it overwrites and grows. grow, when set, is told
// by how many bytes; its error ends the reading and comes back wrapped.
func ReadTo(c echo.Context, patience time.Duration, buf []byte, most int64, grow func(bytes int) error) ([]byte, error) {
	rc := http.NewResponseController(c.Response())
	var refused error
	counted := grow
	if grow != nil {
		counted = func(n int) error {
			refused = grow(n)
			return refused
		}
	}
	body, err := wire.InflateTo(buf, &reader{c.Request().Body, rc, patience}, c.Request().Header.Get(echo.HeaderContentEncoding), most, counted)
	if err == nil {
		// The deadline was for the body; the answer may take longer. (A body that
		// did not come keeps it: the server reads on to its end.)
		_ = rc.SetReadDeadline(time.Time{})
		return body, nil
	}
	if refused != nil {
		return nil, err
	}
	if e, ok := errors.AsType[*wire.EnvelopeError](err); ok {
		// What is left of the body is not read, so the connection must not be used
		// again.
		c.Response().Header().Set(echo.HeaderConnection, "close")
		return nil, Problem(e)
	}
	return nil, problem.New(problem.BodyUnreadable, "the request body ended before it was complete").Because(err)
}

// Problem answers a body that cannot be read as a whole.
func Problem(e *wire.EnvelopeError) *problem.Problem {
	p := problem.New(problem.Code(e.Code), e.Error())
	if e.Offset >= 0 {
		p.Offset = &e.Offset
	}
	return p
}

// reader moves the deadline on with each read.
type reader struct {
	r        io.Reader
	rc       *http.ResponseController
	patience time.Duration
}

// Read implements io.Reader.
func (p *reader) Read(b []byte) (int, error) {
	// A writer that cannot set deadlines (a test's) just waits.
	_ = p.rc.SetReadDeadline(time.Now().Add(p.patience))
	return p.r.Read(b)
}
