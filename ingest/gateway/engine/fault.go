package engine

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"icecore/ingest/gateway/turn"
)

// maxMessage bounds what is told of an engine's own words, in bytes.
const maxMessage = 2000

// engineFault is an error as an engine writes it: in a body, or as an event.
type engineFault struct {
	message, kind string
	status        int
}

// readFault reads the member error: an object, or a text.
func readFault(s *scan) *engineFault {
	switch s.peek() {
	case '"':
		return &engineFault{message: s.str()}
	case '{':
	default:
		s.skip() // null: there was none
		return nil
	}
	s.open('{')
	var f engineFault
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "message", "msg":
			f.message = s.str()
		case "type":
			f.kind = s.str()
		case "code", "status", "status_code", "http_status":
			f.code(s)
		default:
			s.skip()
		}
	}
	return &f
}

// code reads an HTTP status, as a number or as a text; other codes tell us nothing.
func (f *engineFault) code(s *scan) {
	if v, ok := s.number(); ok && v >= 400 && v < 600 {
		f.status = int(v)
	}
}

// event makes a fault of an error that came within a stream.
func (e *Engine) event(f *engineFault) *turn.Fault {
	out := &turn.Fault{Status: f.status, Code: turn.CodeEngineError, Message: e.clean(f.message)}
	if out.Status == 0 {
		out.Status = http.StatusBadGateway
	}
	if out.Message == "" {
		out.Message = "the engine sent an error without a message"
	}
	if strings.Contains(strings.ToLower(f.kind+" "+f.message), "abort") {
		out.Code = turn.CodeAborted
	}
	return out
}

// refused makes a fault of an answer that is no 2xx.
func (e *Engine) refused(status int, header http.Header, body []byte) *turn.Fault {
	// Before it is read as well: inside a raw piece of JSON its end may be cut off.
	told := e.clean(toldIn(e.redact(bytes.TrimPrefix(body, mark), minSecret)))
	says := told
	if says == "" {
		says = "it gave no reason"
	}
	f := &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeEngineError}
	f.Message = fmt.Sprintf("the engine answered %d: %s", status, says)
	switch {
	case status >= 300 && status < 400:
		f.Message = fmt.Sprintf("the engine answered with a redirect (%d), which is not followed", status)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		f.Message = "the engine refused icecore's credential"
	case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity:
		f.Status, f.Code = http.StatusBadRequest, turn.CodeInvalidRequest
		f.Message = says
	case status == http.StatusRequestEntityTooLarge:
		f.Status, f.Code = status, turn.CodeTooLarge
		f.Message = "the engine takes no request this large: " + says
	case status == http.StatusNotFound && strings.Contains(strings.ToLower(told), "model"):
		f.Status, f.Code = http.StatusNotFound, turn.CodeUnknownModel
		f.Message = says
	case status == http.StatusTooManyRequests || status == 529:
		f.Status, f.Code = http.StatusServiceUnavailable, turn.CodeOverloaded
		f.Message = "the engine is overloaded: " + says
		f.RetryAfter = retryAfter(header)
	case status == http.StatusServiceUnavailable:
		f.Status, f.Code = status, turn.CodeOverloaded
		f.Message = "the engine is overloaded or not ready: " + says
		f.RetryAfter = retryAfter(header)
	case status == http.StatusRequestTimeout || status == http.StatusGatewayTimeout:
		f.Status, f.Code = http.StatusGatewayTimeout, turn.CodeTimeout
	}
	return f
}

// retryAfter reads the header of that name; a second where it says nothing.
func retryAfter(h http.Header) time.Duration {
	if v, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil && v >= 0 && v <= 3600 {
		return time.Duration(v * float64(time.Second))
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		if d := time.Until(at); d > 0 && d <= time.Hour {
			return d
		}
	}
	return time.Second
}

var (
	title = regexp.MustCompile(`(?is)<title[^>]*>(.{0,200}?)</title>`)
	tag   = regexp.MustCompile(`(?s)<[^>]*>`)
)

// toldIn finds the message in a body: of OpenAI's shape, FastAPI's, a text, or a page.
func toldIn(body []byte) string {
	s := scan{b: body}
	switch s.peek() {
	case '{':
	case '<':
		if m := title.FindSubmatch(body); m != nil {
			return "a page with the title " + strconv.Quote(html.UnescapeString(string(m[1])))
		}
		return "a page: " + tag.ReplaceAllString(string(body[:min(len(body), 4*maxMessage)]), " ")
	default:
		return string(body[:min(len(body), 2*maxMessage)])
	}
	s.open('{')
	out := ""
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "error":
			if f := readFault(&s); f != nil && f.message != "" {
				out = f.message
			}
		case "message", "error_msg":
			if t := s.str(); out == "" {
				out = t
			}
		case "detail":
			if s.peek() == '"' {
				out = s.str()
			} else if raw := s.raw(); out == "" && len(raw) > 4 {
				out = string(raw) // which members were refused, and why
			}
		default:
			s.skip()
		}
	}
	if out == "" && len(body) > 2 {
		out = string(body[:min(len(body), 2*maxMessage)])
	}
	return out
}

// clean makes an engine's words fit to be told: short, printable, and without the
// credential, which some servers echo.
func (e *Engine) clean(t string) string {
	t = string(e.redact([]byte(t), 0))
	t = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(t, "\uFFFD"), func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r)
	}), " ")
	return clip(t, maxMessage)
}

// word is a word of an engine's as it is kept.
func (e *Engine) word(t string) string { return clip(string(e.redact([]byte(t), minSecret)), maxWord) }

// minSecret is the length in bytes from which a credential is taken out of a body before
// it is read: a shorter one may be a name in it, or a piece of one.
const minSecret = 8

// secret is a credential in its spellings; size is its length in bytes.
type secret struct {
	size    int
	written *regexp.Regexp
}

// redact takes out credentials of at least a length, however JSON or a URL may write
// them.
func (e *Engine) redact(t []byte, least int) []byte {
	for _, s := range e.secrets {
		if s.size >= least {
			t = s.written.ReplaceAllLiteral(t, []byte("[credential]"))
		}
	}
	return t
}

// spelt finds a credential in text: each of its characters as it is, or escaped, also
// more than once.
func spelt(text string) secret {
	var p strings.Builder
	for _, r := range text {
		p.WriteString(`(?:\\*` + regexp.QuoteMeta(string(r)))
		if r < utf8.RuneSelf { // a credential has no others in a header
			fmt.Fprintf(&p, `|\\+u(?i:%04x)|%%(?i:%02x)`, r, r)
		}
		p.WriteByte(')')
	}
	return secret{size: len(text), written: regexp.MustCompile(p.String())}
}

// maxWord bounds a word of an engine's that metadata or a log repeats, in bytes.
const maxWord = 256

// clip makes an engine's words valid UTF-8 of at most a size.
func clip(t string, most int) string {
	if len(t) > most {
		return strings.ToValidUTF8(t[:most], "") + "…"
	}
	return strings.ToValidUTF8(t, "\uFFFD")
}

// unwrapped is an error in the words of its innermost cause, which names no URL.
func unwrapped(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
