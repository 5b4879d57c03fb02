package httpbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"icecore/problem"
)

// Field is one member of a JSON object.
type Field struct {
	Name string
	Raw  json.RawMessage
}

// What Object says of values that are JSON, but not such an object.
var (
	ErrNotObject = errors.New("is not an object")
	ErrTooMany   = errors.New("has too many fields")
)

// Object gives the members of the one JSON object that text is, in order, each
// name once, at most so many. Its errors are answers (*problem.Problem), but for
// ErrNotObject and ErrTooMany.
func Object(text []byte, most int) ([]Field, error) {
	if at := InvalidUTF8(text); at >= 0 {
		return nil, invalidJSON(fmt.Sprintf("byte %d: the body is not UTF-8", at), at)
	}
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		at := len(text)
		detail := "the text ends too early"
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset > 0 && !strings.Contains(err.Error(), "unexpected end") {
			at, detail = int(syntax.Offset)-1, err.Error()
		}
		return nil, invalidJSON(fmt.Sprintf("byte %d: %s", at, detail), at)
	}
	d := json.NewDecoder(bytes.NewReader(whole))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, ErrNotObject
	}
	var out []Field
	seen := map[string]bool{}
	for d.More() {
		if len(out) == most {
			return nil, ErrTooMany
		}
		name, err := d.Token()
		if err != nil {
			return nil, problem.Internal(fmt.Errorf("read object: %w", err))
		}
		f := Field{Name: name.(string)} // the whole is JSON, so this is a name
		if seen[f.Name] {
			return nil, problem.New(problem.DuplicateField, fmt.Sprintf("%.64s: stands twice", f.Name)).At(f.Name)
		}
		seen[f.Name] = true
		if err := d.Decode(&f.Raw); err != nil {
			return nil, problem.Internal(fmt.Errorf("read object: %w", err))
		}
		out = append(out, f)
	}
	return out, nil
}

// InvalidUTF8 is the first byte that is not UTF-8, or -1.
func InvalidUTF8(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
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
