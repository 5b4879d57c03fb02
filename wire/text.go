package wire

import (
	"unicode/utf8"
)

// text reads a string value. Lone surrogates and invalid UTF-8 become U+FFFD
// and set s.repaired.
func (s *scanner) text() (string, error) {
	if s.peek() != '"' {
		return "", s.wrongType("a string")
	}
	b, err := s.textBytes()
	return string(b), err
}

// textBytes is text for a position known to hold a string; the result is valid
// until the next call.
func (s *scanner) textBytes() ([]byte, error) {
	raw, escaped, err := s.rawString()
	if err != nil || !escaped && utf8.Valid(raw) {
		return raw, err
	}
	s.scratch = s.appendText(s.scratch[:0], raw)
	return s.scratch, nil
}

// appendText appends what the inside of a valid JSON string means.
func (s *scanner) appendText(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		switch {
		case c == '\\' && raw[i+1] == 'u':
			r, n := unescapeRune(raw[i:])
			s.repaired = s.repaired || r < 0
			if r < 0 {
				r = utf8.RuneError
			}
			dst = utf8.AppendRune(dst, r)
			i += n
		case c == '\\':
			dst = append(dst, unescapeByte(raw[i+1]))
			i += 2
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, n := utf8.DecodeRune(raw[i:])
			s.repaired = s.repaired || r == utf8.RuneError && n == 1
			dst = utf8.AppendRune(dst, r)
			i += n
		}
	}
	return dst
}

// unescapeRune reads \uXXXX, or two of them that form a surrogate pair. It
// gives -1 for half a pair.
func unescapeRune(b []byte) (r rune, size int) {
	r, _ = hex4(b[2:])
	if r < 0xD800 || r > 0xDFFF {
		return r, 6
	}
	if r < 0xDC00 && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if low, _ := hex4(b[8:]); low >= 0xDC00 && low <= 0xDFFF {
			return (r-0xD800)<<10 + (low - 0xDC00) + 0x10000, 12
		}
	}
	return -1, 6
}

func unescapeByte(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		d := hexDigit(c)
		if d < 0 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// repairText makes text that did not come as JSON valid UTF-8, as appendText
// does: one U+FFFD per invalid byte.
func repairText(b []byte) (string, bool) {
	if utf8.Valid(b) {
		return string(b), false
	}
	out := make([]byte, 0, len(b)+8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		out = utf8.AppendRune(out, r)
		b = b[n:]
	}
	return string(out), true
}

// appendQuoted writes text as a JSON string with no escape that JSON does not
// require.
func appendQuoted[B []byte | string](dst []byte, text B) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, text[from:]...)
	return append(dst, '"')
}
