package wire

import (
	"encoding/binary"
	"math/bits"

	"icecore/trace"
)

// scanner reads JSON from a buffer, strictly by RFC 8259. Its position is an
// offset in the whole body, so that every error can name the byte.
//
// Methods return a *syntaxError when the text is not JSON, or a *trace.Error
// when it is JSON but not what the field wants. After the latter the position
// is anywhere inside the value: the caller goes back and skips the value, which
// also finds any syntax error in it.
type scanner struct {
	buf []byte
	pos int
	lim Limits
	// repaired: some text since the last item began held a lone surrogate or
	// invalid UTF-8.
	repaired bool
	// stack has one bit per open container: 1 for an object.
	stack   []uint64
	scratch []byte
}

func (s *scanner) fail(message string) error {
	if s.pos >= len(s.buf) {
		return &syntaxError{len(s.buf), "the text ends too early"}
	}
	return &syntaxError{s.pos, message}
}

// peek gives the byte at the position, or 0 at the end (0 is never valid JSON).
func (s *scanner) peek() byte {
	if s.pos < len(s.buf) {
		return s.buf[s.pos]
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func (s *scanner) space() {
	for s.pos < len(s.buf) && isSpace(s.buf[s.pos]) {
		s.pos++
	}
}

func (s *scanner) expect(c byte, message string) error {
	if s.peek() != c {
		return s.fail(message)
	}
	s.pos++
	return nil
}

// literal reads word if it is next.
func (s *scanner) literal(word string) bool {
	if end := s.pos + len(word); end <= len(s.buf) && string(s.buf[s.pos:end]) == word {
		s.pos = end
		return true
	}
	return false
}

// end checks that only white space follows.
func (s *scanner) end() error {
	if s.space(); s.pos < len(s.buf) {
		return s.fail("something follows the JSON value")
	}
	return nil
}

// skip passes over one value and tells how deeply it is nested (0: a scalar).
// It keeps its own stack of one bit per level, so that no input can exhaust the
// goroutine's. words also lets the bare words NaN, Infinity and -Infinity pass.
func (s *scanner) skip(words bool) (deepest int, err error) {
	depth := 0
	for {
		s.space()
		opened := false
		switch c := s.peek(); c {
		case '{', '[':
			s.pos++
			depth++
			deepest = max(deepest, depth)
			s.push(depth, c == '{')
			opened = true
		case '"':
			if _, _, err = s.rawString(); err != nil {
				return deepest, err
			}
		default:
			if err = s.scalar(words); err != nil {
				return deepest, err
			}
		}
		for {
			if depth == 0 {
				return deepest, nil
			}
			s.space()
			object := s.isObject(depth)
			if c := s.peek(); c == closer(object) {
				s.pos++
				depth--
				opened = false
				continue
			} else if !opened {
				if c != ',' {
					return deepest, s.fail(afterValue(object))
				}
				s.pos++
			}
			break
		}
		if s.isObject(depth) {
			if s.space(); s.peek() != '"' {
				return deepest, s.fail("expected a key in double quotes")
			}
			if _, _, err = s.rawString(); err != nil {
				return deepest, err
			}
			s.space()
			if err = s.expect(':', "expected ':' after a key"); err != nil {
				return deepest, err
			}
		}
	}
}

func closer(object bool) byte {
	if object {
		return '}'
	}
	return ']'
}

func afterValue(object bool) string {
	if object {
		return "expected ',' or '}' after a value"
	}
	return "expected ',' or ']' after a value"
}

func (s *scanner) push(depth int, object bool) {
	word, bit := depth>>6, uint64(1)<<(depth&63)
	if word >= len(s.stack) {
		s.stack = append(s.stack, 0)
	}
	if object {
		s.stack[word] |= bit
	} else {
		s.stack[word] &^= bit
	}
}

func (s *scanner) isObject(depth int) bool { return s.stack[depth>>6]>>(depth&63)&1 == 1 }

// scalar passes over a number or a word.
func (s *scanner) scalar(words bool) error {
	switch c := s.peek(); {
	case c == '-' && words && s.literal("-Infinity"):
		return nil
	case c == '-' || c-'0' <= 9:
		return s.number()
	case s.literal("true") || s.literal("false") || s.literal("null"):
		return nil
	case words && (s.literal("NaN") || s.literal("Infinity")):
		return nil
	}
	return s.fail("expected a JSON value")
}

// rawString reads a string in quotes and gives its inside as written, and
// whether that holds escapes.
func (s *scanner) rawString() (raw []byte, escaped bool, err error) {
	b, i := s.buf, s.pos+1
	for {
		i = plainRun(b, i)
		if i >= len(b) {
			s.pos = i
			return nil, false, s.fail("")
		}
		switch b[i] {
		case '"':
			raw = b[s.pos+1 : i]
			s.pos = i + 1
			return raw, escaped, nil
		case '\\':
			escaped = true
			n := escapeLen(b[i:])
			if n == 0 {
				s.pos = i
				return nil, false, s.fail("an escape in a string is not valid")
			}
			i += n
		default:
			s.pos = i
			return nil, false, s.fail("a string holds a control character that is not escaped")
		}
	}
}

// plainRun passes over bytes that mean themselves inside a string, eight at a
// time: bodies are mostly such text.
func plainRun(b []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		// A byte's top bit is set if it is below 0x20, a quote or a backslash.
		// Borrows only disturb bytes above the first such byte.
		hit := ((x-ones*0x20)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & tops
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for i < len(b) && b[i] >= 0x20 && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// escapeLen is the length of the escape that b begins with, or 0.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b[2:]); ok {
			return 6
		}
	}
	return 0
}

// kindName names the JSON type of the value at the position.
func (s *scanner) kindName() string {
	switch c := s.peek(); c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	case 'N', 'I':
		return "a word"
	default:
		return "a number"
	}
}

// wrongType says that the value at the position is not what is wanted.
func (s *scanner) wrongType(want string) error {
	return trace.Invalid("", "is "+s.kindName()+", not "+want)
}
