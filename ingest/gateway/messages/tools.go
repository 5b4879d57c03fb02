package messages

import (
	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

func (d *decoder) tools() error {
	all, err := d.body.Get("tools").Array()
	if err != nil {
		return err
	}
	for _, v := range all {
		if err := d.tool(v); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) tool(v body.Value) error {
	f, err := v.Fields()
	if err != nil {
		return err
	}
	kind, err := f.Get("type").String()
	if err != nil {
		return err
	}
	name, err := f.Get("name").String()
	if err != nil {
		return err
	}
	if kind != "" && kind != "custom" {
		// Anthropic's own tools have no schema here: only its models know them.
		d.r.Rewrite("dropped_tool", v.Path(), kind+" "+name)
		return nil
	}
	if _, err := f.Get("name").NeedString(); err != nil {
		return err
	}
	t := turn.Tool{Name: name}
	if t.Description, err = f.Get("description").String(); err != nil {
		return err
	}
	t.Described = f.Has("description")
	f.Drop(d.r, "type", "name", "description", "input_schema", "strict", "defer_loading", "eager_input_streaming")
	if f.Has("input_schema") {
		if _, err := f.Get("input_schema").Fields(); err != nil {
			return err
		}
		t.Parameters = f.Get("input_schema").Raw()
	}
	if t.Strict, err = f.Get("strict").Bool(); err != nil {
		return err
	}
	deferred, err := f.Get("defer_loading").True()
	if err != nil {
		return err
	}
	if deferred {
		d.r.Rewrite("loaded_deferred_tool", v.Path(), name)
	}
	d.r.Tools = append(d.r.Tools, t)
	return nil
}

// choice reads tool_choice. Without tools, as when all were dropped, engines refuse
// even auto: it is left out where it asks for nothing.
func (d *decoder) choice() error {
	v := d.body.Get("tool_choice")
	if v.Absent() {
		return nil
	}
	f, err := v.Fields()
	if err != nil {
		return err
	}
	kind, err := f.Get("type").NeedString()
	if err != nil {
		return err
	}
	f.Drop(d.r, "type", "name", "disable_parallel_tool_use")
	var choice turn.ToolChoice
	switch kind {
	case "auto", "none":
		choice.Mode = kind
	case "any":
		choice.Mode = "required"
	case "tool":
		if choice.Name, err = f.Get("name").NeedString(); err != nil {
			return err
		}
		if !d.has(choice.Name) {
			return f.Get("name").Invalid("no tool of this name is offered to the engine")
		}
	default:
		return f.Get("type").Invalid("must be auto, any, tool or none")
	}
	if len(d.r.Tools) == 0 {
		if choice.Mode == "required" {
			return f.Get("type").Invalid("no tool is offered to the engine")
		}
		return nil
	}
	d.r.Choice = choice
	single, err := f.Get("disable_parallel_tool_use").Bool()
	if err != nil {
		return err
	}
	if single != nil {
		parallel := !*single
		d.r.Parallel = &parallel
	}
	return nil
}

func (d *decoder) has(name string) bool {
	for i := range d.r.Tools {
		if d.r.Tools[i].Name == name {
			return true
		}
	}
	return false
}
