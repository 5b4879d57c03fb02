package parser

import (
	"bytes"
	"encoding/json"
)

// hermes reads <tool_call>{"name": "f", "arguments": {…}}</tool_call>. Arguments are
// the bytes that the model wrote, spaces and escapes included.
type hermes struct {
	at       int // how far it has looked; 0: not begun
	depth    int
	inString bool
	escaped  bool
	body     int // where the object begins; 0: not yet
	call     *found
}

func (h *hermes) reset() { *h = hermes{at: len(callOpen)} }

func (h *hermes) scan(b []byte, final bool) (verdict, found) {
	if h.call == nil {
		v := h.object(b)
		if v == no || v == maybe && final {
			return no, found{}
		}
		if v == maybe {
			return maybe, found{}
		}
		if h.call = readCall(b[h.body:h.at]); h.call == nil {
			return no, found{}
		}
	}
	end := h.at + blank(b[h.at:])
	switch begins(b[end:], callClose) {
	case yes:
		h.call.length = end + len(callClose)
		return yes, *h.call
	case maybe:
		// The object is whole: an answer that ends before the closing mark, or within
		// it, made its call.
		if h.call.length = len(b); final {
			return yes, *h.call
		}
		return maybe, found{}
	case no:
	}
	return no, found{}
}

// object looks for the end of the JSON object. It refuses what cannot be JSON as soon
// as it sees it, so that text after a stray mark is not held back until the end.
func (h *hermes) object(b []byte) verdict {
	for ; h.at < len(b); h.at++ {
		c := b[h.at]
		switch {
		case h.escaped:
			h.escaped = false
		case h.inString:
			switch {
			case c == '"':
				h.inString = false
			case c == '\\':
				h.escaped = true
			case c < ' ':
				return no
			}
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		case h.body == 0:
			if c != '{' {
				return no
			}
			h.body, h.depth = h.at, 1
		case c == '"':
			h.inString = true
		case c == '{' || c == '[':
			h.depth++
		case c == '}' || c == ']':
			if h.depth--; h.depth == 0 {
				h.at++
				return yes
			}
		case bytes.IndexByte([]byte(":,-+.0123456789eEtrufalsn"), c) < 0:
			return no
		}
	}
	return maybe
}

// readCall gives the call that an object describes; nil: it describes none.
func readCall(object []byte) *found {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return nil
	}
	var c found
	arguments, ok := members["arguments"]
	if !ok || json.Unmarshal(members["name"], &c.name) != nil || c.name == "" {
		return nil
	}
	c.arguments = string(arguments)
	return &c
}
