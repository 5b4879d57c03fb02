package parser

import (
	"encoding/json"
	"strings"

	"icecore/ingest/gateway/turn"
)

// kind is what a schema says of a parameter. The zero kind is a string.
type kind struct {
	name     string
	nullable bool
}

type property struct {
	Type  json.RawMessage `json:"type"`
	AnyOf []property      `json:"anyOf"`
}

// schemas gives the kinds of all parameters by tool and name. A schema that cannot be
// read says nothing.
func schemas(tools []turn.Tool) map[string]map[string]kind {
	out := map[string]map[string]kind{}
	for i := range tools {
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		if json.Unmarshal(tools[i].Parameters, &schema) != nil {
			continue
		}
		kinds := map[string]kind{}
		for name, raw := range schema.Properties {
			var p property
			if json.Unmarshal(raw, &p) == nil {
				kinds[name] = p.kind()
			}
		}
		out[tools[i].Name] = kinds
	}
	return out
}

// kind is the first type that is not null.
func (p *property) kind() kind {
	var k kind
	add := func(name string) {
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case name == "null":
			k.nullable = true
		case k.name == "":
			k.name = name
		}
	}
	var one string
	var several []string
	switch {
	case json.Unmarshal(p.Type, &one) == nil:
		add(one)
	case json.Unmarshal(p.Type, &several) == nil:
		for _, name := range several {
			add(name)
		}
	}
	for i := range p.AnyOf {
		option := p.AnyOf[i].kind()
		k.nullable = k.nullable || option.nullable
		if k.name == "" {
			k.name = option.name
		}
	}
	return k
}

// append writes a value. One that is not what the schema says becomes a string: the
// tool can say what is wrong with it.
func (k kind) append(dst []byte, text string) []byte {
	bare := strings.TrimSpace(text)
	isText := k.name == "" || k.name == "string" || k.name == "enum"
	if (k.nullable || !isText) && (strings.EqualFold(bare, "null") || bare == "None") {
		return append(dst, "null"...)
	}
	if isText {
		return appendText(dst, text)
	}
	switch k.name {
	case "boolean", "bool":
		if lower := strings.ToLower(bare); lower == "true" || lower == "false" {
			return append(dst, lower...)
		}
	case "integer", "int", "number", "float":
		var n json.Number
		if json.Unmarshal([]byte(bare), &n) == nil && bare[0] != '"' {
			return append(dst, bare...)
		}
	default:
		if json.Valid([]byte(bare)) {
			return append(dst, bare...)
		}
	}
	return appendText(dst, text)
}
