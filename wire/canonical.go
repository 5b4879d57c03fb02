package wire

import (
	"slices"
	"strings"

	"icecore/trace"
)

// member is one key of an object and its canonical value.
type member struct {
	key   string
	value []byte
}

// canonical reads any value and writes it so that the same meaning gives the
// same bytes: keys sorted by their bytes, no white space, strings escaped only
// where JSON demands it. Numbers stay as written: 64-bit integers survive, and
// 1 and 1.0 stay two things.
func (s *scanner) canonical() ([]byte, error) {
	start := s.pos
	raw, err := s.value()
	if err != nil {
		return nil, err
	}
	end := s.pos
	s.pos = start
	c := canonicalizer{s: s, moves: 64 * (len(raw) + 64)}
	c.out = make([]byte, 0, len(raw))
	if err := c.value(); err != nil {
		return nil, err
	}
	s.pos = end
	return c.out, nil
}

// canonicalObject is canonical for fields that must be objects.
func (s *scanner) canonicalObject() ([]byte, error) {
	if s.peek() != '{' {
		return nil, s.wrongType("an object")
	}
	return s.canonical()
}

// canonicalizer works on text that value has checked, so it may recurse (not
// deeper than the limit) and need not look for syntax errors.
type canonicalizer struct {
	s   *scanner
	out []byte
	// moves is how many bytes sorting may still move. Sorting copies what an
	// object holds, at each level again: without a bound, large values under
	// many levels of unsorted keys would keep a core busy for long.
	moves int
}

func (c *canonicalizer) value() error {
	s := c.s
	s.space()
	switch s.peek() {
	case '{':
		return c.object()
	case '[':
		return c.array()
	case '"':
		text, err := s.textBytes()
		if err != nil {
			return err
		}
		c.out = appendQuoted(c.out, text)
		return nil
	default:
		start := s.pos
		if err := s.scalar(false); err != nil {
			return err
		}
		c.out = append(c.out, s.buf[start:s.pos]...)
		return nil
	}
}

func (c *canonicalizer) array() error {
	s := c.s
	s.pos++
	c.out = append(c.out, '[')
	for s.space(); s.peek() != ']'; s.space() {
		if s.peek() == ',' {
			s.pos++
			c.out = append(c.out, ',')
		}
		if err := c.value(); err != nil {
			return err
		}
	}
	s.pos++
	c.out = append(c.out, ']')
	return nil
}

// place is where a member, with its key, stands in the output.
type place struct {
	key        string
	start, end int
}

func (c *canonicalizer) object() error {
	s := c.s
	s.pos++
	c.out = append(c.out, '{')
	first, sorted := len(c.out), true
	var places []place
	for s.space(); s.peek() != '}'; s.space() {
		if s.peek() == ',' {
			s.pos++
			s.space()
			c.out = append(c.out, ',')
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		s.space()
		s.pos++ // ':'
		p := place{key: key, start: len(c.out)}
		c.out = append(appendQuoted(c.out, key), ':')
		if err := c.value(); err != nil {
			return err
		}
		p.end = len(c.out)
		if n := len(places); n > 0 && places[n-1].key >= key {
			sorted = false
		}
		places = append(places, p)
	}
	s.pos++
	if !sorted {
		if err := c.sort(first, places); err != nil {
			return err
		}
	}
	c.out = append(c.out, '}')
	return nil
}

// sort reorders the members written from first on.
func (c *canonicalizer) sort(first int, places []place) error {
	slices.SortFunc(places, func(a, b place) int { return strings.Compare(a.key, b.key) })
	for i := 1; i < len(places); i++ {
		if places[i].key == places[i-1].key {
			return duplicateKey(places[i].key)
		}
	}
	written := slices.Clone(c.out[first:])
	if c.moves -= len(written); c.moves < 0 {
		return &trace.Error{Code: trace.CodeJSONTooDeep,
			Message: "holds too much under too many levels of unsorted keys"}
	}
	c.out = c.out[:first]
	for i, p := range places {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, written[p.start-first:p.end-first]...)
	}
	return nil
}

// duplicateKey refuses an object whose meaning depends on who reads it.
func duplicateKey(key string) *trace.Error {
	return &trace.Error{Code: trace.CodeDuplicateField, Message: "holds the key " + quoted(key) + " twice"}
}

func quoted(text string) string { return string(appendQuoted(nil, shown(text))) }

// joinMembers makes one canonical object of members.
func joinMembers(members []member) ([]byte, *trace.Error) {
	if len(members) == 0 {
		return nil, nil
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	out := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			if m.key == members[i-1].key {
				err := duplicateKey(m.key)
				err.Field, err.Message = shown(m.key), "is given twice"
				return nil, err
			}
			out = append(out, ',')
		}
		out = append(appendQuoted(out, m.key), ':')
		out = append(out, m.value...)
	}
	return append(out, '}'), nil
}
