package responses

import (
	"encoding/json"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// own are the members that decode reads itself, or that change nothing here.
var own = []string{
	"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options",
	"max_output_tokens", "reasoning", "text", "truncation", "include", "client_metadata",
	"background", "previous_response_id", "conversation", "prompt", "max_tool_calls", "top_logprobs",
}

// Decode reads the body of POST responses.
func (Provider) Decode(in turn.Incoming) (*turn.Request, error) {
	f, err := body.Read(in.Body)
	if err != nil {
		return nil, err
	}
	r := &turn.Request{Echo: map[string]json.RawMessage{}}
	openai.Repaired(r, in.Body)
	t := &toolbox{r: r}
	for _, read := range []func(*turn.Request, body.Fields) error{
		refuse, frame, t.read, (&history{r: r, tools: t}).read, t.choice, text, session,
	} {
		if err := read(r, f); err != nil {
			return nil, err
		}
	}
	if err := openai.Sampling(r, f, own...); err != nil {
		return nil, err
	}
	for _, m := range repeated {
		if v := f.Get(m.name); !v.Absent() {
			r.Echo[m.name] = v.Compact()
		}
	}
	return r, nil
}

// refuse names what would need the memory or the tools of OpenAI's servers.
func refuse(_ *turn.Request, f body.Fields) error {
	for _, m := range []struct{ name, why string }{
		{"previous_response_id", "answers are not kept here; send the whole input with store false"},
		{"conversation", "conversations are not kept here; send the whole input"},
		{"prompt", "prompt templates are not kept here; send instructions and input"},
	} {
		if f.Has(m.name) {
			return turn.Unsupported(m.name, m.name+": "+m.why)
		}
	}
	background, err := f.Get("background").True()
	if background {
		return turn.Unsupported("background", "background: an answer has to be waited for; leave it out or stream")
	}
	return err
}

// frame reads what is no item, no tool and no parameter of sampling.
func frame(r *turn.Request, f body.Fields) error {
	var err error
	if r.Model, err = f.Get("model").NeedString(); err != nil {
		return err
	}
	if r.Stream, err = f.Get("stream").True(); err != nil {
		return err
	}
	if r.MaxTokens, err = openai.MaxTokens(f.Get("max_output_tokens")); err != nil {
		return err
	}
	if v := f.Get("reasoning"); !v.Absent() {
		reasoning, err := v.Fields()
		if err != nil {
			return err
		}
		if r.Reasoning.Effort, err = reasoning.Get("effort").String(); err != nil {
			return err
		}
		reasoning.Drop(r, "effort", "summary", "generate_summary") // but for the effort, of what is shown
	}
	if v := f.Get("stream_options"); v.Kind() == body.KindObject {
		options, err := v.Fields()
		if err != nil {
			return err
		}
		options.Drop(r, "include_obfuscation")
	}
	if err := include(r, f.Get("include")); err != nil {
		return err
	}
	if n, err := f.Get("top_logprobs").Int(); err != nil {
		return err
	} else if n != nil && *n > 0 {
		r.Rewrite("dropped_field", "top_logprobs", "log-probs are captured, and not told in this API")
	}
	truncation, err := f.Get("truncation").String()
	if err == nil && truncation == "auto" {
		r.Rewrite("dropped_field", "truncation", "items are never left out; an input that is too long is the engine's error")
	}
	return err
}

// include names what an answer is to show besides. Sealed reasoning it has in any case.
func include(r *turn.Request, v body.Value) error {
	list, err := v.Array()
	if err != nil {
		return err
	}
	for _, one := range list {
		name, err := one.String()
		if err != nil {
			return err
		}
		if name != "reasoning.encrypted_content" {
			r.Dropped(one.Path(), "not part of answers here")
		}
	}
	return nil
}

// text reads the form of the answer.
func text(r *turn.Request, f body.Fields) error {
	v := f.Get("text")
	if v.Absent() {
		return nil
	}
	t, err := v.Fields()
	if err != nil {
		return err
	}
	if verbosity := t.Get("verbosity"); !verbosity.Absent() {
		r.Rewrite("dropped_field", verbosity.Path(), "not a parameter that engines know")
	}
	t.Drop(r, "verbosity", "format")
	format := t.Get("format")
	if format.Absent() {
		return nil
	}
	inner, err := format.Fields()
	if err != nil {
		return err
	}
	kind, err := inner.Get("type").NeedString()
	if err != nil {
		return err
	}
	form := map[string]any{"type": kind}
	switch kind {
	case "text":
		inner.Drop(r, "type")
		return nil
	case "json_object":
		inner.Drop(r, "type")
	case "json_schema":
		if _, err := inner.Get("schema").Fields(); err != nil {
			return err
		}
		form["json_schema"] = inner.Rest("type")
	default:
		return inner.Get("type").Invalid("must be text, json_object or json_schema")
	}
	if r.Sampling == nil {
		r.Sampling = map[string]json.RawMessage{}
	}
	r.Sampling["response_format"], err = turn.AppendJSON(nil, form)
	return err
}
