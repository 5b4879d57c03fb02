package parser

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"unicode/utf8"

	"icecore/ingest/gateway/turn"
)

// Names of parsers. Empty is None.
const (
	None       = "none"
	Think      = "think"       // <think>…</think>
	Hermes     = "hermes"      // <tool_call>{"name":…,"arguments":{…}}</tool_call>
	Qwen3Coder = "qwen3_coder" // <tool_call><function=name><parameter=x>…
)

// Options say what a text may hold.
type Options struct {
	// Reasoning is none or think.
	Reasoning string
	// Inside: the prompt ended within the thinking, so the text begins there.
	Inside bool
	// Tools is none, hermes or qwen3_coder. A call without tools to call should be
	// read with none.
	Tools string
	// Defs are the tools of the request: qwen3_coder writes no types, they come from
	// the schemas.
	Defs []turn.Tool
	// Seed makes ids of calls: the trace's id. Equal seeds give equal ids.
	Seed string
	// Choice is set in every delta.
	Choice int
}

// Check says whether the names of both parsers exist. Names that are empty do.
func Check(reasoning, tools string) error {
	switch reasoning {
	case "", None, Think:
	default:
		return fmt.Errorf("choose a reasoning parser: %q is not one of none, think", reasoning)
	}
	switch tools {
	case "", None, Hermes, Qwen3Coder:
	default:
		return fmt.Errorf("choose a tool parser: %q is not one of none, hermes, qwen3_coder", tools)
	}
	return nil
}

// Parser reads the text of one choice. Use it from one goroutine.
type Parser struct {
	o       Options
	grammar grammar
	step    func(*Parser) bool
	// buf is what has been given and not been decided.
	buf   []byte
	final bool
	// after: a call has just ended, white space is dropped until something else comes.
	after bool
	calls int
	out   []turn.Delta
	// raw, in tests, sees every byte once and in order.
	raw func(kind piece, b []byte)
}

type piece int

const (
	asMark piece = iota
	asReasoning
	asText
	asCall
)

// New makes a parser. The error names an unknown parser.
func New(o Options) (*Parser, error) {
	if err := Check(o.Reasoning, o.Tools); err != nil {
		return nil, err
	}
	p := &Parser{o: o, step: (*Parser).content}
	if o.Reasoning == Think {
		p.step = (*Parser).start
	}
	switch o.Tools {
	case Hermes:
		p.grammar = &hermes{}
	case Qwen3Coder:
		p.grammar = &coder{schemas: schemas(o.Defs)}
	}
	return p, nil
}

// Add takes the text that comes next and gives what it decides. Text is held back
// only while it may be part of a mark or of a call; no delta parts a rune.
func (p *Parser) Add(text string) []turn.Delta {
	p.buf = append(p.buf, text...)
	return p.run()
}

// End gives what was held, and the finish reason as the harness should see it: stop
// becomes tool_calls when there was a call, any other stays. A call that lacks nothing
// but its closing mark counts.
func (p *Parser) End(finish string) ([]turn.Delta, string) {
	p.final = true
	out := p.run()
	if p.calls > 0 && finish == turn.FinishStop {
		finish = turn.FinishToolCalls
	}
	return out, finish
}

// Calls is how many calls were found so far.
func (p *Parser) Calls() int { return p.calls }

// run makes steps until one has to wait for more.
func (p *Parser) run() []turn.Delta {
	whole := p.buf
	for len(p.buf) > 0 && p.step(p) {
	}
	if len(p.buf) < len(whole) {
		// What is left moves to the front, so that the buffer does not creep. It does not
		// move when nothing went: a long call in small pieces would be copied each time.
		p.buf = append(whole[:0], p.buf...)
	}
	out := p.out
	p.out = nil
	return out
}

// emit gives the first n bytes out as text or reasoning, or drops them as a mark.
func (p *Parser) emit(kind piece, n int) {
	if n == 0 {
		return
	}
	b := p.buf[:n]
	p.buf = p.buf[n:]
	if p.raw != nil {
		p.raw(kind, b)
	}
	switch kind {
	case asReasoning:
		if last := p.last(); last != nil && last.Text == "" && len(last.Calls) == 0 {
			last.Reasoning += string(b)
			return
		}
		p.out = append(p.out, turn.Delta{Choice: p.o.Choice, Reasoning: string(b)})
	case asText:
		p.after = false
		if last := p.last(); last != nil && len(last.Calls) == 0 {
			last.Text += string(b)
			return
		}
		p.out = append(p.out, turn.Delta{Choice: p.o.Choice, Text: string(b)})
	case asMark, asCall:
	}
}

// emitCall gives a call out, which the first n bytes hold.
func (p *Parser) emitCall(n int, name, arguments string) {
	p.emit(asCall, n)
	p.out = append(p.out, turn.Delta{Choice: p.o.Choice, Calls: []turn.CallDelta{{
		Index: p.calls, ID: CallID(p.o.Seed, p.calls), Name: name, Arguments: arguments,
	}}})
	p.calls++
	p.after = true
}

func (p *Parser) last() *turn.Delta {
	if len(p.out) == 0 {
		return nil
	}
	return &p.out[len(p.out)-1]
}

// CallID is the id of a call that the engine gave none: of the trace's id and the call's
// place in the answer. It is as long as engines make them, 24 hexadecimal digits.
func CallID(seed string, index int) string {
	sum := sha256.Sum256([]byte(seed + "/" + strconv.Itoa(index)))
	return "call_" + hex.EncodeToString(sum[:12])
}

// overlap is how many bytes at the end of b may begin the mark.
func overlap(b []byte, mark string) int {
	for n := min(len(b), len(mark)-1); n > 0; n-- {
		if bytes.HasSuffix(b, []byte(mark[:n])) {
			return n
		}
	}
	return 0
}

// cutRune is how many bytes at the end of b are the beginning of a rune.
func cutRune(b []byte) int {
	for n := 1; n <= min(len(b), utf8.UTFMax-1); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// blank is how many bytes of white space b begins with.
func blank(b []byte) int {
	return len(b) - len(bytes.TrimLeft(b, " \t\r\n"))
}
