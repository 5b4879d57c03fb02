package body

import (
	"bytes"
	"unicode/utf8"
)

// MaxDepth is how many objects and arrays may lie in each other.
const MaxDepth = 512

// linear is up to how many names an object's names are compared one by one.
const linear = 16

// check says whether raw is exactly one JSON value.
func check(raw []byte, at *place) error {
	c := checker{raw: raw}
	if !utf8.Valid(raw) {
		bad := 0
		for bad < len(raw) {
			r, n := utf8.DecodeRune(raw[bad:])
			if r == utf8.RuneError && n <= 1 {
				break
			}
			bad += n
		}
		return invalid(at, "the body is not UTF-8 at byte %d", bad)
	}
	if !c.value(at, 0) {
		return c.err
	}
	if c.space(); c.at < len(raw) {
		c.fail(at, "the body goes on after its end")
		return c.err
	}
	return nil
}

type checker struct {
	raw []byte
	at  int
	err error
}

func (c *checker) fail(at *place, why string) bool {
	c.err = invalid(at, "%s at byte %d", why, c.at)
	return false
}

func (c *checker) space() { c.at = space(c.raw, c.at) }

func (c *checker) peek() byte {
	if c.at < len(c.raw) {
		return c.raw[c.at]
	}
	return 0
}

func (c *checker) value(at *place, depth int) bool {
	c.space()
	if c.at >= len(c.raw) {
		return c.fail(at, "the JSON ends too early")
	}
	switch b := c.raw[c.at]; {
	case b == '{':
		return c.object(at, depth+1)
	case b == '[':
		return c.array(at, depth+1)
	case b == '"':
		return c.text(at)
	case b == '-' || '0' <= b && b <= '9':
		return c.number(at)
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(c.raw[c.at:], []byte(word)) {
			c.at += len(word)
			return true
		}
	}
	return c.fail(at, "not JSON")
}

func (c *checker) object(at *place, depth int) bool {
	if depth > MaxDepth {
		return c.fail(at, "more than 512 levels")
	}
	c.at++
	c.space()
	if c.peek() == '}' {
		c.at++
		return true
	}
	var names names
	for {
		c.space()
		if c.peek() != '"' {
			return c.fail(at, "a member's name must be a string")
		}
		begin := c.at
		if !c.text(at) {
			return false
		}
		name := unquote(c.raw[begin:c.at])
		inner := place{up: at, name: name}
		if !names.add(name) {
			c.at = begin
			return c.fail(&inner, "the name comes twice")
		}
		c.space()
		if c.peek() != ':' {
			return c.fail(&inner, "a colon is missing")
		}
		c.at++
		if !c.value(&inner, depth) {
			return false
		}
		switch c.space(); c.peek() {
		case ',':
			c.at++
		case '}':
			c.at++
			return true
		default:
			return c.fail(at, "a comma or } is missing")
		}
	}
}

func (c *checker) array(at *place, depth int) bool {
	if depth > MaxDepth {
		return c.fail(at, "more than 512 levels")
	}
	c.at++
	c.space()
	if c.peek() == ']' {
		c.at++
		return true
	}
	inner := place{up: at, array: true}
	for {
		if !c.value(&inner, depth) {
			return false
		}
		switch c.space(); c.peek() {
		case ',':
			c.at++
			inner.index++
		case ']':
			c.at++
			return true
		default:
			return c.fail(at, "a comma or ] is missing")
		}
	}
}

func (c *checker) text(at *place) bool {
	for c.at++; ; c.at++ {
		raw, i := c.raw, c.at // most of a body is plain text
		for i < len(raw) && raw[i] >= 0x20 && raw[i] != '"' && raw[i] != '\\' {
			i++
		}
		if c.at = i; i == len(raw) {
			return c.fail(at, "a string without end")
		}
		switch b := raw[i]; {
		case b == '"':
			c.at++
			return true
		case b < 0x20:
			return c.fail(at, "a control character in a string")
		case b == '\\':
			c.at++
			if c.peek() == 'u' {
				for range 4 {
					c.at++
					if !hex(c.peek()) {
						return c.fail(at, "an escape that is none")
					}
				}
			} else if bytes.IndexByte([]byte(`"\/bfnrt`), c.peek()) < 0 {
				return c.fail(at, "an escape that is none")
			}
		}
	}
}

func hex(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'f' || 'A' <= b && b <= 'F'
}

func (c *checker) digits() bool {
	begin := c.at
	for '0' <= c.peek() && c.peek() <= '9' {
		c.at++
	}
	return c.at > begin
}

func (c *checker) number(at *place) bool {
	if c.peek() == '-' {
		c.at++
	}
	ok := true
	if c.peek() == '0' {
		c.at++
	} else {
		ok = c.digits()
	}
	if ok && c.peek() == '.' {
		c.at++
		ok = c.digits()
	}
	if ok && (c.peek() == 'e' || c.peek() == 'E') {
		c.at++
		if c.peek() == '+' || c.peek() == '-' {
			c.at++
		}
		ok = c.digits()
	}
	return ok || c.fail(at, "not a number")
}

// names finds a name that comes twice.
type names struct {
	few  []string
	many map[string]struct{}
}

func (n *names) add(name string) bool {
	if n.many == nil {
		for _, had := range n.few {
			if had == name {
				return false
			}
		}
		if n.few = append(n.few, name); len(n.few) > linear {
			n.many = make(map[string]struct{}, 4*linear)
			for _, had := range n.few {
				n.many[had] = struct{}{}
			}
		}
		return true
	}
	_, had := n.many[name]
	n.many[name] = struct{}{}
	return !had
}
