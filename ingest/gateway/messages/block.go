package messages

import (
	"icecore/ingest/gateway/turn"
)

// kind is a content block's type, which never changes under its index.
type kind string

const (
	thinking kind = "thinking"
	text     kind = "text"
	toolUse  kind = "tool_use"
)

// block is a content block of an answer that is on its way.
type block struct {
	kind kind
	call turn.Call
	// pending is what came and was not sent.
	pending []byte
	// all is what came, of thinking and of arguments.
	all  []byte
	scan scan
	sent bool
	// gone: the block was closed.
	gone bool
}

// add takes what came of the block.
func (b *block) add(s string) {
	b.pending = append(b.pending, s...)
	switch b.kind {
	case thinking:
		b.all = append(b.all, s...)
	case toolUse:
		b.all = append(b.all, s...)
		b.scan.add(s)
	case text:
	}
}

// startable says that the block can begin: a call needs its name.
func (b *block) startable() bool { return b.kind != toolUse || b.call.Name != "" }

// over says that the block can end where another waits. Arguments have to be whole:
// engines may write two calls at once.
func (b *block) over() bool { return b.kind != toolUse || b.scan.done }

// take gives what is to be sent now, empty: nothing. Arguments that do not begin as an
// object are held back.
func (b *block) take() []byte {
	if b.kind == toolUse && !b.scan.object {
		return nil
	}
	p := b.pending
	b.pending = b.pending[:0]
	b.sent = b.sent || len(p) > 0
	return p
}

// scan finds the end of an object that comes in pieces. It trusts that it is JSON.
type scan struct {
	// begun: something but space was seen; object: it was an opening brace; done: its
	// closing brace was seen as well.
	begun, object, done bool

	depth          int
	inside, escape bool // a string; the byte after a backslash
}

func (s *scan) add(more string) {
	for i := 0; i < len(more) && !s.done; i++ {
		c := more[i]
		switch {
		case !s.begun:
			if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
				continue
			}
			s.begun = true
			if s.object = c == '{'; s.object {
				s.depth = 1
			}
		case !s.object:
			return
		case s.escape:
			s.escape = false
		case s.inside:
			s.escape = c == '\\'
			s.inside = c != '"'
		case c == '"':
			s.inside = true
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			s.depth--
			s.done = s.depth == 0
		}
	}
}
