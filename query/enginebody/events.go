package enginebody

import (
	"bytes"
	"encoding/json"
	"strings"
)

// object is a JSON object of a body.
type object = map[string]any

// maxWraps bounds how deeply an answer may be wrapped into others.
const maxWraps = 4

// eventsOf gives the objects that a body consists of: one, or those of a stream
// that was kept as an array of chunks, as lines, or as SSE text.
func eventsOf(raw []byte, wraps int) (events []object, streamed bool) {
	if v, ok := decode(raw); ok {
		return unwrap(v, wraps)
	}
	return linesOf(string(raw), wraps)
}

func unwrap(v any, wraps int) (events []object, streamed bool) {
	if wraps == 0 {
		return nil, false
	}
	switch v := v.(type) {
	case string:
		return eventsOf([]byte(v), wraps-1)
	case []any:
		for _, e := range v {
			inner, _ := unwrap(e, wraps-1)
			events = append(events, inner...)
		}
		return events, len(v) > 1
	case object:
		for _, name := range []string{"chunks", "events", "body", "data"} {
			if v["choices"] != nil {
				break
			}
			switch v[name].(type) {
			case []any, object, string:
				if inner, s := unwrap(v[name], wraps-1); len(inner) > 0 {
					return inner, s
				}
			}
		}
		return []object{v}, false
	}
	return nil, false
}

// maxDataLines bounds the lines of one event.
const maxDataLines = 64

// linesOf reads SSE, whose events may have several data lines, and JSON lines.
func linesOf(text string, wraps int) (events []object, streamed bool) {
	if wraps == 0 {
		return nil, false
	}
	var data strings.Builder
	lines := 0
	end := func() {
		if v, ok := decode([]byte(data.String())); ok {
			inner, _ := unwrap(v, wraps-1)
			events = append(events, inner...)
		}
		data.Reset()
		lines = 0
	}
	for line := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n") {
		field, value, _ := strings.Cut(line, ":")
		switch {
		case field == "data":
			if data.Len() > 0 {
				// Many servers leave out the empty line between events.
				if _, ok := decode([]byte(data.String())); ok || lines == maxDataLines {
					end()
				} else {
					data.WriteByte('\n')
				}
			}
			data.WriteString(strings.TrimPrefix(value, " "))
			lines++
		case line == "":
			end()
		case strings.HasPrefix(line, "{"):
			end()
			data.WriteString(line)
			end()
		}
	}
	end()
	return events, len(events) > 0
}

// decode reads one JSON value with exact numbers. NaN, Infinity and -Infinity,
// which Python's json writes bare, become strings.
func decode(raw []byte) (v any, ok bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(quoteWords(raw)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil || d.More() {
		return nil, false
	}
	return v, true
}

var bareWords = []string{"NaN", "-Infinity", "Infinity"}

// quoteWords puts quotes around the bare words outside of strings.
func quoteWords(raw []byte) []byte {
	if !bytes.Contains(raw, []byte("NaN")) && !bytes.Contains(raw, []byte("Infinity")) {
		return raw
	}
	out := make([]byte, 0, len(raw)+64)
	inside := false
next:
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inside && c == '\\' && i+1 < len(raw):
			out = append(out, c, raw[i+1])
			i++
			continue
		case c == '"':
			inside = !inside
		case !inside && (c == 'N' || c == 'I' || c == '-'):
			for _, w := range bareWords {
				if bytes.HasPrefix(raw[i:], []byte(w)) {
					out = append(append(append(out, '"'), w...), '"')
					i += len(w) - 1
					continue next
				}
			}
		}
		out = append(out, raw[i])
	}
	return out
}
