package openai

import (
	"slices"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// ChoiceForm is how an API writes a tool in its choice: Chat Completions nests name in
// a member named as the type, Responses does not.
type ChoiceForm struct {
	Nested bool
	// Engine gives the engine's name of a tool. Nil: it is the harness's own.
	Engine func(namespace, name string) string
}

// Choice reads tool_choice into r, whose tools are there already. A choice among some
// of the tools leaves the others out: engines know no other way to keep it.
func (c ChoiceForm) Choice(r *turn.Request, v body.Value) error {
	switch v.Kind() {
	case body.KindAbsent:
		return nil
	case body.KindString:
		return c.mode(r, v, v)
	case body.KindObject:
	default:
		return v.Invalid("must be a string or an object, not " + string(v.Kind()))
	}
	f, err := v.Fields()
	if err != nil {
		return err
	}
	kind, err := f.Get("type").NeedString()
	if err != nil {
		return err
	}
	switch kind {
	case "auto", "none", "required", "any":
		return c.mode(r, v, f.Get("type"))
	case "function", "custom":
		name, err := c.name(r, f, kind)
		if err != nil {
			return err
		}
		if !hasTool(r, name) {
			return v.Invalid("names a tool that is not among the tools")
		}
		r.Choice = turn.ToolChoice{Name: name}
		return nil
	case "allowed_tools":
		return c.allowed(r, v, f)
	}
	r.Rewrite("dropped_tool_choice", v.Path(), "a tool of type "+kind+" runs on the provider's side, which is not there")
	return nil
}

func (c ChoiceForm) mode(r *turn.Request, v, word body.Value) error {
	mode, err := word.String()
	if err != nil {
		return err
	}
	switch mode {
	case "auto", "none":
		if len(r.Tools) > 0 { // engines refuse a choice among no tools
			r.Choice = turn.ToolChoice{Mode: mode}
		}
	case "required", "any":
		if len(r.Tools) == 0 {
			return v.Invalid("needs a tool, and there is none that an engine could be told of")
		}
		r.Choice = turn.ToolChoice{Mode: "required"}
	default:
		return v.Invalid("must be auto, none, required, or an object that names a tool")
	}
	return nil
}

func (c ChoiceForm) name(r *turn.Request, f body.Fields, kind string) (string, error) {
	if c.Nested {
		inner, err := f.Get(kind).Fields()
		if err != nil {
			return "", err
		}
		f.Drop(r, "type", kind)
		f = inner
	}
	f.Drop(r, "type", "name", "namespace")
	name, err := f.Get("name").NeedString()
	if err != nil || c.Engine == nil {
		return name, err
	}
	namespace, err := f.Get("namespace").String()
	return c.Engine(namespace, name), err
}

func (c ChoiceForm) allowed(r *turn.Request, v body.Value, f body.Fields) error {
	if c.Nested {
		inner, err := f.Get("allowed_tools").Fields()
		if err != nil {
			return err
		}
		f.Drop(r, "type", "allowed_tools")
		f = inner
	}
	f.Drop(r, "type", "mode", "tools")
	list, err := f.Get("tools").Array()
	if err != nil {
		return err
	}
	there, allowed := map[string]bool{}, map[string]bool{}
	for i := range r.Tools {
		there[r.Tools[i].Name] = true
	}
	for _, one := range list {
		tool, err := one.Fields()
		if err != nil {
			return err
		}
		kind, err := tool.Get("type").NeedString()
		if err != nil {
			return err
		}
		if kind != "function" && kind != "custom" {
			continue // a tool of the provider's side: dropped with the tools
		}
		name, err := c.name(r, tool, kind)
		if err != nil {
			return err
		}
		if !there[name] {
			return one.Invalid("names a tool that is not among the tools")
		}
		allowed[name] = true
	}
	var left []string
	r.Tools = slices.DeleteFunc(r.Tools, func(t turn.Tool) bool {
		out := !allowed[t.Name]
		if out {
			left = append(left, t.Name)
		}
		return out
	})
	if len(left) > 0 {
		r.Rewrite("narrowed_tools", v.Path(), "left out: "+strings.Join(left, ", "))
	}
	mode := f.Get("mode")
	if mode.Absent() {
		return nil
	}
	return c.mode(r, v, mode)
}

func hasTool(r *turn.Request, name string) bool {
	return slices.ContainsFunc(r.Tools, func(t turn.Tool) bool { return t.Name == name })
}
