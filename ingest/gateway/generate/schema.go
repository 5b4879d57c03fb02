package generate

import (
	"bytes"
	"slices"
	"strings"

	"icecore/ingest/gateway/body"
)

// types are Google's names of JSON types, in small letters.
var types = []string{"string", "number", "integer", "boolean", "array", "object", "null"}

// numeric are the 64-bit members of a schema, which Google's JSON carries as strings.
var numeric = []string{"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}

// maxDepth is how many schemas may lie in each other. Each level reads all below it.
const maxDepth = 64

// jsonSchema makes a JSON schema of one in Google's dialect, with its members in the
// order that they came: templates print them. What is JSON schema already stays.
func jsonSchema(v body.Value) (raw, error) { return schemaAt(v, 0) }

func schemaAt(v body.Value, depth int) (raw, error) {
	if depth > maxDepth {
		return nil, v.Invalid("is nested too deep for a schema")
	}
	f, err := v.Fields()
	if err != nil {
		return nil, err
	}
	s := schema{depth: depth, names: map[string]bool{}}
	if s.nullable, err = get(f, "nullable").True(); err != nil {
		return nil, err
	}
	for _, m := range f.All() {
		if err := s.member(m); err != nil {
			return nil, err
		}
	}
	return append(append([]byte{'{'}, bytes.Join(s.members, []byte(","))...), '}'), nil
}

type schema struct {
	depth    int
	names    map[string]bool
	members  [][]byte
	nullable bool
}

// inner converts a schema within.
func (s *schema) inner(v body.Value) (raw, error) { return schemaAt(v, s.depth+1) }

// put writes a member. Of two spellings of one name the first counts.
func (s *schema) put(name string, value []byte) {
	if s.names[name] {
		return
	}
	s.names[name] = true
	s.members = append(s.members, append(append(body.AppendString(nil, name), ':'), value...))
}

func (s *schema) member(m body.Member) error {
	name, v := camel(m.Name), m.Value
	if v.Absent() && name != "default" && name != "example" {
		return nil
	}
	var value raw
	var err error
	switch {
	case name == "type" && v.Kind() == body.KindString:
		return s.typed(v)
	case name == "nullable", name == "propertyOrdering":
		return nil
	case name == "enum" && s.nullable:
		value, err = each(v, func(v body.Value) (raw, error) { return v.Raw(), nil }, "null")
	case name == "anyOf" && s.nullable:
		value, err = each(v, s.inner, `{"type":"null"}`)
	case name == "anyOf" || name == "oneOf" || name == "allOf" || name == "prefixItems":
		value, err = each(v, s.inner, "")
	case (name == "items" || name == "additionalProperties" || name == "not") && v.Kind() == body.KindObject:
		value, err = s.inner(v)
	case name == "properties" || name == "defs" || name == "$defs" || name == "definitions":
		if name == "defs" {
			name = "$defs"
		}
		value, err = s.named(v)
	case name == "ref":
		var to string
		if to, err = v.String(); err != nil {
			return err
		}
		// defs become $defs, so what points into them has to as well.
		if inner, found := strings.CutPrefix(to, "#/defs/"); found {
			to = "#/$defs/" + inner
		}
		name, value = "$ref", body.AppendString(nil, to)
	case slices.Contains(numeric, name) && v.Kind() == body.KindString:
		n, ok := digits(v)
		if !ok {
			return v.Invalid("must be an integer")
		}
		value = raw(n)
	default:
		if !slices.Contains(numeric, name) {
			name = m.Name
		}
		value = v.Raw()
	}
	if err == nil {
		s.put(name, value)
	}
	return err
}

// typed writes the type, and null beside it where that is allowed.
func (s *schema) typed(v body.Value) error {
	name, err := v.String()
	if err != nil || name == "TYPE_UNSPECIFIED" {
		return err
	}
	if small := strings.ToLower(name); slices.Contains(types, small) {
		name = small
	}
	value := body.AppendString(nil, name)
	if s.nullable && name != "null" {
		value = append(append([]byte{'['}, value...), `,"null"]`...)
	}
	s.put("type", value)
	return nil
}

// each converts the elements of an array, and puts one more after them.
func each(v body.Value, convert func(body.Value) (raw, error), more string) (raw, error) {
	all, err := v.Array()
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for _, element := range all {
		one, err := convert(element)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	if more != "" {
		out = append(out, []byte(more))
	}
	return append(append([]byte{'['}, bytes.Join(out, []byte(","))...), ']'), nil
}

// named converts an object whose members are schemas.
func (s *schema) named(v body.Value) (raw, error) {
	f, err := v.Fields()
	if err != nil {
		return nil, err
	}
	var members [][]byte
	for _, m := range f.All() {
		value := m.Value.Raw()
		if m.Value.Kind() == body.KindObject {
			if value, err = s.inner(m.Value); err != nil {
				return nil, err
			}
		}
		members = append(members, append(append(body.AppendString(nil, m.Name), ':'), value...))
	}
	return append(append([]byte{'{'}, bytes.Join(members, []byte(","))...), '}'), nil
}

func digits(v body.Value) (string, bool) {
	s, err := v.String()
	if err != nil || s == "" || len(s) > 19 || len(s) > 1 && s[0] == '0' {
		return "", false
	}
	for _, c := range s {
		if c < '0' || c > '9' {
			return "", false
		}
	}
	return s, true
}
