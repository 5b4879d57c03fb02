package generate

import (
	"slices"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/sse"
	"icecore/ingest/gateway/turn"
)

// stream implements turn.Stream: as events, or as one JSON array.
type stream struct {
	names  turn.Names
	hidden bool
	array  bool
	head   turn.Head

	begun   bool        // something was sent
	choices []candidate // as many as were asked for
	flags   []string
	data    []byte // of the chunk that is being written
}

// candidate is one answer of n.
type candidate struct {
	thought []byte
	// held is what waits for the end: the first call, and all after it.
	held  []part
	calls map[int]int // places in held, by the engine's index
}

// part is text or a call. text is also the call's arguments.
type part struct {
	text    []byte
	thought bool
	call    *turn.Call
}

// Start implements turn.Stream. This API has no event for it.
func (s *stream) Start(dst []byte) []byte { return dst }

// Delta implements turn.Stream.
func (s *stream) Delta(dst []byte, d turn.Delta) []byte {
	if d.Choice < 0 || d.Choice >= len(s.choices) {
		return dst // an answer that nobody asked for
	}
	c := &s.choices[d.Choice]
	c.thought = append(c.thought, d.Reasoning...)
	var now []part
	for _, p := range []struct {
		text    string
		thought bool
	}{{d.Reasoning, true}, {d.Text, false}, {d.Refusal, false}} {
		switch {
		case p.text == "" || p.thought && s.hidden:
		case len(c.held) > 0:
			c.hold(p.text, p.thought)
		default:
			now = append(now, part{text: []byte(p.text), thought: p.thought})
		}
	}
	for _, delta := range d.Calls {
		c.call(delta)
	}
	if len(now) == 0 {
		return dst
	}
	s.data = append(s.data[:0], `{"candidates":[`...)
	s.data = append(s.appendCandidate(s.data, d.Choice, now, ""), `],`...)
	s.data = append(appendTail(s.data, &s.head), '}')
	return s.chunk(dst)
}

// hold keeps what was said after a call.
func (c *candidate) hold(text string, thought bool) {
	if last := &c.held[len(c.held)-1]; last.call == nil && last.thought == thought {
		last.text = append(last.text, text...)
		return
	}
	c.held = append(c.held, part{text: []byte(text), thought: thought})
}

func (c *candidate) call(d turn.CallDelta) {
	at, had := c.calls[d.Index]
	if !had {
		if c.calls == nil {
			c.calls = map[int]int{}
		}
		at = len(c.held)
		c.calls[d.Index] = at
		c.held = append(c.held, part{call: &turn.Call{}})
	}
	p := &c.held[at]
	if p.call.ID == "" {
		p.call.ID = d.ID
	}
	if p.call.Name == "" {
		p.call.Name = d.Name
	}
	p.text = append(p.text, d.Arguments...)
}

// chunk sends what was written to data.
func (s *stream) chunk(dst []byte) []byte {
	if !s.array {
		return sse.Event(dst, "", s.data)
	}
	if s.begun {
		dst = append(dst, ",\r\n"...)
	} else {
		dst = append(dst, '[')
	}
	s.begun = true
	return append(dst, s.data...)
}

// appendCandidate writes one candidate of a chunk. finish is empty but in the last.
func (s *stream) appendCandidate(dst []byte, i int, parts []part, finish string) []byte {
	c := &s.choices[i]
	var flagged bool
	w := writer{dst: dst, id: traceOf(&s.head, i), names: s.names, thought: string(c.thought), last: finish != ""}
	dst, flagged = w.candidate(i, parts, finish)
	if flagged && !slices.Contains(s.flags, turn.FlagInvalidArguments) {
		s.flags = append(s.flags, turn.FlagInvalidArguments)
	}
	return dst
}

// End implements turn.Stream.
func (s *stream) End(dst []byte, ends []turn.End, u turn.Usage) []byte {
	s.data = append(s.data[:0], `{"candidates":[`...)
	for _, end := range ends {
		if end.Choice < 0 || end.Choice >= len(s.choices) {
			continue
		}
		if s.data[len(s.data)-1] != '[' {
			s.data = append(s.data, ',')
		}
		s.data = s.appendCandidate(s.data, end.Choice, s.choices[end.Choice].held, finishOf(end))
	}
	s.data = append(s.data, `],"usageMetadata":`...)
	s.data = append(appendUsage(s.data, u, &s.head), ',')
	s.data = append(appendTail(s.data, &s.head), '}')
	dst = s.chunk(dst)
	if s.array {
		dst = append(dst, ']')
	}
	return dst
}

// Flags implements turn.Flagger.
func (s *stream) Flags() []string { return s.flags }

// Heartbeat implements turn.Stream.
func (s *stream) Heartbeat(dst []byte) []byte {
	if s.array {
		return append(dst, ' ')
	}
	return sse.Event(dst, "", []byte("{}"))
}

// Fail implements turn.Stream. An array stays open: it is no answer.
func (s *stream) Fail(dst []byte, f *turn.Fault) []byte {
	s.data = appendFault(s.data[:0], f)
	if s.array {
		return s.chunk(dst)
	}
	return append(append(dst, s.data...), "\n\n"...)
}

func appendTail(dst []byte, h *turn.Head) []byte {
	dst = body.AppendString(append(dst, `"modelVersion":`...), h.Model)
	return body.AppendString(append(dst, `,"responseId":`...), h.ID)
}

// traceOf is the trace of choice i.
func traceOf(h *turn.Head, i int) string {
	if i < len(h.TraceIDs) {
		return h.TraceIDs[i]
	}
	return h.ID
}
