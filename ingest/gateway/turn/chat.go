package turn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// AppendJSON writes v as JSON without escaping <, > and &: a template prints them.
func AppendJSON(dst []byte, v any) ([]byte, error) {
	b := bytes.NewBuffer(dst)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// object writes JSON objects with their members in a fixed order.
type object struct {
	b   []byte
	err error
}

func (o *object) put(name string, v any) {
	if o.err != nil {
		return
	}
	if len(o.b) == 0 {
		o.b = append(o.b, '{')
	} else {
		o.b = append(o.b, ',')
	}
	if o.b, o.err = AppendJSON(o.b, name); o.err != nil {
		return
	}
	o.b = append(o.b, ':')
	if raw, ok := v.(json.RawMessage); ok {
		o.b = append(o.b, raw...) // its bytes, as they came
		return
	}
	o.b, o.err = AppendJSON(o.b, v)
}

func (o *object) extra(members map[string]json.RawMessage) {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		o.put(name, members[name])
	}
}

func (o *object) end() (json.RawMessage, error) {
	if len(o.b) == 0 {
		o.b = append(o.b, '{')
	}
	return append(o.b, '}'), o.err
}

// function ends o with f as what it is of: a call, a tool and a choice alike.
func (o *object) function(f *object) (json.RawMessage, error) {
	inner, err := f.end()
	if err != nil {
		return nil, err
	}
	o.put("type", "function")
	o.put("function", inner)
	return o.end()
}

// ReasoningField is the member of an assistant message that holds its thinking.
type ReasoningField string

// What engines call it: SGLang and older vLLM the first, vLLM both, the newest the second.
const (
	ReasoningContent ReasoningField = "reasoning_content"
	ReasoningPlain   ReasoningField = "reasoning"
)

// JSON gives the message as an engine takes it.
func (m *Message) JSON(field ReasoningField) (json.RawMessage, error) {
	var o object
	o.put("role", m.Role)
	content, err := m.content()
	if err != nil {
		return nil, err
	}
	o.put("content", content)
	if m.Reasoning != nil {
		o.put(string(field), *m.Reasoning)
	}
	if len(m.Calls) > 0 {
		calls := make([]json.RawMessage, len(m.Calls))
		for i, c := range m.Calls {
			var call, function object
			function.put("name", c.Name)
			function.put("arguments", c.Arguments)
			call.put("id", c.ID)
			var err error
			if calls[i], err = call.function(&function); err != nil {
				return nil, err
			}
		}
		o.put("tool_calls", calls)
	}
	if m.CallID != "" {
		o.put("tool_call_id", m.CallID)
	}
	if m.Name != "" {
		o.put("name", m.Name)
	}
	o.extra(m.Extra)
	return o.end()
}

func (m *Message) content() (json.RawMessage, error) {
	switch {
	case m.Null && len(m.Content) == 0:
		return json.RawMessage("null"), nil
	case !m.AsArray && len(m.Content) == 0:
		return json.RawMessage(`""`), nil
	case !m.AsArray && len(m.Content) == 1 && m.Content[0].Raw == nil:
		return AppendJSON(nil, m.Content[0].Text)
	}
	parts := make([]json.RawMessage, len(m.Content))
	for i, p := range m.Content {
		if p.Raw != nil {
			parts[i] = p.Raw
			continue
		}
		var o object
		o.put("type", "text")
		o.put("text", p.Text)
		var err error
		if parts[i], err = o.end(); err != nil {
			return nil, err
		}
	}
	return AppendJSON(nil, parts)
}

// JSON gives the tool as an engine takes it.
func (t *Tool) JSON() (json.RawMessage, error) {
	var whole, function object
	function.put("name", t.Name)
	if t.Described || t.Description != "" {
		function.put("description", t.Description)
	}
	if t.Parameters != nil {
		function.put("parameters", t.Parameters)
	}
	if t.Strict != nil {
		function.put("strict", *t.Strict)
	}
	function.extra(t.Extra)
	return whole.function(&function)
}

// JSON gives the choice as an engine takes it; nil: nothing was said.
func (c ToolChoice) JSON() (json.RawMessage, error) {
	switch {
	case c.Name != "":
		var whole, function object
		function.put("name", c.Name)
		return whole.function(&function)
	case c.Mode != "":
		return AppendJSON(nil, c.Mode)
	}
	return nil, nil
}
