// Package sse writes and reads streams of server-sent events as the HTML standard has
// them.
package sse

import "bytes"

// Event writes one event. An empty name writes none; data of several lines goes as
// several fields, so that a reader gets it back with \n between them.
func Event(dst []byte, event string, data []byte) []byte {
	if event != "" {
		dst = append(append(append(dst, "event: "...), event...), '\n')
	}
	return append(lines(dst, "data: ", data), '\n')
}

// Comment writes what readers skip: it keeps a connection awake.
func Comment(dst []byte, text string) []byte {
	return append(lines(dst, ": ", []byte(text)), '\n')
}

func lines(dst []byte, field string, text []byte) []byte {
	for {
		end := lineEnd(text)
		dst = append(dst, field...)
		if end < 0 {
			return append(append(dst, text...), '\n')
		}
		dst = append(append(dst, text[:end]...), '\n')
		if text[end] == '\r' && end+1 < len(text) && text[end+1] == '\n' {
			end++
		}
		text = text[end+1:]
	}
}

// lineEnd is where the first line ends, at CR or LF; -1: it goes on. (bytes.IndexAny goes
// byte by byte, which tells in a prompt's ids.)
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}
