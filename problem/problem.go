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
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
	// Field names the parameter or field that is at fault, if one is.
	Field string `json:"field,omitempty"`
	// Offset is the byte of the request body at which reading stopped.
	Offset *int64 `json:"offset,omitempty"`
	// RetryAfter is sent as the header of that name, in seconds.
	RetryAfter int `json:"-"`
	// Cause is logged and never sent.
	Cause error `json:"-"`
}

// Error gives code and detail.
func (p *Problem) Error() string { return fmt.Sprintf("%s: %s", p.Code, p.Detail) }

// Unwrap gives the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// New makes a Problem.
func New(status int, code, detail string) *Problem {
	return &Problem{Type: "urn:icecore:error:" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// BadParameter says that a query parameter or path element is wrong.
func BadParameter(name, detail string) *Problem {
	p := New(http.StatusBadRequest, "invalid_parameter", name+": "+detail)
	p.Field = name
	return p
}

// Busy says that the request may be sent again after some seconds.
func Busy(status int, code, detail string, seconds int) *Problem {
	p := New(status, code, detail)
	p.RetryAfter = seconds
	return p
}

// Internal hides cause from the client and keeps it for the log.
func Internal(cause error) *Problem {
	p := New(http.StatusInternalServerError, "internal", "the server failed; its log says why")
	p.Cause = cause
	return p
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
		if p.Status >= http.StatusInternalServerError && p.RetryAfter == 0 {
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
		switch h.Code {
		case http.StatusNotFound:
			return New(h.Code, "no_such_path", "there is nothing at this path")
		case http.StatusMethodNotAllowed:
			return New(h.Code, "method_not_allowed", "this path does not take this method")
		}
		return New(h.Code, "http_error", fmt.Sprint(h.Message))
	}
	return Internal(err)
}
