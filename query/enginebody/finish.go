package enginebody

import (
	"fmt"
	"slices"
	"strings"
)

// Finish is why an engine stopped, in its own word.
type Finish struct {
	// Source is the place, as a path into the body; "": the body does not say.
	Source string
	Reason string
}

// meanings gives, for the words of engines, the finish reasons of a trace that
// say the same. An engine that knows nothing of tools says "stop" also behind a
// call of one; so does OpenAI's where the tool was prescribed.
var meanings = map[string][]string{
	"stop": {"stop", "tool_calls"}, "end_turn": {"stop", "tool_calls"}, "stop_sequence": {"stop", "tool_calls"},
	"completed": {"stop", "tool_calls"}, "eos": {"stop", "tool_calls"}, "eos_token": {"stop", "tool_calls"}, "word": {"stop", "tool_calls"},
	"tool_calls": {"tool_calls"}, "function_call": {"tool_calls"}, "tool_use": {"tool_calls"},
	"length": {"length"}, "max_tokens": {"length"}, "max_output_tokens": {"length"}, "limit": {"length"},
	"model_context_window_exceeded": {"length"},
	"content_filter":                {"content_filter"}, "refusal": {"content_filter"}, "safety": {"content_filter"},
	"abort": {"abort"}, "cancelled": {"abort"},
}

// Says tells whether the body's word means a trace's finish reason. known is
// false for a word of which nobody knows what it means.
func (f Finish) Says(reason string) (same, known bool) {
	list, known := meanings[strings.ToLower(f.Reason)]
	return slices.Contains(list, reason), known
}

// ended notes why a choice ended, if v is a word for it; a later event's word
// replaces an earlier one's.
func (c *collector) ended(index int64, source string, v any) {
	if word, ok := v.(string); ok && word != "" {
		c.finish[index] = Finish{source, word}
	}
}

// endedWhole takes the places of answers that are no list of choices.
func (c *collector) endedWhole(index int64, e object) {
	c.ended(index, "stop_reason", e["stop_reason"]) // Messages
	c.ended(index, "stop_type", e["stop_type"])     // llama.cpp
	c.ended(index, "done_reason", e["done_reason"]) // Ollama
	if delta, ok := e["delta"].(object); ok {
		c.ended(index, "delta.stop_reason", delta["stop_reason"])
	}
	if details, ok := e["details"].(object); ok { // TGI
		c.ended(index, "details.finish_reason", details["finish_reason"])
	}
	if meta, ok := e["meta_info"].(object); ok { // SGLang
		c.ended(index, "meta_info.finish_reason", meta["finish_reason"])
		if why, ok := meta["finish_reason"].(object); ok {
			c.ended(index, "meta_info.finish_reason.type", why["type"])
		}
	}
}

// endedResponse takes the status of Responses; one that is still in progress has
// none.
func (c *collector) endedResponse(e object) {
	switch e["status"] {
	case "completed", "cancelled":
		c.ended(0, "status", e["status"])
	case "incomplete":
		if why, ok := e["incomplete_details"].(object); ok {
			c.ended(0, "incomplete_details.reason", why["reason"])
		}
	}
}

func (c *collector) endedChoice(list string, index int64, name string, o object) {
	c.ended(index, fmt.Sprintf("%s[%d].%s", list, index, name), o[name])
}

// pickFinish gives the end of the wanted choice, or of the only one.
func (c *collector) pickFinish(want *int64) Finish {
	index := int64(0)
	if want != nil {
		index = *want
	}
	if f, ok := c.finish[index]; ok || len(c.finish) != 1 || len(c.choices) > 1 {
		return f
	}
	for _, f := range c.finish {
		return f
	}
	return Finish{}
}
