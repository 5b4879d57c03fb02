package chat

import (
	"encoding/json"
	"strconv"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/sse"
	"icecore/ingest/gateway/turn"
)

// stream writes an answer as chat.completion.chunk events.
type stream struct {
	r     *turn.Request
	head  []byte         // what every chunk begins with
	calls []openai.Calls // per choice
	flags []string
	buf   []byte
}

var _ turn.Flagger = (*stream)(nil)

// Stream begins an answer that goes out as chunks.
func (Provider) Stream(r *turn.Request, h turn.Head) turn.Stream {
	s := &stream{r: r, head: appendHead(nil, h, "chat.completion.chunk"), calls: make([]openai.Calls, r.Choices())}
	for i := range s.calls {
		s.calls[i].TraceID = traceOf(h, i)
	}
	return s
}

func traceOf(h turn.Head, choice int) string {
	if choice < len(h.TraceIDs) {
		return h.TraceIDs[choice]
	}
	return h.ID
}

// Flags says what was wrong with the answer.
func (s *stream) Flags() []string { return s.flags }

// Start gives the role of each choice, once.
func (s *stream) Start(dst []byte) []byte {
	for i := range s.calls {
		dst = s.chunk(dst, i, `{"role":"assistant","content":""}`, nil, "")
	}
	return dst
}

// Delta gives at most one chunk for each of reasoning, text and refusal, and one for
// each call: clients do not all read a chunk that holds several of them.
func (s *stream) Delta(dst []byte, d turn.Delta) []byte {
	if d.Choice < 0 || d.Choice >= len(s.calls) {
		return dst
	}
	logprobs := d.Logprobs
	give := func(delta string) {
		dst = s.chunk(dst, d.Choice, delta, logprobs, "")
		logprobs = nil // once, with what comes first
	}
	for _, part := range []struct{ name, text string }{
		{"reasoning_content", d.Reasoning}, {"content", d.Text}, {"refusal", d.Refusal},
	} {
		if part.text == "" || part.name == "reasoning_content" && s.r.Reasoning.Hidden {
			continue
		}
		give(string(append(body.AppendString([]byte(`{"`+part.name+`":`), part.text), '}')))
	}
	for _, c := range d.Calls {
		call, begins, arguments := s.calls[d.Choice].Add(c)
		switch {
		case call == nil:
		case begins:
			give(beginning(call, arguments))
		case arguments != "":
			delta := strconv.AppendInt([]byte(`{"tool_calls":[{"index":`), int64(call.At), 10)
			delta = body.AppendString(append(delta, `,"function":{"arguments":`...), arguments)
			give(string(append(delta, `}}]}`...)))
		}
	}
	if s.r.Logprobs && logprobs != nil {
		give("{}") // of text that the engine holds back
	}
	return dst
}

func beginning(c *openai.Call, arguments string) string {
	delta := appendCall([]byte(`{"tool_calls":[`), c.At, c.ID, c.Name, arguments)
	return string(append(delta, `]}`...))
}

// Heartbeat is a comment: every reader of events skips it.
func (s *stream) Heartbeat(dst []byte) []byte { return sse.Comment(dst, "keep-alive") }

// End gives the finish reason of each choice, usage where asked for, and [DONE].
func (s *stream) End(dst []byte, ends []turn.End, u turn.Usage) []byte {
	for _, end := range ends {
		if end.Choice < 0 || end.Choice >= len(s.calls) {
			continue
		}
		s.calls[end.Choice].Rest(func(call *openai.Call, arguments string) {
			dst = s.chunk(dst, end.Choice, beginning(call, arguments), nil, "")
		})
		reason, known := finish(end)
		if !known {
			s.flags = append(s.flags, FlagUnknownFinish)
		}
		dst = s.chunk(dst, end.Choice, "{}", nil, reason)
	}
	if s.r.IncludeUsage {
		s.buf = append(s.buf[:0], s.head...)
		s.buf = append(s.buf, `,"choices":[],"usage":`...)
		s.buf = append(appendUsage(s.buf, u), '}')
		dst = sse.Event(dst, "", s.buf)
	}
	return sse.Event(dst, "", []byte("[DONE]"))
}

// passing marks a fault that another try may not meet. Inside a stream there is no
// status, and harnesses look for one in the message: measured, Qwen Code 0.15 tries
// again at HTTP_STATUS/503 and at nothing else we could say, Pi 0.73 at any 503.
const passing = " (HTTP_STATUS/503)"

// Fail gives the error as an event, and no [DONE] after it.
func (s *stream) Fail(dst []byte, f *turn.Fault) []byte {
	told := *f
	if f.Status >= 500 || f.Code == turn.CodeAborted {
		told.Message += passing
	}
	return sse.Event(dst, "", openai.AppendError(nil, &told))
}

// chunk writes one chunk of a choice. An empty reason is null.
func (s *stream) chunk(dst []byte, choice int, delta string, logprobs json.RawMessage, reason string) []byte {
	b := s.buf[:0]
	b = append(b, s.head...)
	b = append(b, `,"choices":[{"index":`...)
	b = strconv.AppendInt(b, int64(choice), 10)
	b = append(append(b, `,"delta":`...), delta...)
	b = append(b, `,"logprobs":`...)
	b = appendLogprobs(b, s.r, logprobs)
	b = append(b, `,"finish_reason":`...)
	if reason == "" {
		b = append(b, "null"...)
	} else {
		b = body.AppendString(b, reason)
	}
	b = append(b, `}]`...)
	if s.r.IncludeUsage {
		b = append(b, `,"usage":null`...)
	}
	b = append(b, '}')
	s.buf = b
	return sse.Event(dst, "", s.buf)
}
