package parser

import "bytes"

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
	callOpen   = "<tool_call>"
	callClose  = "</tool_call>"
)

// Each step looks at the front of the buffer, which is not empty, and gives some of
// it out or goes over to another step: true. False: it needs more.

// start looks for the mark that opens the thinking. A template may have written it
// already, and some models write it once more.
func (p *Parser) start() bool {
	space := blank(p.buf)
	switch begins(p.buf[space:], thinkOpen) {
	case yes:
		p.emit(asMark, space+len(thinkOpen))
		p.step = (*Parser).reasoning
		return true
	case maybe:
		if !p.final {
			return false
		}
	case no:
	}
	p.step = (*Parser).content
	if p.o.Inside {
		p.step = (*Parser).reasoning
	}
	return true
}

func (p *Parser) reasoning() bool {
	end := bytes.Index(p.buf, []byte(thinkClose))
	if at, sure := p.unclosed(end); at >= 0 {
		p.emit(asReasoning, at)
		if sure {
			p.step = (*Parser).content
		}
		return sure
	}
	if end >= 0 {
		p.emit(asReasoning, end)
		p.emit(asMark, len(thinkClose))
		p.step = (*Parser).content
		return true
	}
	return p.stream(asReasoning, overlap(p.buf, thinkClose))
}

// unclosed looks for a call before end (-1: everywhere) that begins while the thinking
// goes on: models that write <function= do that, and engines take it for the end of
// the thinking. A mere mention of the mark is not followed by <function=.
// at is -1 when there is none; not sure: what is there may become one.
func (p *Parser) unclosed(end int) (at int, sure bool) {
	if p.o.Tools != Qwen3Coder {
		return -1, false
	}
	within := p.buf
	if end >= 0 {
		within = p.buf[:end]
	}
	for from := 0; ; {
		i := bytes.Index(within[from:], []byte(callOpen))
		if i < 0 {
			break
		}
		at = from + i
		rest := p.buf[at+len(callOpen):]
		switch begins(rest[blank(rest):], functionOpen) {
		case yes:
			return at, true
		case maybe:
			if !p.final {
				return at, false
			}
		case no:
		}
		from = at + len(callOpen)
	}
	if n := overlap(within, callOpen); n > 0 && end < 0 && !p.final {
		return len(within) - n, false
	}
	return -1, false
}

func (p *Parser) content() bool {
	if p.grammar == nil {
		return p.stream(asText, 0)
	}
	space := 0
	if p.after {
		if space = blank(p.buf); space == len(p.buf) {
			if p.final {
				p.emit(asMark, space)
			}
			return false
		}
		switch begins(p.buf[space:], callOpen) {
		case yes:
			p.emit(asMark, space)
		case maybe:
			if !p.final {
				return false
			}
		case no:
		}
	}
	if at := bytes.Index(p.buf, []byte(callOpen)); at >= 0 {
		p.emit(asText, at)
		p.grammar.reset()
		p.step = (*Parser).call
		return true
	}
	return p.stream(asText, overlap(p.buf, callOpen))
}

// call stands at the mark that opens a call.
func (p *Parser) call() bool {
	v, c := p.grammar.scan(p.buf, p.final)
	switch v {
	case maybe:
		return false
	case yes:
		p.emitCall(c.length, c.name, c.arguments)
	case no:
		// What follows the mark is looked at again: a whole call may be within.
		p.emit(asText, len(callOpen))
	}
	p.step = (*Parser).content
	return true
}

// stream gives out all but the last held bytes, and but a rune's beginning.
func (p *Parser) stream(kind piece, held int) bool {
	n := len(p.buf)
	if !p.final {
		n -= max(held, cutRune(p.buf))
	}
	p.emit(kind, n)
	return false
}

type verdict int

const (
	no verdict = iota
	maybe
	yes
)

// begins says whether b begins with the mark; maybe: b is too short to tell.
func begins(b []byte, mark string) verdict {
	switch {
	case bytes.HasPrefix(b, []byte(mark)):
		return yes
	case len(b) < len(mark) && mark[:len(b)] == string(b):
		return maybe
	}
	return no
}

// found is a call and how many bytes it takes, marks included.
type found struct {
	length          int
	name, arguments string
}

// grammar is how calls are written.
type grammar interface {
	// reset forgets the call that was looked at.
	reset()
	// scan looks at b, which begins with callOpen and has only grown since reset. It
	// goes on where it stopped, so that many small pieces cost no more than one.
	scan(b []byte, final bool) (verdict, found)
}
