package responses

import (
	"strconv"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// Kinds of items that an answer is made of.
const (
	itemReasoning  = "reasoning"
	itemMessage    = "message"
	itemFunction   = "function_call"
	itemCustom     = "custom_tool_call"
	itemCompaction = "compaction"
)

// prefixes of items' ids, by kind.
var prefixes = map[string]string{
	itemReasoning: "rs_", itemMessage: "msg_", itemFunction: "fc_", itemCustom: "ctc_", itemCompaction: "cmp_",
}

// States of items and answers.
const (
	inProgress = "in_progress"
	completed  = "completed"
	incomplete = "incomplete"
)

// output is one item of an answer.
type output struct {
	kind string
	id   string
	at   int // its output_index
	// parts of a message; a reasoning item has one.
	parts []outputPart
	// call and name of a call, and what it was told so far: arguments, or free text.
	call     *openai.Call
	name     turn.ToolName
	input    *openai.Input // of a custom call
	text     []byte
	sealed   string // anchor of a reasoning item, once it is done
	status   string
	finished bool
}

type outputPart struct {
	kind string // reasoning_text, output_text, refusal
	text []byte
}

// part writes a part of a message or of reasoning, with its text or without.
func (p *outputPart) append(dst []byte, withText bool) []byte {
	member := "text"
	if p.kind == partRefusal {
		member = partRefusal
	}
	text := ""
	if withText {
		text = string(p.text)
	}
	dst = append(append(append(dst, `{"type":"`...), p.kind...), `",`...)
	dst = appendMember(dst, str(member, text))
	if p.kind == partText {
		dst = append(dst, `,"annotations":[],"logprobs":[]`...)
	}
	return append(dst, '}')
}

// append writes the item: as it begins (in progress, empty), or as it is.
func (o *output) append(dst []byte, begins bool) []byte {
	status := o.status
	if begins {
		status = inProgress
	}
	dst = append(dst, `{"id":`...)
	dst = body.AppendString(dst, o.id)
	dst = append(append(append(dst, `,"type":"`...), o.kind...), `","status":"`...)
	dst = append(append(dst, status...), '"')
	switch o.kind {
	case itemReasoning:
		dst = append(dst, `,"summary":[],"content":`...)
		dst = o.appendParts(dst, begins)
		if o.sealed != "" {
			dst = appendMember(append(dst, ','), str("encrypted_content", o.sealed))
		}
	case itemMessage:
		dst = append(dst, `,"role":"assistant","content":`...)
		dst = o.appendParts(dst, begins)
	case itemCompaction:
		dst = appendMember(append(dst, ','), str("encrypted_content", o.sealed))
	default:
		dst = appendMember(append(dst, ','), str("call_id", o.call.ID))
		dst = appendMember(append(dst, ','), str("name", o.name.Name))
		if o.name.Namespace != "" {
			dst = appendMember(append(dst, ','), str("namespace", o.name.Namespace))
		}
		text := ""
		if !begins {
			text = string(o.text)
		}
		dst = appendMember(append(dst, ','), str(o.argument(), text))
	}
	return append(dst, '}')
}

// argument is the member that holds what a call was told.
func (o *output) argument() string {
	if o.kind == itemCustom {
		return "input"
	}
	return "arguments"
}

func (o *output) appendParts(dst []byte, begins bool) []byte {
	dst = append(dst, '[')
	if !begins {
		for i := range o.parts {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = o.parts[i].append(dst, true)
		}
	}
	return append(dst, ']')
}

func itemID(kind, traceID string, at int) string {
	return prefixes[kind] + openai.Short(traceID) + "_" + strconv.Itoa(at)
}
