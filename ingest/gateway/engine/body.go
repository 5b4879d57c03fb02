package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"icecore/ingest/gateway/turn"
)

// Members of a request by which capture gets what it needs.
const (
	mStreamOptions = "stream_options"
	mLogprobs      = "logprobs"
	mTopLogprobs   = "top_logprobs"
	mAsIDs         = "return_tokens_as_token_ids"
	mTokenIDs      = "return_token_ids"
	mPromptIDs     = "return_prompt_token_ids"
	mMetaInfo      = "return_meta_info"
	mSglextInput   = "return_input_ids_in_sglext"
	mSglextOutput  = "return_output_ids_in_sglext"
	mRequestID     = "request_id"
	mRid           = "rid"
	mInputIDs      = "input_ids"
)

// reserved are members that nobody's options set: they are written here, or would take
// ids or log-probs out of the answer.
var reserved = map[string]bool{
	"model": true, "messages": true, "prompt": true, "tools": true, "tool_choice": true, "parallel_tool_calls": true,
	"n": true, "max_tokens": true, "max_completion_tokens": true, "stream": true, mStreamOptions: true,
	mLogprobs: true, mTopLogprobs: true, mAsIDs: true, mTokenIDs: true, mPromptIDs: true, mMetaInfo: true,
	mSglextInput: true, mSglextOutput: true, mRequestID: true, mRid: true, mInputIDs: true,
	"include_reasoning": true, "echo": true, "best_of": true, "use_beam_search": true, "prompt_token_ids": true,
}

// chatOnly are members that completions do not know.
var chatOnly = map[string]bool{"chat_template": true, "chat_template_kwargs": true, "reasoning_effort": true,
	"add_generation_prompt": true, "continue_final_message": true, "documents": true, "separate_reasoning": true}

// writer writes a JSON object whose members come once.
type writer struct {
	b   []byte
	err error
}

func (w *writer) name(name string) {
	if len(w.b) == 0 {
		w.b = append(w.b, '{')
	} else {
		w.b = append(w.b, ',')
	}
	w.b = append(strconv.AppendQuote(w.b, name), ':') // names here are plain
}

func (w *writer) raw(name string, v []byte) {
	w.name(name)
	w.b = append(w.b, v...)
}

func (w *writer) put(name string, v any) {
	w.name(name)
	if out, err := turn.AppendJSON(w.b, v); err != nil {
		w.err = fmt.Errorf("write %s: %w", name, err)
	} else {
		w.b = out
	}
}

func (w *writer) ids(name string, ids []int32) {
	w.name(name)
	w.b = append(w.b, '[')
	for i, id := range ids {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = strconv.AppendInt(w.b, int64(id), 10)
	}
	w.b = append(w.b, ']')
}

// messages writes the history and the tools. Where the thinking stands differs: SGLang
// knows reasoning_content; vLLM's templates get reasoning, and the other name is lost
// without a word, in some versions by chat too, in the newest by /tokenize alone. Both
// are not sent: some versions take only the one out of what a Mistral tokenizer gets.
func (w *writer) messages(c *Call, kind string) {
	field := c.Reasoning
	switch {
	case field != "":
	case kind == KindVLLM:
		field = turn.ReasoningPlain
	default:
		field = turn.ReasoningContent
	}
	w.name("messages")
	w.b = append(w.b, '[')
	for i := range c.Request.Messages {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		m, err := c.Request.Messages[i].JSON(field)
		if err != nil {
			w.err = fmt.Errorf("write messages[%d]: %w", i, err)
			return
		}
		w.b = append(w.b, m...)
	}
	w.b = append(w.b, ']')
	if len(c.Request.Tools) == 0 {
		return
	}
	w.name("tools")
	w.b = append(w.b, '[')
	for i := range c.Request.Tools {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		t, err := c.Request.Tools[i].JSON()
		if err != nil {
			w.err = fmt.Errorf("write tools[%d]: %w", i, err)
			return
		}
		w.b = append(w.b, t...)
	}
	w.b = append(w.b, ']')
}

// options writes what the harness and the model's options ask for; the latter win.
func (w *writer) options(c *Call, without map[string]bool) {
	r := c.Request
	if r.Choices() > 1 {
		w.put("n", r.Choices())
	}
	all := maps.Clone(r.Sampling)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	maps.Copy(all, c.Params)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if v := all[name]; !reserved[name] && !without[name] && len(v) > 0 {
			if plain, err := turn.AppendJSON(nil, name); err == nil {
				w.b = append(append(append(append(w.b, ','), plain...), ':'), v...)
			}
		}
	}
}

func (w *writer) end() ([]byte, error) {
	if w.err != nil {
		return nil, &turn.Fault{Status: http.StatusBadRequest, Code: turn.CodeInvalidRequest,
			Message: "the request cannot be written for the engine: " + w.err.Error(), Cause: w.err}
	}
	return append(w.b, '}'), nil
}

// chatBody writes a request of Chat Completions.
func chatBody(c *Call, p *plan) ([]byte, error) {
	var w writer
	r := c.Request
	w.put("model", c.Model)
	w.messages(c, p.kind)
	choice, err := r.Choice.JSON()
	if err != nil {
		w.err = fmt.Errorf("write tool_choice: %w", err)
	} else if choice != nil {
		w.raw("tool_choice", choice)
	}
	if r.Parallel != nil && len(r.Tools) > 0 {
		w.put("parallel_tool_calls", *r.Parallel)
	}
	if r.MaxTokens != nil {
		w.put("max_tokens", *r.MaxTokens)
	}
	w.options(c, nil)
	w.put("stream", !p.whole)
	if p.asks(mLogprobs) {
		w.put(mLogprobs, true)
		if p.asks(mTopLogprobs) {
			w.put(mTopLogprobs, r.Top)
		}
	}
	if c.PromptIDs != nil {
		w.ids(mInputIDs, c.PromptIDs)
	}
	p.capture(&w, c)
	return w.end()
}

// completionsBody writes a request of Completions whose prompt is ids. The marks of
// thinking and calls must stay in the text: it is parsed here.
func completionsBody(c *Call, p *plan, room int64) ([]byte, error) {
	var w writer
	w.put("model", c.Model)
	w.ids("prompt", c.PromptIDs)
	most := room - int64(len(c.PromptIDs)) // unsaid means 16 there, and all that fits in chat
	if c.Request.MaxTokens != nil {
		most = *c.Request.MaxTokens
	}
	w.put("max_tokens", max(most, 1))
	w.options(c, chatOnly)
	if _, set := c.Request.Sampling["skip_special_tokens"]; !set {
		w.put("skip_special_tokens", false)
	}
	w.put("stream", !p.whole)
	if p.asks(mLogprobs) {
		w.put(mLogprobs, 0)
	}
	p.capture(&w, c)
	return w.end()
}
