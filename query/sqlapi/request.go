package sqlapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"icecore/problem"
	"icecore/wire"
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
	body, err := a.body(c)
	if err != nil {
		return nil, err
	}
	if at := invalidUTF8(body); at >= 0 {
		if plain {
			return nil, problem.New(problem.InvalidField, fmt.Sprintf("sql: byte %d is not UTF-8", at)).At("sql")
		}
		return nil, invalidJSON(fmt.Sprintf("byte %d: the body is not UTF-8", at), at)
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

func (a *API) body(c echo.Context) ([]byte, error) {
	rc := http.NewResponseController(c.Response())
	body, err := wire.Inflate(&patientReader{c.Request().Body, rc, a.opts.Patience}, c.Request().Header.Get(echo.HeaderContentEncoding), maxBody)
	if err == nil {
		// The deadline was for the body; the client is watched from now on.
		_ = rc.SetReadDeadline(time.Time{})
		return body, nil
	}
	// What is left of the body is not read.
	c.Response().Header().Set(echo.HeaderConnection, "close")
	if e, ok := errors.AsType[*wire.EnvelopeError](err); ok {
		p := problem.New(problem.Code(e.Code), e.Error())
		if e.Offset >= 0 {
			p.Offset = &e.Offset
		}
		return nil, p
	}
	return nil, problem.New(problem.BodyUnreadable, "the request body ended before it was complete").Because(err)
}

// patientReader lets a client take its time as long as something comes.
type patientReader struct {
	r        io.Reader
	rc       *http.ResponseController
	patience time.Duration
}

// Read implements io.Reader.
func (p *patientReader) Read(b []byte) (int, error) {
	// A writer that cannot set deadlines (a test's) just waits.
	_ = p.rc.SetReadDeadline(time.Now().Add(p.patience))
	return p.r.Read(b)
}

func invalidUTF8(body []byte) int {
	for i := 0; i < len(body); {
		r, n := utf8.DecodeRune(body[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

func invalidJSON(detail string, at int) *problem.Problem {
	p := problem.New(problem.InvalidJSON, detail)
	offset := int64(at)
	p.Offset = &offset
	return p
}

// readJSON reads {"sql", "params", "limit", "timeout_ms"}.
func (a *API) readJSON(s *statement, body []byte) error {
	fields, err := readObject("body", body)
	if err != nil {
		return err
	}
	for _, f := range fields {
		switch f.name {
		case "sql":
			if err := json.Unmarshal(f.raw, &s.sql); err != nil || string(f.raw) == "null" {
				return problem.New(problem.InvalidField, "sql: is not a string").At("sql")
			}
		case "params":
			if err := s.readParams(f.raw); err != nil {
				return err
			}
		case "limit", "timeout_ms":
			if string(f.raw) == "null" {
				continue
			}
			if err := a.setNumber(s, f.name, string(f.raw)); err != nil {
				return problem.New(problem.InvalidField, f.name+": "+err.Error()).At(f.name)
			}
		default:
			return problem.New(problem.InvalidField, fmt.Sprintf("%.64s: is no field of a statement; sql, params, limit and timeout_ms are", f.name)).At(f.name)
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

// field is one member of a JSON object.
type field struct {
	name string
	raw  json.RawMessage
}

// readObject gives the members of the one object that body is, each name once,
// and not more than there may be parameters. what names it in errors.
func readObject(what string, body []byte) ([]field, error) {
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		at := len(body)
		detail := "the text ends too early"
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset > 0 && !strings.Contains(err.Error(), "unexpected end") {
			at, detail = int(syntax.Offset)-1, err.Error()
		}
		return nil, invalidJSON(fmt.Sprintf("byte %d: %s", at, detail), at)
	}
	d := json.NewDecoder(bytes.NewReader(whole))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, problem.New(problem.NotAnObject, `a statement is an object: {"sql": "SELECT …"}`)
	}
	var out []field
	seen := map[string]bool{}
	for d.More() {
		if len(out) == maxParams {
			return nil, badParam(what, errTooMany)
		}
		name, err := d.Token()
		if err != nil {
			return nil, problem.Internal(fmt.Errorf("read statement: %w", err))
		}
		f := field{name: name.(string)} // the whole is JSON, so this is a name
		if seen[f.name] {
			return nil, problem.New(problem.DuplicateField, fmt.Sprintf("%.64s: stands twice", f.name)).At(f.name)
		}
		seen[f.name] = true
		if err := d.Decode(&f.raw); err != nil {
			return nil, problem.Internal(fmt.Errorf("read statement: %w", err))
		}
		out = append(out, f)
	}
	return out, nil
}
