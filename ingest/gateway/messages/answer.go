package messages

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// Whole implements turn.Provider.
func (Provider) Whole(r *turn.Request, a *turn.Answer) ([]byte, error) {
	if len(a.Choices) == 0 {
		return nil, errors.New("write message: the answer has no choice")
	}
	c := &a.Choices[0]
	dst := append(appendHead(nil, &a.Head), `"content":[`...)
	comma := func() {
		if dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
	}
	if thought := c.Message.Reasoning; thought != nil && *thought != "" {
		shown := *thought
		if r.Reasoning.Hidden {
			shown = ""
		}
		dst = body.AppendString(append(dst, `{"type":"thinking","thinking":`...), shown)
		anchor := turn.Anchor{TraceID: a.Head.ID, Reasoning: *thought}
		dst = append(body.AppendString(append(dst, `,"signature":`...), anchor.Seal()), '}')
	}
	if said := c.Message.Text() + c.Refusal; said != "" {
		comma()
		dst = append(body.AppendString(append(dst, `{"type":"text","text":`...), said), '}')
	}
	for i, call := range c.Message.Calls {
		comma()
		if call.ID == "" {
			call.ID = mint(a.Head.ID, i)
		}
		input, _ := call.Input() // not valid: {}
		dst = appendToolUse(dst, r.Names, &call, input)
	}
	dst = append(dst, `],`...)
	dst = append(appendStop(dst, c.End, len(c.Message.Calls) > 0, c.Refusal != ""), `,"usage":`...)
	u := a.Usage
	if u.Prompt == nil {
		u.Prompt = a.Head.PromptTokens
	}
	return append(appendUsage(dst, u), '}'), nil
}

// WholeFlags implements turn.WholeFlagger.
func (Provider) WholeFlags(_ *turn.Request, a *turn.Answer) []string {
	if len(a.Choices) == 0 {
		return nil
	}
	for i := range a.Choices[0].Message.Calls {
		if _, valid := a.Choices[0].Message.Calls[i].Input(); !valid {
			return []string{turn.FlagInvalidArguments}
		}
	}
	return nil
}

// appendHead begins a message, up to its content.
func appendHead(dst []byte, h *turn.Head) []byte {
	dst = body.AppendString(append(dst, `{"id":`...), "msg_"+plain(h.ID))
	dst = body.AppendString(append(dst, `,"type":"message","role":"assistant","model":`...), h.Model)
	return append(dst, ',')
}

// plain is a trace's id as this API's ids look.
func plain(id string) string { return strings.ReplaceAll(id, "-", "") }

// mint makes an id for the call that an engine gave none.
func mint(id string, at int) string { return fmt.Sprintf("toolu_%s_%d", plain(id), at) }

func appendToolUse(dst []byte, names turn.Names, c *turn.Call, input raw) []byte {
	dst = body.AppendString(append(dst, `{"type":"tool_use","id":`...), c.ID)
	dst = body.AppendString(append(dst, `,"name":`...), names.Of(c.Name).Name)
	return append(append(append(dst, `,"input":`...), input...), '}')
}

// appendStop writes why the answer ended. Engines say stop for calls that were asked
// for by tool_choice; harnesses look for tool_use.
func appendStop(dst []byte, e turn.End, called, refused bool) []byte {
	reason := "end_turn"
	switch {
	case refused || e.Finish == turn.FinishContentFilter:
		reason = "refusal"
	case e.Finish == turn.FinishLength:
		reason = "max_tokens"
	case e.StopSequence != "":
		reason = "stop_sequence"
	case e.Finish == turn.FinishToolCalls || called:
		reason = "tool_use"
	}
	dst = append(append(append(dst, `"stop_reason":"`...), reason...), `","stop_sequence":`...)
	if reason != "stop_sequence" {
		return append(dst, "null"...)
	}
	return body.AppendString(dst, e.StopSequence)
}

// appendUsage writes counts; cached tokens are not part of input_tokens here.
func appendUsage(dst []byte, u turn.Usage) []byte {
	cached := min(turn.Count(u.Cached), turn.Count(u.Prompt))
	dst = strconv.AppendInt(append(dst, `{"input_tokens":`...), turn.Count(u.Prompt)-cached, 10)
	dst = strconv.AppendInt(append(dst, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`...), cached, 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens":`...), turn.Count(u.Completion), 10)
	return append(dst, '}')
}
