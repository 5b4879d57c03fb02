package openapi

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
)

// schemaView is a schema as the page shows it.
type schemaView struct {
	// Kind says what a value is, Ref which named schema describes it.
	Kind, Ref    string
	Notes        []string
	About        template.HTML
	Fields       []fieldView
	Alternatives []*schemaView
	// Items describes the elements of a list where Kind cannot.
	Items *schemaView
}

type fieldView struct {
	Name     string
	Required bool
	Schema   *schemaView
}

func (d *Document) schemaOf(v any) *schemaView {
	s, ok := v.(object)
	if !ok {
		return &schemaView{Kind: "anything"}
	}
	out := &schemaView{Ref: refName(s), About: markdown(text(s, "description")), Notes: d.notes(s)}
	out.Kind = kindOf(s)
	if items, ok := s["items"].(object); ok {
		switch {
		case refName(items) != "":
			out.Ref = refName(items)
		case kindOf(items) == "object":
			out.Items = d.schemaOf(items)
		}
	}
	for _, of := range []string{"oneOf", "anyOf", "allOf"} {
		list, _ := s[of].([]any)
		for _, one := range list {
			out.Alternatives = append(out.Alternatives, d.schemaOf(one))
		}
	}
	out.Fields = d.fieldsOf(s)
	return out
}

// fieldsOf lists required fields first.
func (d *Document) fieldsOf(s object) (out []fieldView) {
	properties, _ := s["properties"].(object)
	required, _ := s["required"].([]any)
	for _, name := range required {
		out = append(out, fieldView{name.(string), true, d.schemaOf(properties[name.(string)])})
	}
	for _, name := range d.order.names(properties) {
		if !slices.Contains(required, any(name)) {
			out = append(out, fieldView{name, false, d.schemaOf(properties[name])})
		}
	}
	return out
}

func refName(s object) string {
	return strings.TrimPrefix(text(s, "$ref"), "#/components/schemas/")
}

func kindOf(s object) string {
	switch t := s["type"].(type) {
	case string:
		return listed(s, t)
	case []any:
		kinds := make([]string, len(t))
		for i, k := range t {
			kinds[i] = listed(s, k.(string))
		}
		return strings.Join(kinds, " or ")
	}
	switch {
	case refName(s) != "":
		return refName(s)
	case s["contentMediaType"] != nil:
		return "bytes"
	case s["enum"] != nil, s["const"] != nil:
		return "a value of a list"
	case s["oneOf"] != nil:
		return "one of several"
	}
	return "anything"
}

// listed names what a list holds.
func listed(s object, kind string) string {
	items, ok := s["items"].(object)
	if kind != "array" || !ok {
		return kind
	}
	return "array of " + kindOf(items)
}

// notes are the bounds of a schema.
func (d *Document) notes(s object) (out []string) {
	for _, bound := range []struct{ keyword, says string }{
		{"format", "format %v"}, {"const", "always %q"}, {"default", "default %v"}, {"minimum", "at least %v"}, {"maximum", "at most %v"},
		{"minLength", "at least %v characters"}, {"maxLength", "at most %v characters"}, {"maxItems", "at most %v items"}, {"pattern", "pattern %v"},
	} {
		if v, ok := s[bound.keyword]; ok {
			out = append(out, fmt.Sprintf(bound.says, v))
		}
	}
	if values, ok := s["enum"].([]any); ok {
		names := make([]string, len(values))
		for i, v := range values {
			names[i] = d.example(v)
			switch v {
			case nil:
				names[i] = "null"
			case "":
				names[i] = `""`
			}
		}
		out = append(out, "one of "+strings.Join(names, ", "))
	}
	if s["additionalProperties"] == false {
		out = append(out, "no other fields")
	}
	return out
}
