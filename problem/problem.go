// Package problem answers HTTP requests that cannot be served, as
// application/problem+json (RFC 9457) with a stable code.
package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"
)

// Problem is one such answer. It is an error, so that handlers return it.
type Problem struct {
	// Type is a URI reference that names the code's entry in the docs.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   Code   `json:"code"`
	Detail string `json:"detail,omitempty"`
	// Field names the parameter or field that is at fault, if one is.
	Field string `json:"field,omitempty"`
	// Offset is the byte of the request body at which reading stopped.
	Offset *int64 `json:"offset,omitempty"`
	// Position, Line and Column are where in a statement of SQL a fault was
	// noticed: bytes from 0, lines and characters from 1.
	Position *int `json:"position,omitempty"`
	Line     int  `json:"line,omitempty"`
	Column   int  `json:"column,omitempty"`
	// RetryAfter is sent as the header of that name, in seconds.
	RetryAfter int `json:"-"`
	// Cause is logged and never sent.
	Cause error `json:"-"`
}

// Error gives code and detail.
func (p *Problem) Error() string { return fmt.Sprintf("%s: %s", p.Code, p.Detail) }

// Unwrap gives the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// New makes a Problem of a code. Status and Retry-After are the catalogue's; a
// code that is not in it is the server's own fault.
func New(code Code, detail string) *Problem {
	e := Find(code)
	if e == nil {
		return Internal(fmt.Errorf("answer with code %q (%s): it is not in the catalogue", code, detail))
	}
	return &Problem{Type: Type(code), Title: e.Title(), Status: e.Status, Code: code, Detail: detail, RetryAfter: e.RetryAfter}
}

// Type is the URI that stands for a code.
func Type(code Code) string { return "urn:icecore:error:" + string(code) }

// BadParameter says that a query parameter or path element is wrong.
func BadParameter(name, detail string) *Problem {
	return New(InvalidParameter, name+": "+detail).At(name)
}

// At names the field that is at fault.
func (p *Problem) At(field string) *Problem {
	p.Field = field
	return p
}

// Because keeps cause for the log.
func (p *Problem) Because(cause error) *Problem {
	p.Cause = cause
	return p
}

// Internal hides cause from the client and keeps it for the log.
func Internal(cause error) *Problem {
	return New(InternalFault, "the server failed; its log says why").Because(cause)
}

// Handler is Echo's error handler. An error after the first byte of an answer
// must not end it cleanly: the connection is broken instead.
func Handler(log *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		if c.Response().Committed {
			level := slog.LevelError
			if c.Request().Context().Err() != nil {
				level = slog.LevelDebug // the client left
			}
			log.Log(c.Request().Context(), level, "answer broken off", "path", c.Request().URL.Path, "err", err)
			panic(http.ErrAbortHandler)
		}
		p := of(err)
		if allow := c.Response().Header().Get(echo.HeaderAllow); p.Code == MethodNotAllowed && allow != "" {
			p.Detail = "this path does not take " + c.Request().Method + ", but " + allow
		}
		// What failed because the client has left is nothing to look into.
		left := c.Request().Context().Err() != nil
		if p.Status >= http.StatusInternalServerError && p.RetryAfter == 0 && !left {
			log.Error("request failed", "method", c.Request().Method, "path", c.Request().URL.Path, "err", err, "cause", p.Cause)
		}
		if p.RetryAfter > 0 {
			c.Response().Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
		}
		c.Response().Header().Set(echo.HeaderContentType, "application/problem+json")
		c.Response().WriteHeader(p.Status)
		if c.Request().Method == http.MethodHead {
			return
		}
		if err := json.NewEncoder(c.Response()).Encode(p); err != nil {
			log.Debug("problem not delivered", "err", err)
		}
	}
}

func of(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	var h *echo.HTTPError
	if errors.As(err, &h) {
		// Echo itself finds no other faults: bodies and parameters are read here.
		switch h.Code {
		case http.StatusNotFound:
			return New(NoSuchPath, "there is nothing at this path")
		case http.StatusMethodNotAllowed:
			return New(MethodNotAllowed, "this path does not take this method")
		}
	}
	return Internal(err)
}
