package body

import "unicode/utf8"

// AppendString writes s as a JSON string. Of what JSON lets stand it escapes only
// U+0085, U+2028 and U+2029, which some readers of event streams take for ends of
// lines. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= 0x20 && b < utf8.RuneSelf && b != '"' && b != '\\' {
			i++
			continue
		}
		r, n := rune(b), 1
		if b >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(s[i:])
			if (r != utf8.RuneError || n > 1) && r != 0x85 && r != 0x2028 && r != 0x2029 {
				i += n
				continue
			}
		}
		dst = append(dst, s[done:i]...)
		switch r {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case utf8.RuneError:
			dst = append(dst, "\ufffd"...)
		default:
			dst = append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
		}
		i += n
		done = i
	}
	return append(append(dst, s[done:]...), '"')
}
