package responses

import (
	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// Flags of answers that were told otherwise than they were.
const (
	FlagLengthAsCompleted = "length_as_completed"
	FlagUnknownFinish     = "unknown_finish_reason"
)

// End does the items that are left and tells the whole answer.
func (s *stream) End(dst []byte, ends []turn.End, u turn.Usage) []byte {
	dst, why := s.finishAll(dst, ends)
	status := completed
	if why != "" {
		status = incomplete
	}
	return s.event(dst, "response."+status, object("response", s.response(status, why, u, true)))
}

// finishAll does every item. Why is the reason of an answer that is incomplete, else
// empty; its last item is incomplete as well.
func (s *stream) finishAll(dst []byte, ends []turn.End) (out []byte, why string) {
	for _, end := range ends {
		if end.Choice == 0 {
			why = s.why(end.Finish)
		}
	}
	s.calls.Rest(func(call *openai.Call, arguments string) {
		dst = s.begin(dst, call)
		dst = s.argue(dst, s.byCall[call], arguments)
	})
	if s.r.Compact {
		o := &output{kind: itemCompaction, sealed: turn.Anchor{TraceID: s.head.ID, Reasoning: string(s.summary)}.Seal()}
		dst = s.open(dst, o)
	}
	for i, o := range s.items {
		status := completed
		if why != "" && i == len(s.items)-1 {
			status = incomplete
		}
		dst = s.finish(dst, o, status)
	}
	return dst, why
}

func (s *stream) why(finish string) string {
	switch finish {
	case turn.FinishLength:
		if s.r.LengthAsCompleted {
			s.flag(FlagLengthAsCompleted)
			return ""
		}
		return "max_output_tokens"
	case turn.FinishContentFilter:
		return "content_filter"
	case turn.FinishStop, turn.FinishToolCalls:
	default:
		s.flag(FlagUnknownFinish)
	}
	return ""
}

// Fail gives an error event. It is never response.failed, after which Codex gives up.
func (s *stream) Fail(dst []byte, f *turn.Fault) []byte {
	field := []byte("null")
	if f.Field != "" {
		field = body.AppendString(nil, f.Field)
	}
	return s.event(dst, "error", str("code", openai.Code(f)), str("message", openai.Message(f)), object("param", field))
}

// Whole gives an answer as one response object: the one that a stream of it ends with.
func (Provider) Whole(r *turn.Request, a *turn.Answer) ([]byte, error) {
	s, why := played(r, a)
	status := completed
	if why != "" {
		status = incomplete
	}
	return s.response(status, why, a.Usage, true), nil
}

// WholeFlags says what was wrong with a whole answer.
func (Provider) WholeFlags(r *turn.Request, a *turn.Answer) []string {
	s, _ := played(r, a)
	return s.flags
}

// played is the stream of a whole answer, at its end.
func played(r *turn.Request, a *turn.Answer) (s *stream, why string) {
	s = newStream(r, a.Head)
	if len(a.Choices) == 0 {
		return s, ""
	}
	c := &a.Choices[0]
	d := turn.Delta{Text: c.Message.Text(), Refusal: c.Refusal}
	if c.Message.Reasoning != nil {
		d.Reasoning = *c.Message.Reasoning
	}
	for i, call := range c.Message.Calls {
		d.Calls = append(d.Calls, turn.CallDelta{Index: i, ID: call.ID, Name: call.Name, Arguments: call.Arguments})
	}
	s.Delta(nil, d)
	_, why = s.finishAll(nil, []turn.End{{Finish: c.End.Finish}})
	return s, why
}
