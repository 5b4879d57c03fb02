package generate

import (
	"slices"
	"strconv"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

func (d *decoder) tools() error {
	all, err := list(get(d.body, "tools"))
	if err != nil {
		return err
	}
	for _, v := range all {
		f, err := v.Fields()
		if err != nil {
			return err
		}
		for _, m := range f.All() {
			if camel(m.Name) != "functionDeclarations" {
				if !m.Value.Absent() { // a tool that Google's servers run
					d.r.Rewrite("dropped_tool", m.Value.Path(), m.Name)
				}
				continue
			}
			functions, err := list(m.Value)
			if err != nil {
				return err
			}
			for _, v := range functions {
				if err := d.function(v); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (d *decoder) function(v body.Value) error {
	f, err := v.Fields()
	if err != nil {
		return err
	}
	var t turn.Tool
	if t.Name, err = get(f, "name").NeedString(); err != nil {
		return err
	}
	if t.Description, err = get(f, "description").String(); err != nil {
		return err
	}
	t.Described = !get(f, "description").Absent()
	d.drop(f, "name", "description", "parametersJsonSchema", "parameters")
	plain, dialect := get(f, "parametersJsonSchema"), get(f, "parameters")
	switch {
	case !plain.Absent():
		if _, err := plain.Fields(); err != nil {
			return err
		}
		t.Parameters = plain.Raw()
		if !dialect.Absent() {
			d.r.Dropped(dialect.Path(), "parametersJsonSchema counts")
		}
	case !dialect.Absent():
		if t.Parameters, err = jsonSchema(dialect); err != nil {
			return err
		}
	}
	d.r.Tools = append(d.r.Tools, t)
	return nil
}

// choice reads how functions are to be called. Without functions, as when all tools
// were dropped, it is left out where it asks for nothing: engines refuse even auto.
func (d *decoder) choice() error {
	v := get(d.body, "toolConfig")
	if v.Absent() {
		return nil
	}
	f, err := v.Fields()
	if err != nil {
		return err
	}
	d.drop(f, "functionCallingConfig")
	if v = get(f, "functionCallingConfig"); v.Absent() {
		return nil
	}
	if f, err = v.Fields(); err != nil {
		return err
	}
	mode, err := word(get(f, "mode"))
	if err != nil {
		return err
	}
	d.drop(f, "mode", "allowedFunctionNames")
	if some := get(f, "allowedFunctionNames"); mode != "ANY" && !some.Absent() {
		d.r.Dropped(some.Path(), "it counts with mode ANY alone")
	}
	switch mode {
	case "", "MODE_UNSPECIFIED", "AUTO":
		d.r.Choice.Mode = "auto"
	case "NONE":
		d.r.Choice.Mode = "none"
	case "ANY":
		return d.forced(f)
	case "VALIDATED":
		d.r.Choice.Mode = "auto"
		d.r.Rewrite("loosened_tool_choice", get(f, "mode").Path(), "VALIDATED is sent as auto")
	default:
		return get(f, "mode").Invalid("must be AUTO, ANY, NONE or VALIDATED, not " + strconv.Quote(mode))
	}
	if len(d.r.Tools) == 0 {
		d.r.Choice.Mode = ""
	}
	return nil
}

// forced reads mode ANY: one function by name is asked for as such; of several the
// others are not offered, since engines know no choice among some.
func (d *decoder) forced(f body.Fields) error {
	names := get(f, "allowedFunctionNames")
	all, err := names.Array()
	if err != nil {
		return err
	}
	offered, allowed := map[string]bool{}, map[string]bool{}
	for i := range d.r.Tools {
		offered[d.r.Tools[i].Name] = true
	}
	for _, v := range all {
		name, err := v.NeedString()
		if err != nil {
			return err
		}
		if !offered[name] {
			return v.Invalid("no function of this name is offered to the engine")
		}
		allowed[name] = true
	}
	if len(d.r.Tools) == 0 {
		return get(f, "mode").Invalid("no function is offered to the engine")
	}
	d.r.Choice.Mode = "required"
	switch {
	case len(allowed) == 1:
		for name := range allowed {
			d.r.Choice = turn.ToolChoice{Name: name}
		}
	case len(allowed) > 1 && len(allowed) < len(d.r.Tools):
		var dropped []string
		d.r.Tools = slices.DeleteFunc(d.r.Tools, func(t turn.Tool) bool {
			if !allowed[t.Name] {
				dropped = append(dropped, t.Name)
			}
			return !allowed[t.Name]
		})
		d.r.Rewrite("narrowed_tools", names.Path(), "not offered: "+strings.Join(dropped, ", "))
	}
	return nil
}
