package responses

import (
	"strconv"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/sse"
)

// member is a member of an event: a text, a number, or JSON.
type member struct {
	name string
	text *string
	n    int
	json []byte
}

func str(name, value string) member         { return member{name: name, text: &value} }
func number(name string, value int) member  { return member{name: name, n: value} }
func object(name string, raw []byte) member { return member{name: name, json: raw} }

func appendMember(dst []byte, m member) []byte {
	dst = append(append(append(dst, '"'), m.name...), '"', ':')
	switch {
	case m.text != nil:
		return body.AppendString(dst, *m.text)
	case m.json != nil:
		return append(dst, m.json...)
	}
	return strconv.AppendInt(dst, int64(m.n), 10)
}

// event writes one event. Their numbers rise by one, from 0 on.
func (s *stream) event(dst []byte, kind string, members ...member) []byte {
	b := append(append(append(s.buf[:0], `{"type":"`...), kind...), `",`...)
	b = appendMember(b, number("sequence_number", s.sequence))
	s.sequence++
	for i := range members {
		b = appendMember(append(b, ','), members[i])
	}
	b = append(b, '}')
	s.buf = b
	return sse.Event(dst, kind, s.buf)
}
