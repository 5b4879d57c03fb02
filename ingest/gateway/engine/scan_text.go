package engine

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// text gives the string that is next, decoded; it is valid until the next one. Another
// value is passed over and gives nil.
func (s *scan) text() []byte {
	if s.peek() != '"' {
		s.skip()
		return nil
	}
	raw, escaped := s.inside()
	if escaped {
		return s.unescape(raw)
	}
	if !utf8.Valid(raw) {
		return bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	return raw
}

// str is text that may be kept.
func (s *scan) str() string { return string(s.text()) }

func (s *scan) unescape(raw []byte) []byte {
	out := s.scratch[:0]
	for i := 0; i < len(raw); {
		n := bytes.IndexByte(raw[i:], '\\')
		if n < 0 {
			n = len(raw) - i
		}
		if n > 0 {
			out = append(out, raw[i:i+n]...)
			i += n
			continue
		}
		if i+1 >= len(raw) {
			s.fail()
			break
		}
		i += 2
		switch c := raw[i-1]; c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := hex4(raw[i:])
			if !ok {
				s.fail()
				return nil
			}
			i += 4
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if i+1 < len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
					low, ok = hex4(raw[i+2:])
				}
				if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
					i += 6
				} else {
					r = utf8.RuneError // a lone half; what follows stands for itself
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			s.fail()
			return nil
		}
	}
	s.scratch = out
	if !utf8.Valid(out) {
		return bytes.ToValidUTF8(out, []byte("\uFFFD"))
	}
	return out
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
