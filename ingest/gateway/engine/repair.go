package engine

import "bytes"

// repair copies JSON so that any reader takes it: the bare words NaN, Infinity and
// -Infinity become null, and bytes that are no UTF-8 U+FFFD.
func repair(raw []byte) []byte {
	if !bytes.ContainsAny(raw, "NI") {
		return bytes.ToValidUTF8(bytes.Clone(raw), []byte("\uFFFD"))
	}
	out := make([]byte, 0, len(raw))
	s := scan{b: raw}
	for s.i < len(raw) {
		from := s.i
		switch c := raw[s.i]; {
		case c == '"':
			s.inside()
			out = append(out, raw[from:s.i]...)
		case c == '-' && s.word("-Infinity"), s.word("NaN"), s.word("Infinity"):
			out = append(out, "null"...)
		default:
			out = append(out, c)
			s.i++
		}
	}
	return bytes.ToValidUTF8(out, []byte("\uFFFD"))
}
