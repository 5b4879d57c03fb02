package messages

import (
	"slices"
	"strconv"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/sse"
	"icecore/ingest/gateway/turn"
)

// stream implements turn.Stream. One block is open at a time; what comes for others
// waits until it can be closed. The last one is closed by End alone.
type stream struct {
	names  turn.Names
	hidden bool
	head   turn.Head

	started bool
	refused bool
	called  int
	next    int // index of the next block
	open    *block
	waiting []*block
	calls   map[int]*block // by the engine's index
	flags   []string
	data    []byte // of the event that is being written
}

// Start implements turn.Stream.
func (s *stream) Start(dst []byte) []byte {
	s.started = true
	s.data = append(s.data[:0], `{"type":"message_start","message":`...)
	s.data = appendHead(s.data, &s.head)
	s.data = append(s.data, `"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	s.data = append(appendUsage(s.data, turn.Usage{Prompt: s.head.PromptTokens}), "}}"...)
	return sse.Event(dst, "message_start", s.data)
}

// Delta implements turn.Stream.
func (s *stream) Delta(dst []byte, d turn.Delta) []byte {
	if d.Choice != 0 {
		return dst // this API has one answer
	}
	dst = s.say(dst, thinking, d.Reasoning)
	dst = s.say(dst, text, d.Text)
	dst = s.say(dst, text, d.Refusal)
	s.refused = s.refused || d.Refusal != ""
	for _, c := range d.Calls {
		dst = s.call(dst, c)
	}
	return dst
}

// say takes more of what is not a call.
func (s *stream) say(dst []byte, kind kind, more string) []byte {
	if more == "" {
		return dst
	}
	last := s.open
	if n := len(s.waiting); n > 0 {
		last = s.waiting[n-1]
	}
	if last == nil || last.kind != kind {
		last = &block{kind: kind}
		s.waiting = append(s.waiting, last)
	}
	last.add(more)
	return s.advance(dst, false)
}

// call takes more of a call.
func (s *stream) call(dst []byte, c turn.CallDelta) []byte {
	b := s.calls[c.Index]
	if b == nil {
		b = &block{kind: toolUse}
		s.calls[c.Index] = b
		s.waiting = append(s.waiting, b)
	}
	if b.gone {
		if strings.Trim(c.Arguments, " \t\r\n") != "" {
			s.flag(turn.FlagInvalidArguments) // more, after the object's end
		}
		return dst
	}
	if b.call.ID == "" {
		b.call.ID = c.ID
	}
	if b.call.Name == "" {
		b.call.Name = c.Name
	}
	b.add(c.Arguments)
	return s.advance(dst, false)
}

// advance sends what can be sent. At the end of the answer that is everything.
func (s *stream) advance(dst []byte, end bool) []byte {
	for {
		if s.open != nil {
			dst = s.send(dst, s.open.take())
		}
		next := len(s.waiting) > 0 && (end || s.waiting[0].startable())
		if s.open != nil && (end || next && s.open.over()) {
			dst = s.shut(dst)
		}
		if s.open != nil || !next {
			return dst
		}
		s.open, s.waiting = s.waiting[0], s.waiting[1:]
		dst = s.begin(dst)
	}
}

// begin opens the block; its body comes in deltas.
func (s *stream) begin(dst []byte) []byte {
	s.data = strconv.AppendInt(append(s.data[:0], `{"type":"content_block_start","index":`...), int64(s.next), 10)
	s.data = append(s.data, `,"content_block":`...)
	switch b := s.open; b.kind {
	case thinking:
		s.data = append(s.data, `{"type":"thinking","thinking":"","signature":""}`...)
	case text:
		s.data = append(s.data, `{"type":"text","text":""}`...)
	case toolUse:
		if b.call.ID == "" {
			b.call.ID = mint(s.head.ID, s.called)
		}
		s.called++
		s.data = appendToolUse(s.data, s.names, &b.call, raw("{}"))
	}
	s.next++
	return sse.Event(dst, "content_block_start", append(s.data, '}'))
}

// send writes what came for the open block.
func (s *stream) send(dst, more []byte) []byte {
	if len(more) == 0 {
		return dst
	}
	switch s.open.kind {
	case thinking:
		if s.hidden {
			return dst
		}
		return s.delta(dst, "thinking_delta", "thinking", string(more))
	case toolUse:
		return s.delta(dst, "input_json_delta", "partial_json", string(more))
	case text:
	}
	return s.delta(dst, "text_delta", "text", string(more))
}

func (s *stream) delta(dst []byte, kind, member, more string) []byte {
	s.data = strconv.AppendInt(append(s.data[:0], `{"type":"content_block_delta","index":`...), int64(s.next-1), 10)
	s.data = append(append(s.data, `,"delta":{"type":"`...), kind...)
	s.data = append(append(append(s.data, `","`...), member...), `":`...)
	return sse.Event(dst, "content_block_delta", append(body.AppendString(s.data, more), "}}"...))
}

// shut closes the open block.
func (s *stream) shut(dst []byte) []byte {
	b := s.open
	switch b.kind {
	case thinking:
		anchor := turn.Anchor{TraceID: s.head.ID, Reasoning: string(b.all)}
		dst = s.delta(dst, "signature_delta", "signature", anchor.Seal())
	case toolUse:
		b.call.Arguments = string(b.all)
		if _, valid := b.call.Input(); !valid {
			s.flag(turn.FlagInvalidArguments)
		}
		if !b.sent {
			dst = s.delta(dst, "input_json_delta", "partial_json", "{}")
		}
	case text:
	}
	s.open, b.gone = nil, true
	s.data = strconv.AppendInt(append(s.data[:0], `{"type":"content_block_stop","index":`...), int64(s.next-1), 10)
	return sse.Event(dst, "content_block_stop", append(s.data, '}'))
}

func (s *stream) flag(word string) {
	if !slices.Contains(s.flags, word) {
		s.flags = append(s.flags, word)
	}
}

// Flags implements turn.Flagger.
func (s *stream) Flags() []string { return s.flags }

// Heartbeat implements turn.Stream. Nothing but a comment may come before message_start.
func (s *stream) Heartbeat(dst []byte) []byte {
	if !s.started {
		return sse.Comment(dst, "waiting")
	}
	return sse.Event(dst, "ping", []byte(`{"type":"ping"}`))
}

// End implements turn.Stream.
func (s *stream) End(dst []byte, ends []turn.End, u turn.Usage) []byte {
	dst = s.advance(dst, true)
	var end turn.End
	for _, e := range ends {
		if e.Choice == 0 {
			end = e
		}
	}
	if u.Prompt == nil {
		u.Prompt = s.head.PromptTokens
	}
	s.data = append(s.data[:0], `{"type":"message_delta","delta":{`...)
	s.data = append(appendStop(s.data, end, s.called > 0, s.refused), `},"usage":`...)
	s.data = append(appendUsage(s.data, u), '}')
	dst = sse.Event(dst, "message_delta", s.data)
	return sse.Event(dst, "message_stop", []byte(`{"type":"message_stop"}`))
}

// Fail implements turn.Stream.
func (s *stream) Fail(dst []byte, f *turn.Fault) []byte {
	return sse.Event(dst, "error", appendFault(nil, f, s.head.ID))
}
