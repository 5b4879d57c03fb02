package enginetest

import "strconv"

// delta writes what a chunk's message goes on by, in one object.
func (d *chat) delta(dst []byte, c *call, p *piece) []byte {
	var g gathered // calls opened or continued in this chunk
	var calls []callDelta
	for _, part := range p.deltas {
		if part.call == nil {
			g.add([]delta{part})
			continue
		}
		if n := len(calls); n > 0 && calls[n-1].index == part.call.index {
			calls[n-1].arguments += part.call.arguments
		} else {
			calls = append(calls, *part.call)
		}
	}
	ch := &c.script.Chunks
	dst = append(dst, '{')
	if ch.RepeatRole || ch.NoRole && p.from == 0 {
		dst = append(dst, `"role":"assistant",`...)
	}
	if len(g.reasoning) > 0 {
		dst = append(append(append(dst, '"'), d.reasoning...), `":`...)
		dst = append(appendString(dst, string(g.reasoning)), ',')
	}
	if len(g.text) > 0 || len(g.reasoning) == 0 && len(calls) == 0 && p.finish == "" {
		dst = append(dst, `"content":`...)
		dst = append(appendString(dst, string(g.text)), ',')
	}
	if len(calls) > 0 {
		dst = append(dst, `"tool_calls":[`...)
		for i, call := range calls {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendCallDelta(dst, call, ch.NoCallIDs)
		}
		dst = append(dst, "],"...)
	} else if ch.EmptyCalls {
		dst = append(dst, `"tool_calls":[],`...)
	}
	if c.script.IDs.Answer == "misplaced" && d.ids && p.to > p.from {
		dst = append(dst, `"token_ids":`...)
		dst = append(appendIDs(dst, p.ids[p.from:p.to]), ',')
	}
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, '}')
}

func appendCallDelta(dst []byte, call callDelta, noID bool) []byte {
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(call.index), 10)
	if call.id != "" && !noID {
		dst = append(dst, `,"id":`...)
		dst = appendString(dst, call.id)
		dst = append(dst, `,"type":"function"`...)
	}
	dst = append(dst, `,"function":{`...)
	if call.id != "" {
		dst = append(dst, `"name":`...)
		dst = append(appendString(dst, call.name), ',')
	}
	dst = append(dst, `"arguments":`...)
	return append(appendString(dst, call.arguments), "}}"...)
}

// message writes a whole answer's message.
func (d *chat) message(dst []byte, c *call, a *answer) []byte {
	dst = append(dst, `{"role":"assistant","content":`...)
	switch {
	case len(a.whole.text) > 0 || d.generation != "" || len(a.whole.calls) == 0:
		dst = appendString(dst, string(a.whole.text))
	default:
		dst = append(dst, "null"...)
	}
	if len(a.whole.reasoning) > 0 && (c.req.IncludeReasoning == nil || *c.req.IncludeReasoning) {
		dst = append(append(append(dst, `,"`...), d.reasoning...), `":`...)
		dst = appendString(dst, string(a.whole.reasoning))
	}
	if len(a.whole.calls) > 0 || d.vllm {
		dst = append(dst, `,"tool_calls":[`...)
		for i, call := range a.whole.calls {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, '{')
			if !c.script.Chunks.NoCallIDs {
				dst = append(dst, `"id":`...)
				dst = append(appendString(dst, call.id), ',')
			}
			dst = append(dst, `"type":"function","function":{"name":`...)
			dst = appendString(dst, call.name)
			dst = append(dst, `,"arguments":`...)
			dst = append(appendString(dst, call.arguments), "}}"...)
		}
		dst = append(dst, ']')
	}
	if c.script.IDs.Answer == "misplaced" && d.ids {
		dst = append(dst, `,"token_ids":`...)
		dst = appendIDs(dst, a.drawn())
	}
	return append(dst, '}')
}

// whole writes the answer of a request that does not stream.
func (d *chat) whole(dst []byte, c *call) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, c.answerID())
	dst = append(dst, `,"object":"chat.completion","created":`...)
	dst = strconv.AppendInt(dst, c.created, 10)
	dst = append(dst, `,"model":`...)
	dst = appendString(dst, c.req.Model)
	dst = append(dst, `,"choices":[`...)
	for i, a := range c.answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		n := len(a.drawn())
		dst = append(dst, `{"index":`...)
		dst = strconv.AppendInt(dst, int64(a.index), 10)
		dst = append(dst, `,"message":`...)
		dst = d.message(dst, c, a)
		dst = append(dst, `,"logprobs":`...)
		if told := c.toldLogprobs(a, 0, n); d.logprobs && told != nil {
			dst = appendContent(dst, told, d.byID, d.top)
		} else {
			dst = append(dst, "null"...)
		}
		dst = d.finish(dst, c, a, a.finish)
		dst = d.choiceIDs(dst, c, a)
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	if c.script.Chunks.Usage != "absent" {
		dst = append(dst, `,"usage":`...)
		dst = c.appendUsage(dst)
	}
	dst = d.prompt(dst, c, false)
	if d.vllm && c.req.ReturnPromptText {
		dst = append(dst, `,"prompt_text":`...)
		dst = appendString(dst, Decode(c.prompt))
	}
	dst = d.sglangWhole(dst, c)
	return append(dst, '}')
}

// choiceIDs writes what a whole answer's choice tells of ids.
func (d *chat) choiceIDs(dst []byte, c *call, a *answer) []byte {
	n := len(a.drawn())
	dst = d.prompt(dst, c, true)
	if ids := c.toldIDs(a, 0, n); d.ids && ids != nil && c.script.IDs.Answer != "misplaced" {
		dst = append(dst, `,"token_ids":`...)
		dst = appendIDs(dst, ids)
	}
	return d.sglangChoice(dst, c, a)
}
