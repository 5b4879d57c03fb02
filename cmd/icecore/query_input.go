package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// statement reads the statement from where it stands.
func (c queryCmd) statement() (string, error) {
	switch {
	case c.SQL != "" && c.File != "":
		return "", errors.New("a statement and --file: one of them")
	case c.SQL != "":
		return c.SQL, nil
	case c.File != "":
		raw, err := os.ReadFile(c.File)
		if err != nil {
			return "", fmt.Errorf("read statement: %w", err)
		}
		return string(raw), nil
	}
	raw, err := io.ReadAll(os.Stdin)
	if err != nil {
		return "", fmt.Errorf("read statement: %w", err)
	}
	if strings.TrimSpace(string(raw)) == "" {
		return "", errors.New("there is no statement: give it as an argument, with --file, or on standard input")
	}
	return string(raw), nil
}

var namedParam = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)=`)

// readParams makes the params of a request: nil, a list, or an object.
func readParams(flags []string) (any, error) {
	var list []any
	named := map[string]any{}
	for _, f := range flags {
		if m := namedParam.FindStringSubmatch(f); m != nil {
			if _, ok := named[m[1]]; ok {
				return nil, fmt.Errorf("--param %s: stands twice", m[1])
			}
			named[m[1]] = paramValue(f[len(m[0]):])
			continue
		}
		if text, ok := strings.CutPrefix(f, "="); ok {
			list = append(list, text)
			continue
		}
		list = append(list, paramValue(f))
	}
	switch {
	case len(list) > 0 && len(named) > 0:
		return nil, errors.New("--param: some have names and some have not; a statement takes either")
	case len(named) > 0:
		return named, nil
	case len(list) > 0:
		return list, nil
	}
	return nil, nil
}

// paramValue takes null, true, 7, 1.5 and "text" as JSON does, and all else as
// the text that it is.
func paramValue(text string) any {
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil || d.InputOffset() != int64(len(text)) {
		return text
	}
	switch v.(type) {
	case []any, map[string]any:
		return text
	}
	return v
}

// splitStatement gives the first statement of a text, up to its semicolon, and
// what follows; ok is false while the text holds no whole one. A semicolon in
// quotes, comments and $$ texts ends nothing.
func splitStatement(text string) (statement, rest string, ok bool) {
	for i := 0; i < len(text); {
		if text[i] == ';' {
			return text[:i], text[i+1:], true
		}
		n := skipQuoted(text[i:])
		if n < 0 {
			return "", text, false
		}
		i += n
	}
	return "", text, false
}

var dollarQuote = regexp.MustCompile(`^\$([A-Za-z_][A-Za-z0-9_]*)?\$`)

// skipQuoted is how long the quoted text, comment or single byte is with which
// text begins; -1: it has no end yet.
func skipQuoted(text string) int {
	until := func(open int, end string) int {
		if n := strings.Index(text[open:], end); n >= 0 {
			return open + n + len(end)
		}
		return -1
	}
	switch {
	case text[0] == '\'' || text[0] == '"':
		return until(1, text[:1]) // a doubled quote is two texts, side by side
	case strings.HasPrefix(text, "--"):
		if n := until(2, "\n"); n >= 0 {
			return n
		}
		return len(text)
	case strings.HasPrefix(text, "/*"):
		return until(2, "*/")
	case text[0] == '$':
		if tag := dollarQuote.FindString(text); tag != "" {
			return until(len(tag), tag)
		}
	}
	return 1
}
