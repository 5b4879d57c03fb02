package chat

import (
	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// maxChoices bounds n, as OpenAI does.
const maxChoices = 128

// own are the members that decode reads itself.
var own = []string{
	"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "n",
	"max_tokens", "max_completion_tokens", "logprobs", "top_logprobs",
	"reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget", "include_reasoning",
	"functions", "function_call", "modalities", "audio", "web_search_options",
}

// Decode reads the body of POST chat/completions.
func (Provider) Decode(in turn.Incoming) (*turn.Request, error) {
	f, err := body.Read(in.Body)
	if err != nil {
		return nil, err
	}
	r := &turn.Request{}
	openai.Repaired(r, in.Body)
	for _, read := range []func(*turn.Request, body.Fields) error{
		refuse, frame, messages, tools, thinking, logprobs,
	} {
		if err := read(r, f); err != nil {
			return nil, err
		}
	}
	if err := openai.Sampling(r, f, own...); err != nil {
		return nil, err
	}
	return r, nil
}

// refuse names what the gateway does not do.
func refuse(r *turn.Request, f body.Fields) error {
	for _, old := range []string{"functions", "function_call"} {
		if f.Has(old) {
			return turn.Unsupported(old, old+": the form of functions before tools is not taken; use tools and tool_choice")
		}
	}
	if f.Has("audio") {
		return turn.Unsupported("audio", "audio: answers in sound are not made")
	}
	kinds, err := f.Get("modalities").Array()
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		name, err := kind.String()
		if err != nil {
			return err
		}
		if name != "text" {
			return turn.Unsupported(kind.Path(), kind.Path()+": answers are text, not "+name)
		}
	}
	if f.Has("web_search_options") {
		r.Rewrite("dropped_tool", "web_search_options", "it runs on the provider's side, which is not there")
	}
	return nil
}

// frame reads what is no message, no tool and no parameter of sampling.
func frame(r *turn.Request, f body.Fields) error {
	var err error
	if r.Model, err = f.Get("model").NeedString(); err != nil {
		return err
	}
	if r.Stream, err = f.Get("stream").True(); err != nil {
		return err
	}
	if options := f.Get("stream_options"); !options.Absent() {
		o, err := options.Fields()
		if err != nil {
			return err
		}
		usage, err := o.Get("include_usage").True()
		if err != nil {
			return err
		}
		r.IncludeUsage = r.Stream && usage
		o.Drop(r, "include_usage", "include_obfuscation")
	}
	n, err := f.Get("n").Int()
	if err != nil {
		return err
	}
	if n != nil {
		if *n < 1 || *n > maxChoices {
			return f.Get("n").Invalid("must be from 1 to 128")
		}
		r.N = int(*n)
	}
	if r.MaxTokens, err = openai.MaxTokens(f.Get("max_completion_tokens")); err != nil {
		return err
	}
	older, err := openai.MaxTokens(f.Get("max_tokens"))
	switch {
	case r.MaxTokens == nil && err != nil:
		return err
	case r.MaxTokens == nil:
		r.MaxTokens = older
	case err != nil || older != nil && *older != *r.MaxTokens:
		r.Dropped("max_tokens", "max_completion_tokens counts")
	}
	r.Session.ID, err = f.Get("prompt_cache_key").String()
	return err
}

func logprobs(r *turn.Request, f body.Fields) error {
	asked, err := f.Get("logprobs").True()
	if err != nil {
		return err
	}
	top, err := f.Get("top_logprobs").Int()
	if err != nil {
		return err
	}
	r.Logprobs = asked
	switch {
	case top == nil:
		return nil
	case *top < 0 || *top > 20:
		return f.Get("top_logprobs").Invalid("must be from 0 to 20")
	case !r.Logprobs && *top > 0:
		return f.Get("top_logprobs").Invalid("needs logprobs to be true")
	}
	r.Top = *top
	return nil
}

// tools reads tools, the choice among them, and whether several may be called.
func tools(r *turn.Request, f body.Fields) error {
	list, err := f.Get("tools").Array()
	if err != nil {
		return err
	}
	named := make(map[string]bool, len(list))
	for _, one := range list {
		t, err := one.Fields()
		if err != nil {
			return err
		}
		kind, err := t.Get("type").String()
		if err != nil {
			return err
		}
		switch kind {
		case "function", "":
			inner, err := t.Get("function").Fields()
			if err != nil {
				return err
			}
			tool, err := openai.Function(inner)
			if err != nil {
				return err
			}
			t.Drop(r, "type", "function")
			tool.Extra = inner.Rest("name", "description", "parameters", "strict")
			if named[tool.Name] {
				return inner.Get("name").Invalid("another tool has this name")
			}
			named[tool.Name] = true
			r.Tools = append(r.Tools, tool)
		case "custom":
			return turn.Unsupported(one.Path(), one.Path()+": a tool of type custom is taken by the Responses API only")
		default:
			r.Rewrite("dropped_tool", one.Path(), "a tool of type "+kind+" runs on the provider's side, which is not there")
		}
	}
	if r.Parallel, err = f.Get("parallel_tool_calls").Bool(); err != nil {
		return err
	}
	if len(r.Tools) == 0 {
		r.Parallel = nil // engines need no word about calls that cannot be
	}
	return openai.ChoiceForm{Nested: true}.Choice(r, f.Get("tool_choice"))
}
