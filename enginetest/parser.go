package enginetest

import (
	"fmt"
	"regexp"
	"strings"
)

// delta is what a choice's message went on by, in the order reasoning, text, call.
type delta struct {
	reasoning, text string
	call            *callDelta
}

// callDelta opens a call (id and name) or goes on with its arguments.
type callDelta struct {
	index     int
	id, name  string
	arguments string
}

// parser takes an answer's text apart as it grows, as the parsers of engines do:
// thinking, text, and calls between their marks. It holds back only what may still
// be part of a mark or of a call's frame. What is no proper call comes out as text.
type parser struct {
	thinking, tools bool   // which marks are read
	id              string // of the answer, for ids of calls
	state           int
	held            string
	calls           int
	open            bool   // the present call has been opened
	between         bool   // after a call, without text since
	gap             string // what stands there so far
}

const (
	atStart = iota
	inThinking
	inText
	inCall
)

var callHead = regexp.MustCompile(`^\s*\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"arguments"\s*:\s*`)

func (p *parser) push(text string) (out []delta) {
	p.held += text
	for {
		before := len(p.held)
		state := p.state
		out = p.step(out)
		if p.state == state && (len(p.held) == before || p.held == "") {
			return out
		}
	}
}

func (p *parser) step(out []delta) []delta {
	switch p.state {
	case atStart:
		if !p.thinking {
			p.state = inText
			return out
		}
		rest := strings.TrimLeft(p.held, " \n")
		switch {
		case strings.HasPrefix(rest, "<think>"):
			p.held, p.state = rest[len("<think>"):], inThinking
		case !strings.HasPrefix("<think>", rest): //nolint:gocritic // rest may be the mark's beginning
			p.state = inText
		}
	case inThinking:
		before, found := p.until("</think>")
		if before != "" {
			out = append(out, delta{reasoning: before})
		}
		if found {
			p.state = inText
		}
	case inText:
		if !p.tools {
			if p.held != "" {
				out = append(out, delta{text: p.held})
				p.held = ""
			}
			return out
		}
		before, found := p.until("<tool_call>")
		before = p.spaced(before)
		if before != "" {
			out = append(out, delta{text: before})
		}
		if found {
			p.state, p.open, p.gap = inCall, false, ""
		}
	case inCall:
		return p.stepCall(out)
	}
	return out
}

// spaced keeps back what may only separate calls.
func (p *parser) spaced(text string) string {
	if !p.between {
		return text
	}
	p.gap += text
	if strings.TrimSpace(p.gap) == "" {
		return ""
	}
	text, p.gap, p.between = p.gap, "", false
	return text
}

// until takes what stands before mark, or what cannot be part of it.
func (p *parser) until(mark string) (before string, found bool) {
	if before, after, found := strings.Cut(p.held, mark); found {
		p.held = after
		return before, true
	}
	keep := min(len(mark)-1, len(p.held))
	for keep > 0 && !strings.HasPrefix(mark, p.held[len(p.held)-keep:]) {
		keep--
	}
	before, p.held = p.held[:len(p.held)-keep], p.held[len(p.held)-keep:]
	return before, false
}

func (p *parser) stepCall(out []delta) []delta {
	if !p.open {
		m := callHead.FindStringSubmatch(p.held)
		if m != nil && len(m[0]) == len(p.held) {
			return out // spaces before the arguments may go on
		}
		if m == nil {
			if before, after, ended := strings.Cut(p.held, "</tool_call>"); ended {
				out = append(out, delta{text: "<tool_call>" + before + "</tool_call>"})
				p.held, p.state, p.between = after, inText, false
			}
			return out
		}
		p.held, p.open = p.held[len(m[0]):], true
		out = append(out, delta{call: &callDelta{index: p.calls, id: fmt.Sprintf("call_%s_%d", p.id, p.calls), name: unquote(m[1])}})
	}
	body, after, ended := strings.Cut(p.held, "</tool_call>")
	if ended {
		body = strings.TrimRight(body, " \n")
		body = strings.TrimSuffix(body, "}")
		p.held, p.state = after, inText
	} else {
		// The frame's own brace and the mark may have begun.
		at := len(body)
		if i := strings.LastIndexByte(body, '<'); i >= 0 && strings.HasPrefix("</tool_call>", body[i:]) { //nolint:gocritic // as in until
			at = i
		}
		body = strings.TrimRight(body[:at], "} \n")
		p.held = p.held[len(body):]
	}
	if body != "" {
		out = append(out, delta{call: &callDelta{index: p.calls, arguments: body}})
	}
	if ended {
		p.calls++
		p.between = true
	}
	return out
}

// end gives what was still held: the answer was cut.
func (p *parser) end() (out []delta) {
	held := p.held
	p.held = ""
	switch {
	case p.state == inThinking && held != "":
		return []delta{{reasoning: held}}
	case p.state == inCall && p.open:
		p.calls++
		if held != "" {
			return []delta{{call: &callDelta{index: p.calls - 1, arguments: held}}}
		}
		return nil
	case p.state == inCall:
		return []delta{{text: "<tool_call>" + held}}
	}
	if held = p.spaced(held); held != "" {
		return []delta{{text: held}}
	}
	return nil
}

func unquote(raw string) string {
	text, err := contentText([]byte(`"` + raw + `"`))
	if err != nil {
		return raw
	}
	return text
}

// gathered is an answer's message as it has become.
type gathered struct {
	reasoning, text []byte
	calls           []callDelta
}

func (g *gathered) add(deltas []delta) {
	for _, d := range deltas {
		g.reasoning = append(g.reasoning, d.reasoning...)
		g.text = append(g.text, d.text...)
		if d.call == nil {
			continue
		}
		if d.call.id != "" {
			g.calls = append(g.calls, *d.call)
		} else {
			g.calls[len(g.calls)-1].arguments += d.call.arguments
		}
	}
}
