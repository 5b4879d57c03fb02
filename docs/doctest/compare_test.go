package doctest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// anything stands for what differs from run to run, or does not matter.
const anything = "…"

// compare says where got is not what the page shows; "" when it is.
func compare(want *fence, got string) string {
	if want.kind == "text" {
		if !textPattern(want.body).MatchString(got) {
			return "the text differs"
		}
		return ""
	}
	w, err := jsonValues(want.body)
	if err != nil {
		return "what the page shows is not JSON: " + err.Error()
	}
	g, err := jsonValues(got)
	if err != nil {
		return "what was printed is not JSON: " + err.Error()
	}
	return difference("", w, g)
}

// textPattern matches got line by line.
func textPattern(want string) *regexp.Regexp {
	var p strings.Builder
	p.WriteString(`(?s)\A`)
	for line := range strings.SplitSeq(strings.TrimRight(want, "\n"), "\n") {
		if strings.TrimSpace(line) == anything {
			p.WriteString(`(?:[^\n]*\n)*?`)
			continue
		}
		line = regexp.QuoteMeta(strings.TrimRight(line, " "))
		p.WriteString(strings.ReplaceAll(line, anything, `[^\n]*`))
		p.WriteString(`[ \r]*\n`)
	}
	p.WriteString(`\n*\z`)
	return regexp.MustCompile(p.String())
}

func jsonValues(text string) ([]any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var out []any
	for {
		var v any
		if err := d.Decode(&v); err != nil {
			if errors.Is(err, io.EOF) {
				return out, nil
			}
			return nil, fmt.Errorf("read JSON: %w", err)
		}
		out = append(out, v)
	}
}

func difference(at string, want, got any) string {
	differs := func() string { return fmt.Sprintf("%s: shown %v, printed %v", at, want, got) }
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return differs()
		}
		_, open := w[anything]
		for k := range g {
			if _, shown := w[k]; !shown && !open {
				return fmt.Sprintf("%s: printed has %q, which is not shown", at, k)
			}
		}
		for k, v := range w {
			if k == anything {
				continue
			}
			if _, printed := g[k]; !printed {
				return fmt.Sprintf("%s: shown has %q, which is not printed", at, k)
			}
			if d := difference(at+"."+k, v, g[k]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		open := len(w) > 0 && w[len(w)-1] == anything
		if open {
			w = w[:len(w)-1]
		}
		if !ok || len(g) < len(w) || len(g) > len(w) && !open {
			return differs()
		}
		for i := range w {
			if d := difference(fmt.Sprintf("%s[%d]", at, i), w[i], g[i]); d != "" {
				return d
			}
		}
		return ""
	case string:
		g, ok := got.(string)
		if w == anything || ok && (w == g || bothTimes(w, g) || regexp.MustCompile(
			"^"+strings.ReplaceAll(regexp.QuoteMeta(w), anything, ".*")+"$").MatchString(g)) {
			return ""
		}
		return differs()
	}
	if want != got {
		return differs()
	}
	return ""
}

func bothTimes(texts ...string) bool {
	return !slices.ContainsFunc(texts, func(s string) bool {
		_, err := time.Parse(time.RFC3339Nano, s)
		return err != nil
	})
}

// TestCompare: a page that shows something else must be found.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		kind, want, got string
		same            bool
	}{
		{"json", `{"a": 1}`, `{"a":1}`, true},
		{"json", `{"a": 1}`, `{"a":2}`, false},
		{"json", `{"a": 1}`, `{"a":1,"b":2}`, false},
		{"json", `{"a": 1, "…": "…"}`, `{"a":1,"b":2}`, true},
		{"json", `{"a": 1, "b": 2}`, `{"a":1}`, false},
		{"json", `[1, "…"]`, `[1,2,3]`, true},
		{"json", `[1]`, `[1,2]`, false},
		{"json", `{"at": "2026-01-01T00:00:00Z"}`, `{"at":"2027-02-03T04:05:06.000007Z"}`, true},
		{"json", `{"id": "tr_…"}`, `{"id":"tr_12"}`, true},
		{"json", `{"id": "tr_…"}`, `{"id":"x"}`, false},
		{"json", `1`, `1 2`, false},
		{"text", "a … c\n", "a b c\n", true},
		{"text", "a … c\n", "a b\n", false},
		{"text", "a\n…\nz\n", "a\nb\nc\nz\n", true},
		{"text", "a\n", "a\nb\n", false},
	} {
		d := compare(&fence{kind: c.kind, body: c.want}, c.got)
		require.Equal(t, c.same, d == "", "%s against %s: %s", c.want, c.got, d)
	}
}
