package body

import "bytes"

// LoneSurrogate says whether a string of JSON that was checked escapes half a surrogate
// pair, which is no character: String gives U+FFFD for it. Clients in JavaScript send
// such halves where they cut a text in the middle of a pair.
func LoneSurrogate(raw []byte) bool {
	for {
		at := bytes.IndexByte(raw, '\\')
		if at < 0 || at+1 >= len(raw) {
			return false
		}
		raw = raw[at:]
		first, ok := surrogate(raw)
		if !ok {
			raw = raw[2:] // another escape, or a whole character
			continue
		}
		second, ok := surrogate(raw[6:])
		if !ok || first >= 0xdc00 || second < 0xdc00 {
			return true
		}
		raw = raw[12:]
	}
}

// surrogate reads the escape that raw begins with; false: it is of no surrogate.
func surrogate(raw []byte) (half int, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' || raw[2]|0x20 != 'd' {
		return 0, false
	}
	for _, c := range raw[2:6] {
		switch {
		case '0' <= c && c <= '9':
			half = half<<4 | int(c-'0')
		default:
			half = half<<4 | int(c|0x20-'a'+10)
		}
	}
	return half, half >= 0xd800
}
