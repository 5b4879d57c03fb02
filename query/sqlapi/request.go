package sqlapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"icecore/httpbody"
	"icecore/problem"
)

// statement is what a request asks for.
type statement struct {
	sql     string
	params  []any
	named   map[string]any
	limit   int64
	timeout time.Duration
}

// maxBody bounds a request: a statement is written by somebody.
const maxBody = 4 << 20

// read reads a request and checks everything that can be known without the
// warehouse.
func (a *API) read(c echo.Context) (*statement, error) {
	s := &statement{limit: a.opts.MaxRows, timeout: min(a.opts.Timeout, a.opts.MaxTimeout)}
	kind, params := echo.MIMEApplicationJSON, map[string]string{}
	if h := c.Request().Header.Get(echo.HeaderContentType); h != "" {
		var err error
		if kind, params, err = mime.ParseMediaType(h); err != nil {
			kind = h
		}
	}
	charset := strings.ToLower(params["charset"])
	plain := kind == echo.MIMETextPlain
	if kind != echo.MIMEApplicationJSON && !plain || charset != "" && charset != "utf-8" && charset != "us-ascii" {
		return nil, problem.New(problem.UnsupportedMediaType, "a statement is sent as application/json or text/plain, in UTF-8")
	}
	body, err := httpbody.Read(c, a.opts.Patience, maxBody)
	if err != nil {
		return nil, err
	}
	if at := httpbody.InvalidUTF8(body); plain && at >= 0 {
		return nil, problem.New(problem.InvalidField, fmt.Sprintf("sql: byte %d is not UTF-8", at)).At("sql")
	}
	for name, values := range c.QueryParams() {
		if !plain || name != "limit" && name != "timeout_ms" || len(values) != 1 {
			return nil, problem.BadParameter(name, "is not a parameter of this path (limit and timeout_ms are, once each, with text/plain)")
		}
		if err := a.setNumber(s, name, values[0]); err != nil {
			return nil, problem.BadParameter(name, err.Error())
		}
	}
	if plain {
		s.sql = string(body)
	} else if err := a.readJSON(s, body); err != nil {
		return nil, err
	}
	switch {
	case strings.TrimSpace(s.sql) == "":
		return nil, problem.New(problem.MissingField, "sql: there is no statement").At("sql")
	case strings.ContainsRune(s.sql, 0):
		return nil, problem.New(problem.InvalidField, "sql: holds a NUL character").At("sql")
	}
	return s, nil
}

// readJSON reads {"sql", "params", "limit", "timeout_ms"}.
func (a *API) readJSON(s *statement, body []byte) error {
	fields, err := readObject("body", body)
	if err != nil {
		return err
	}
	for _, f := range fields {
		switch f.Name {
		case "sql":
			if err := json.Unmarshal(f.Raw, &s.sql); err != nil || string(f.Raw) == "null" {
				return problem.New(problem.InvalidField, "sql: is not a string").At("sql")
			}
		case "params":
			if err := s.readParams(f.Raw); err != nil {
				return err
			}
		case "limit", "timeout_ms":
			if string(f.Raw) == "null" {
				continue
			}
			if err := a.setNumber(s, f.Name, string(f.Raw)); err != nil {
				return problem.New(problem.InvalidField, f.Name+": "+err.Error()).At(f.Name)
			}
		default:
			return problem.New(problem.InvalidField, fmt.Sprintf("%.64s: is no field of a statement; sql, params, limit and timeout_ms are", f.Name)).At(f.Name)
		}
	}
	return nil
}

// setNumber sets limit or timeout_ms.
func (a *API) setNumber(s *statement, name, text string) error {
	most := a.opts.MaxRows
	flag := "--sql-max-rows"
	if name == "timeout_ms" {
		most, flag = a.opts.MaxTimeout.Milliseconds(), "--sql-max-timeout"
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		return fmt.Errorf("is not a whole number from 1 to %d (%s)", most, flag)
	}
	if name == "limit" {
		s.limit = n
	} else {
		s.timeout = time.Duration(n) * time.Millisecond
	}
	return nil
}

// readObject gives the members of the one object that body is, and not more than
// there may be parameters. what names it in errors.
func readObject(what string, body []byte) ([]httpbody.Field, error) {
	fields, err := httpbody.Object(body, maxParams)
	switch {
	case errors.Is(err, httpbody.ErrNotObject):
		return nil, problem.New(problem.NotAnObject, `a statement is an object: {"sql": "SELECT …"}`)
	case errors.Is(err, httpbody.ErrTooMany):
		return nil, badParam(what, errTooMany)
	}
	return fields, err
}
