package body

import "bytes"

// split calls member for each part of an object or array that was checked. The name
// of an element is nil.
func split(raw []byte, member func(name, value []byte)) {
	object := raw[0] == '{'
	at := 1
	for {
		at = space(raw, at)
		if at >= len(raw) || raw[at] == '}' || raw[at] == ']' {
			return
		}
		if raw[at] == ',' {
			at = space(raw, at+1)
		}
		var name []byte
		if object {
			end := skip(raw, at)
			name = raw[at:end]
			at = space(raw, space(raw, end)+1) // past the colon
		}
		end := skip(raw, at)
		member(name, raw[at:end:end])
		at = end
	}
}

func space(raw []byte, at int) int {
	for at < len(raw) && (raw[at] == ' ' || raw[at] == '\n' || raw[at] == '\r' || raw[at] == '\t') {
		at++
	}
	return at
}

func trim(raw []byte) []byte { return bytes.Trim(raw, " \n\r\t") }

// skip gives where the value at a place ends, in JSON that was checked.
func skip(raw []byte, at int) int {
	depth := 0
	for at < len(raw) {
		switch raw[at] {
		case '"':
			at = text(raw, at)
			if depth == 0 {
				return at
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at // a number or word ended here
			}
			depth--
			if depth == 0 {
				return at + 1
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return at
			}
		}
		at++
	}
	return at
}

// text gives where the string at a place ends: behind a quote before which stands an
// even number of backslashes.
func text(raw []byte, at int) int {
	for at++; ; at++ {
		next := bytes.IndexByte(raw[at:], '"')
		if next < 0 {
			return len(raw)
		}
		begin := at
		at += next
		slashes := 0
		for at-slashes > begin && raw[at-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return at + 1
		}
	}
}
