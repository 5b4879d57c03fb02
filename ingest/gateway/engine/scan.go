package engine

import (
	"bytes"
	"errors"
	"unsafe"
)

var errJSON = errors.New("the text is not JSON")

// scan walks JSON once, without building what nobody asked for: it runs for every
// token of every stream. It takes the bare words NaN, Infinity and -Infinity, which
// Python's encoder writes. What it passes over is not checked to the letter; where it
// cannot go on, err is set and every method gives nothing from then on.
type scan struct {
	b       []byte
	i       int
	err     error
	scratch []byte
}

func (s *scan) fail() {
	if s.err == nil {
		s.err = errJSON
	}
	s.i = len(s.b)
}

// peek gives the next byte that is not white space; 0: there is none.
func (s *scan) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\n', '\t', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// word passes over w, if that is next.
func (s *scan) word(w string) bool {
	if end := s.i + len(w); end <= len(s.b) && string(s.b[s.i:end]) == w {
		s.i = end
		return true
	}
	return false
}

// open enters an object or array; another value is passed over, and false.
func (s *scan) open(bracket byte) bool {
	if s.peek() != bracket {
		s.skip()
		return false
	}
	s.i++
	return true
}

// member gives the next key of an object, whose value comes then; false: it is closed.
// The key is valid until the next string is read.
func (s *scan) member() ([]byte, bool) {
	if !s.item('}') {
		return nil, false
	}
	if s.peek() != '"' {
		s.fail()
		return nil, false
	}
	key := s.text()
	if s.peek() != ':' {
		s.fail()
		return nil, false
	}
	s.i++
	return key, s.err == nil
}

// item says whether another value comes before the closing bracket.
func (s *scan) item(closing byte) bool {
	c := s.peek()
	if c == closing {
		s.i++
		return false
	}
	if c == ',' {
		s.i++
		c = s.peek()
	}
	if c == 0 || c == ',' || c == ']' || c == '}' {
		s.fail()
		return false
	}
	return true
}

// raw gives the next value as it stands.
func (s *scan) raw() []byte {
	s.peek()
	from := s.i
	s.skip()
	if s.err != nil {
		return nil
	}
	return s.b[from:s.i]
}

// skip passes over one value, however deep. Inside a container only strings and
// brackets are looked at.
func (s *scan) skip() {
	switch c := s.peek(); c {
	case '"':
		s.inside()
		return
	case '{', '[':
	default:
		if s.bare() == "" {
			s.fail()
		}
		return
	}
	for depth := 0; s.i < len(s.b); {
		switch s.b[s.i] {
		case '"':
			s.inside()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.i++
				return
			}
		}
		s.i++
	}
	s.fail()
}

// bare passes over a number or a word and gives it.
func (s *scan) bare() string {
	from := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '+', c == '.':
			s.i++
			continue
		}
		break
	}
	return unsafe.String(unsafe.SliceData(s.b[from:]), s.i-from)
}

// inside passes over a string and gives what stands between its quotes.
func (s *scan) inside() (raw []byte, escaped bool) {
	from := s.i + 1
	for i := from; ; {
		n := bytes.IndexByte(s.b[i:], '"')
		if n < 0 {
			s.fail()
			return nil, false
		}
		i += n
		slashes := 0 // an odd number of them before the quote takes it in
		for i-1-slashes >= from && s.b[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			raw = s.b[from:i]
			s.i = i + 1
			return raw, bytes.IndexByte(raw, '\\') >= 0
		}
		i++
	}
}
