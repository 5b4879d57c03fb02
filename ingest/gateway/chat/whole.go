package chat

import (
	"strconv"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// Whole gives an answer as one chat.completion object.
func (Provider) Whole(r *turn.Request, a *turn.Answer) ([]byte, error) {
	b := appendHead(nil, a.Head, "chat.completion")
	b = append(b, `,"choices":[`...)
	for i := range a.Choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendChoice(b, r, a, i)
	}
	b = append(b, `],"usage":`...)
	return append(appendUsage(b, a.Usage), '}'), nil
}

// WholeFlags says what was wrong with a whole answer.
func (Provider) WholeFlags(_ *turn.Request, a *turn.Answer) []string {
	var flags []string
	for _, c := range a.Choices {
		if _, known := finish(c.End); !known {
			flags = append(flags, FlagUnknownFinish)
		}
	}
	return flags
}

func appendChoice(b []byte, r *turn.Request, a *turn.Answer, i int) []byte {
	c := &a.Choices[i]
	text := c.Message.Text()
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(c.End.Choice), 10)
	b = append(b, `,"message":{"role":"assistant","content":`...)
	if text == "" && (len(c.Message.Calls) > 0 || c.Refusal != "") {
		b = append(b, "null"...)
	} else {
		b = body.AppendString(b, text)
	}
	b = append(b, `,"refusal":`...)
	if c.Refusal == "" {
		b = append(b, "null"...)
	} else {
		b = body.AppendString(b, c.Refusal)
	}
	if thought := c.Message.Reasoning; thought != nil && *thought != "" && !r.Reasoning.Hidden {
		b = append(b, `,"reasoning_content":`...)
		b = body.AppendString(b, *thought)
	}
	for j, call := range c.Message.Calls {
		if j == 0 {
			b = append(b, `,"tool_calls":[`...)
		} else {
			b = append(b, ',')
		}
		id := call.ID
		if id == "" {
			id = openai.CallID(traceOf(a.Head, c.End.Choice), j)
		}
		b = appendCall(b, -1, id, call.Name, call.Arguments)
	}
	if len(c.Message.Calls) > 0 {
		b = append(b, ']')
	}
	b = append(b, `},"logprobs":`...)
	b = appendLogprobs(b, r, c.Logprobs)
	b = append(b, `,"finish_reason":`...)
	reason, _ := finish(c.End)
	b = body.AppendString(b, reason)
	return append(b, '}')
}
