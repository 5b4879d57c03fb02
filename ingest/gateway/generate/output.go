package generate

import (
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/trace"
)

// modalities refuses answers that are no text.
func (d *decoder) modalities(f body.Fields) error {
	v := get(f, "responseModalities")
	all, err := v.Array()
	if err != nil {
		return err
	}
	wanted := len(all) == 0
	for _, m := range all {
		name, err := word(m)
		if err != nil {
			return err
		}
		wanted = wanted || name == "TEXT"
		if name != "TEXT" {
			d.r.Dropped(m.Path(), "engines answer with text")
		}
	}
	if !wanted {
		return unsupported(v, "engines answer with text")
	}
	return nil
}

// format reads what the answer must look like. Without tools it is a side call of the
// harness: agents call tools.
func (d *decoder) format(f body.Fields) error {
	mime, err := get(f, "responseMimeType").String()
	if err != nil {
		return err
	}
	var schema raw
	given := get(f, "responseSchema")
	if !given.Absent() {
		if schema, err = jsonSchema(given); err != nil {
			return err
		}
	}
	for _, name := range []string{"responseJsonSchema", "_responseJsonSchema"} {
		if v := get(f, name); !v.Absent() {
			if _, err := v.Fields(); err != nil {
				return err
			}
			given, schema = v, v.Raw()
		}
	}
	switch mime {
	case "", "text/plain":
		if schema != nil {
			d.r.Rewrite("dropped_field", given.Path(), "a schema counts with responseMimeType application/json")
		}
		return nil
	case "application/json":
	default:
		return unsupported(get(f, "responseMimeType"), "only text/plain and application/json are supported")
	}
	if len(d.r.Tools) == 0 {
		d.r.Kind = trace.KindAuxiliary
	}
	if schema == nil {
		d.r.Sampling["response_format"] = raw(`{"type":"json_object"}`)
		return nil
	}
	format := append(raw(`{"type":"json_schema","json_schema":{"name":"output","schema":`), schema...)
	d.r.Sampling["response_format"] = append(format, `,"strict":true}}`...)
	return nil
}

func (d *decoder) thinking(f body.Fields) error {
	v := get(f, "thinkingConfig")
	if v.Absent() {
		return nil
	}
	f, err := v.Fields()
	if err != nil {
		return err
	}
	d.drop(f, "includeThoughts", "thinkingBudget", "thinkingLevel")
	shown, err := get(f, "includeThoughts").True()
	if err != nil {
		return err
	}
	d.r.Reasoning.Hidden = !shown
	budget, err := get(f, "thinkingBudget").Int()
	if err != nil {
		return err
	}
	if budget != nil { // -1: as much as the model likes
		on := *budget != 0
		d.r.Reasoning.Enabled = &on
		if *budget > 0 {
			d.r.Reasoning.Budget = budget
		}
	}
	level, err := get(f, "thinkingLevel").String()
	if level = strings.ToLower(level); level != "thinking_level_unspecified" {
		d.r.Reasoning.Effort = level
	}
	return err
}
