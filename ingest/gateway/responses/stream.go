package responses

import (
	"slices"

	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// Kinds of parts.
const (
	partThought = "reasoning_text"
	partText    = "output_text"
	partRefusal = "refusal"
)

// stream writes an answer as events of the Responses API. An item of reasoning or text
// is done when the next begins; calls, which engines may write in turns, and the last
// item are done at the end.
type stream struct {
	r        *turn.Request
	head     turn.Head
	sequence int
	items    []*output
	// speaking is the item of reasoning or text that goes on; nil: none.
	speaking *output
	calls    openai.Calls
	byCall   map[*openai.Call]*output
	flags    []string
	summary  []byte // of a compaction
	buf      []byte
}

var _ turn.Flagger = (*stream)(nil)

// Stream begins an answer that goes out as events.
func (Provider) Stream(r *turn.Request, h turn.Head) turn.Stream { return newStream(r, h) }

func newStream(r *turn.Request, h turn.Head) *stream {
	return &stream{r: r, head: h, calls: openai.Calls{TraceID: h.ID}, byCall: map[*openai.Call]*output{}}
}

// Flags says what was wrong with the answer, and where it was told otherwise than it was.
func (s *stream) Flags() []string { return s.flags }

func (s *stream) flag(word string) {
	if !slices.Contains(s.flags, word) {
		s.flags = append(s.flags, word)
	}
}

// Start announces the answer.
func (s *stream) Start(dst []byte) []byte {
	dst = s.event(dst, "response.created", object("response", s.response(inProgress, "", turn.Usage{}, true)))
	return s.Heartbeat(dst)
}

// Heartbeat is an event: Codex does not count comments. It leaves out instructions and
// tools, which may be long.
func (s *stream) Heartbeat(dst []byte) []byte {
	return s.event(dst, "response.in_progress", object("response", s.response(inProgress, "", turn.Usage{}, false)))
}

// Delta goes on with an item, or begins the next.
func (s *stream) Delta(dst []byte, d turn.Delta) []byte {
	if d.Choice != 0 {
		return dst // this API has one answer
	}
	if s.r.Compact {
		s.summary = append(s.summary, d.Text...) // one item, which is told whole
		return dst
	}
	dst = s.speak(dst, itemReasoning, partThought, d.Reasoning)
	dst = s.speak(dst, itemMessage, partText, d.Text)
	dst = s.speak(dst, itemMessage, partRefusal, d.Refusal)
	for _, c := range d.Calls {
		call, begins, arguments := s.calls.Add(c)
		if call == nil {
			continue
		}
		if begins {
			dst = s.begin(dst, call)
		}
		dst = s.argue(dst, s.byCall[call], arguments)
	}
	return dst
}

func (s *stream) open(dst []byte, o *output) []byte {
	o.at = len(s.items)
	o.id = itemID(o.kind, s.head.ID, o.at)
	o.status = inProgress
	s.items = append(s.items, o)
	return s.event(dst, "response.output_item.added", number("output_index", o.at), object("item", o.append(nil, true)))
}

// speak goes on with reasoning or text.
func (s *stream) speak(dst []byte, kind, part, text string) []byte {
	if text == "" {
		return dst
	}
	o := s.speaking
	if o == nil || o.kind != kind {
		dst = s.quiet(dst)
		o = &output{kind: kind}
		s.speaking = o
		dst = s.open(dst, o)
	}
	if n := len(o.parts); n == 0 || o.parts[n-1].kind != part {
		dst = s.closePart(dst, o)
		o.parts = append(o.parts, outputPart{kind: part})
		dst = s.partEvent(dst, o, "response.content_part.added", object("part", o.parts[n].append(nil, false)))
	}
	p := &o.parts[len(o.parts)-1]
	p.text = append(p.text, text...)
	if part == partText {
		return s.partEvent(dst, o, "response.output_text.delta", str("delta", text), object("logprobs", []byte("[]")))
	}
	return s.partEvent(dst, o, "response."+part+".delta", str("delta", text))
}

// partEvent writes an event of an item's last part.
func (s *stream) partEvent(dst []byte, o *output, kind string, members ...member) []byte {
	return s.event(dst, kind, append([]member{
		str("item_id", o.id), number("output_index", o.at), number("content_index", len(o.parts)-1),
	}, members...)...)
}

func (s *stream) closePart(dst []byte, o *output) []byte {
	if len(o.parts) == 0 {
		return dst
	}
	p := &o.parts[len(o.parts)-1]
	switch p.kind {
	case partText:
		dst = s.partEvent(dst, o, "response.output_text.done", str("text", string(p.text)), object("logprobs", []byte("[]")))
	case partThought:
		dst = s.partEvent(dst, o, "response.reasoning_text.done", str("text", string(p.text)))
	default:
		dst = s.partEvent(dst, o, "response.refusal.done", str("refusal", string(p.text)))
	}
	return s.partEvent(dst, o, "response.content_part.done", object("part", p.append(nil, true)))
}

// quiet ends the item of reasoning or text that went on.
func (s *stream) quiet(dst []byte) []byte {
	if s.speaking == nil {
		return dst
	}
	return s.finish(dst, s.speaking, completed)
}

func (s *stream) begin(dst []byte, call *openai.Call) []byte {
	dst = s.quiet(dst)
	o := &output{kind: itemFunction, call: call, name: s.r.Names.Of(call.Name)}
	if o.name.Custom {
		o.kind, o.input = itemCustom, &openai.Input{}
	}
	s.byCall[call] = o
	return s.open(dst, o)
}

// argue goes on with what a call is told.
func (s *stream) argue(dst []byte, o *output, arguments string) []byte {
	if o.input != nil {
		arguments = o.input.Add(arguments)
	}
	return s.argued(dst, o, arguments)
}

func (s *stream) argued(dst []byte, o *output, text string) []byte {
	if text == "" {
		return dst
	}
	o.text = append(o.text, text...)
	return s.callEvent(dst, o, "delta", str("delta", text))
}

func (s *stream) callEvent(dst []byte, o *output, what string, last member) []byte {
	kind := "response.function_call_arguments."
	if o.kind == itemCustom {
		kind = "response.custom_tool_call_input."
	}
	return s.event(dst, kind+what, str("item_id", o.id), number("output_index", o.at), last)
}

// finish gives the whole item, once.
func (s *stream) finish(dst []byte, o *output, status string) []byte {
	if o.finished {
		return dst
	}
	switch o.kind {
	case itemReasoning:
		dst = s.closePart(dst, o)
		text := ""
		for i := range o.parts {
			text += string(o.parts[i].text)
		}
		o.sealed = turn.Anchor{TraceID: s.head.ID, Reasoning: text}.Seal()
	case itemMessage:
		dst = s.closePart(dst, o)
	case itemFunction, itemCustom:
		if o.input != nil {
			dst = s.argued(dst, o, o.input.End())
			if o.input.Invalid() {
				s.flag(openai.FlagInvalidInput)
			}
		}
		dst = s.callEvent(dst, o, "done", str(o.argument(), string(o.text)))
	}
	if s.speaking == o {
		s.speaking = nil
	}
	o.finished, o.status = true, status
	return s.event(dst, "response.output_item.done", number("output_index", o.at), object("item", o.append(nil, false)))
}
