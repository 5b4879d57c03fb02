package enginebody

import (
	"fmt"
	"strings"
)

// collector gathers what the events of a body carry.
type collector struct {
	prompt  runs
	choices map[int64]*parts
	usage   Usage
	finish  map[int64]Finish
	// generations are the ids of SGLang's own answers, in the order of their
	// first event: several in one body are several choices.
	generations []string
}

// parts is what belongs to one choice.
type parts struct {
	prompt, response runs
	sampled          *int64
}

func (c *collector) choice(index int64) *parts {
	if c.choices[index] == nil {
		c.choices[index] = &parts{}
	}
	return c.choices[index]
}

// pick gives the wanted choice, or the only one.
func (c *collector) pick(want *int64) *parts {
	index := int64(0)
	if want != nil {
		index = *want
	}
	if p := c.choices[index]; p != nil {
		return p
	}
	if len(c.choices) == 1 {
		for _, p := range c.choices {
			return p
		}
	}
	return &parts{}
}

// event takes one object of the body.
func (c *collector) event(e object) {
	// The events of Responses and Messages hold what is told further in.
	switch kind, _ := e["type"].(string); {
	case strings.HasPrefix(kind, "response."):
		if inner, ok := e["response"].(object); ok {
			c.event(inner)
		}
		return
	case kind == "message_start":
		if inner, ok := e["message"].(object); ok {
			c.event(inner)
		}
		return
	}
	c.counts(e)
	c.sglext(e)
	if list, ok := e["choices"].([]any); ok {
		promptOf(&c.prompt, "", e, nil)
		for i, v := range list {
			if o, ok := v.(object); ok {
				c.chat(o, int64(i))
			}
		}
		return
	}
	if list, ok := e["candidates"].([]any); ok {
		for i, v := range list {
			if o, ok := v.(object); ok {
				index := indexOf(o, int64(i))
				gemini(c.choice(index), o, index)
				c.endedChoice("candidates", index, "finishReason", o)
			}
		}
		return
	}
	if list, ok := e["output"].([]any); ok {
		responses(c.choice(0), list)
		c.endedResponse(e)
		return
	}
	c.single(e)
}

func indexOf(o object, fallback int64) int64 {
	if n := count(o["index"]); n != nil {
		return *n
	}
	return fallback
}

// chat takes a choice of a chat or text completion, or its delta.
func (c *collector) chat(o object, place int64) {
	index := indexOf(o, place)
	p := c.choice(index)
	at := fmt.Sprintf("choices[%d].", index)
	total := metaCounts(p, o)
	promptOf(&p.prompt, at, o, total)
	responseOf(&p.response, at, o, nil)
	c.endedChoice("choices", index, "finish_reason", o)
}

// single takes an answer that is no list of choices: SGLang's /generate,
// llama.cpp's /completion, TGI's.
func (c *collector) single(e object) {
	index := int64(0)
	if meta, ok := e["meta_info"].(object); ok {
		index = c.generation(meta)
	}
	if e["token"] == nil { // TGI numbers the tokens of a stream by that name
		index = indexOf(e, index)
	}
	c.endedWhole(index, e)
	var p parts
	if have := c.choices[index]; have != nil {
		p = *have
	}
	prompt := metaCounts(&p, e)
	promptOf(&p.prompt, "", e, prompt)
	responseOf(&p.response, "", e, p.sampled)
	if len(p.prompt) > 0 || len(p.response) > 0 || p.sampled != nil {
		c.choices[index] = &p
	}
}

func (c *collector) generation(meta object) int64 {
	id, _ := meta["id"].(string)
	for i, have := range c.generations {
		if have == id {
			return int64(i)
		}
	}
	c.generations = append(c.generations, id)
	return int64(len(c.generations) - 1)
}

// sglext takes what SGLang adds beside the choices: one list for the prompt, one
// per choice for the answers.
func (c *collector) sglext(e object) {
	ext, ok := e["sglext"].(object)
	if !ok {
		return
	}
	if ids, ok := idList(ext["input_ids"]); ok {
		c.prompt.at("sglext.input_ids").set(ids, nil)
	}
	list, ok := ext["output_ids"].([]any)
	if !ok {
		return
	}
	for i, v := range list {
		if ids, ok := idList(v); ok {
			c.choice(int64(i)).response.at(fmt.Sprintf("sglext.output_ids[%d]", i)).set(ids, nil)
		}
	}
}

// counts takes token counts; a later event's replace an earlier one's.
func (c *collector) counts(e object) {
	take := func(source string, o object, prompt, response []string) {
		found := false
		if n := sum(o, prompt); n != nil {
			c.usage.Prompt, found = n, true
		}
		if n := sum(o, response); n != nil {
			c.usage.Response, found = n, true
		}
		if found {
			c.usage.Source = source
		}
	}
	if meta, ok := e["meta_info"].(object); ok {
		take("meta_info", meta, []string{"prompt_tokens"}, []string{"completion_tokens"})
	}
	if details, ok := e["details"].(object); ok {
		take("details", details, nil, []string{"generated_tokens"})
	}
	take("tokens_predicted", e, []string{"tokens_evaluated"}, []string{"tokens_predicted"})
	take("eval_count", e, []string{"prompt_eval_count"}, []string{"eval_count"})
	if u, ok := e["usage"].(object); ok {
		take("usage", u, []string{"prompt_tokens"}, []string{"completion_tokens"})
		take("usage", u, []string{"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"}, []string{"output_tokens"})
	}
	if u, ok := e["usageMetadata"].(object); ok {
		take("usageMetadata", u, []string{"promptTokenCount"}, []string{"candidatesTokenCount", "thoughtsTokenCount"})
	}
}

// sum adds the named counts; nil when the first is not there.
func sum(o object, names []string) *int64 {
	var total int64
	for i, name := range names {
		n := count(o[name])
		if n == nil && i == 0 {
			return nil
		}
		if n != nil {
			total += *n
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &total
}

// metaCounts notes what a choice's own meta_info counts and gives its count of
// the prompt.
func metaCounts(p *parts, o object) (prompt *int64) {
	meta, ok := o["meta_info"].(object)
	if !ok {
		return nil
	}
	if n := count(meta["completion_tokens"]); n != nil {
		p.sampled = n
	}
	return count(meta["prompt_tokens"])
}
