package chat

import (
	"slices"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// thoughts are the members by which clients return what was thought.
var thoughts = []string{"reasoning_content", "reasoning", "reasoning_text"}

func messages(r *turn.Request, f body.Fields) error {
	list, err := f.Get("messages").Array()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return f.Get("messages").Invalid("at least one message is required")
	}
	for _, one := range list {
		m, err := message(r, one)
		if err != nil {
			return err
		}
		r.Messages = append(r.Messages, m)
	}
	return nil
}

func message(r *turn.Request, v body.Value) (turn.Message, error) {
	var m turn.Message
	f, err := v.Fields()
	if err != nil {
		return m, err
	}
	if m.Role, err = f.Get("role").NeedString(); err != nil {
		return m, err
	}
	if m.Name, err = f.Get("name").String(); err != nil {
		return m, err
	}
	if err := content(r, &m, f.Get("content")); err != nil {
		return m, err
	}
	known := []string{"role", "content", "name"}
	switch m.Role {
	case turn.RoleSystem, turn.RoleDeveloper, turn.RoleUser:
		if m.Null {
			return m, f.Get("content").Invalid("is required")
		}
	case turn.RoleTool:
		if m.CallID, err = f.Get("tool_call_id").String(); err != nil {
			return m, err
		}
		known = append(known, "tool_call_id")
	case turn.RoleAssistant:
		if err := assistant(r, &m, f); err != nil {
			return m, err
		}
		known = append(append(known, "tool_calls", "refusal", "function_call", "audio"), thoughts...)
	case "function":
		return m, turn.Unsupported(f.Get("role").Path(), f.Get("role").Path()+
			": results of functions before tools are not taken; send the role tool with a tool_call_id")
	default:
		return m, f.Get("role").Invalid("must be system, developer, user, assistant or tool")
	}
	m.Extra = f.Rest(known...)
	return m, nil
}

// assistant reads what only the model's own turns have.
func assistant(r *turn.Request, m *turn.Message, f body.Fields) error {
	if old := f.Get("function_call"); !old.Absent() {
		return turn.Unsupported(old.Path(), old.Path()+": calls of functions before tools are not taken; use tool_calls")
	}
	if sound := f.Get("audio"); !sound.Absent() {
		return turn.Unsupported(sound.Path(), sound.Path()+": earlier answers in sound are not kept")
	}
	for _, name := range thoughts {
		v := f.Get(name)
		if v.Absent() {
			continue
		}
		text, err := v.String()
		if err != nil {
			return err
		}
		switch {
		case m.Reasoning == nil || *m.Reasoning == "":
			m.Reasoning = &text
		case text != "" && text != *m.Reasoning:
			r.Dropped(v.Path(), "the message has its thinking under another name too, and it differs")
		}
	}
	refusal, err := f.Get("refusal").String()
	if err != nil {
		return err
	}
	switch {
	case refusal == "":
	case len(m.Content) == 0:
		m.Content, m.Null = turn.TextOf(refusal), false // the model said it as any text
	default:
		r.Dropped(f.Get("refusal").Path(), "the message has a content beside it")
	}
	list, err := f.Get("tool_calls").Array()
	if err != nil {
		return err
	}
	for _, one := range list {
		c, err := call(r, one)
		if err != nil {
			return err
		}
		m.Calls = append(m.Calls, c)
	}
	return nil
}

func call(r *turn.Request, v body.Value) (turn.Call, error) {
	var c turn.Call
	f, err := v.Fields()
	if err != nil {
		return c, err
	}
	if c.ID, err = f.Get("id").String(); err != nil {
		return c, err
	}
	kind, err := f.Get("type").String()
	if err != nil {
		return c, err
	}
	if kind != "" && kind != "function" {
		return c, turn.Unsupported(v.Path(), v.Path()+": a call of type "+kind+" is not taken")
	}
	function, err := f.Get("function").Fields()
	if err != nil {
		return c, err
	}
	if c.Name, err = function.Get("name").NeedString(); err != nil {
		return c, err
	}
	f.Drop(r, "id", "type", "function", "index") // the last is of a stream's deltas
	function.Drop(r, "name", "arguments")
	if arguments := function.Get("arguments"); arguments.Kind() == body.KindObject {
		c.Arguments = string(arguments.Raw()) // some clients parse and never write again
	} else if c.Arguments, err = arguments.String(); err != nil {
		return c, err
	}
	return c, nil
}

// content reads text, or parts, as they came.
func content(r *turn.Request, m *turn.Message, v body.Value) error {
	switch v.Kind() {
	case body.KindAbsent:
		m.Null = true
		return nil
	case body.KindString:
		text, err := v.String()
		if text != "" {
			m.Content = turn.TextOf(text)
		}
		return err
	case body.KindArray:
	default:
		return v.Invalid("must be a string or an array of parts, not " + string(v.Kind()))
	}
	list, err := v.Array()
	if err != nil {
		return err
	}
	m.AsArray = true
	for _, one := range list {
		p, err := part(r, one)
		if err != nil {
			return err
		}
		m.Content = append(m.Content, p)
	}
	return nil
}

func part(r *turn.Request, v body.Value) (turn.Part, error) {
	f, err := v.Fields()
	if err != nil {
		return turn.Part{}, err
	}
	kind, err := f.Get("type").NeedString()
	if err != nil {
		return turn.Part{}, err
	}
	switch {
	case kind == "text" || kind == "refusal":
		text := f.Get(kind)
		if !text.Given() {
			return turn.Part{}, text.Invalid("is required")
		}
		f.Drop(r, "type", kind)
		s, err := text.String()
		return turn.Part{Text: s}, err
	case kind == "file":
		file, err := f.Get("file").Fields()
		if err != nil {
			return turn.Part{}, err
		}
		if id := file.Get("file_id"); !id.Absent() {
			return turn.Part{}, turn.Unsupported(id.Path(), id.Path()+": no files are kept here; send file_data")
		}
	case slices.Contains([]string{"input_text", "output_text", "input_image"}, kind):
		return turn.Part{}, f.Get("type").Invalid(kind + " is a part of the Responses API; use text or image_url")
	}
	return turn.Part{Raw: f.Unhinted(v)}, nil // an image, a sound, …: the engine knows whether it takes it
}
