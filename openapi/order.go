package openapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// order remembers how the keys of objects were written, by the set of keys: maps
// forget it, and trace_id comes before api for a reason.
type order map[string][]string

// learn takes in a file. Objects of the same keys have the order of the first.
func (o order) learn(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		keys := keysOf(n)
		if set := setOf(keys); o[set] == nil {
			o[set] = keys
		}
	}
	for _, inner := range n.Content {
		o.learn(inner)
	}
}

// keysOf gives the keys of an object, those that it merges in at their place.
func keysOf(n *yaml.Node) (out []string) {
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		more := []string{key}
		if key == "<<" {
			if value.Kind == yaml.AliasNode {
				value = value.Alias
			}
			more = keysOf(value)
		}
		for _, k := range more {
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	return out
}

func setOf(keys []string) string { return strings.Join(slices.Sorted(slices.Values(keys)), "\x00") }

// names gives the keys of an object as they were written, or by name.
func (o order) names(v object) []string {
	keys := slices.Sorted(maps.Keys(v))
	if written, ok := o[setOf(keys)]; ok {
		return written
	}
	return keys
}

// json writes a value, objects in order.
func (o order) json(out []byte, v any) []byte {
	switch v := v.(type) {
	case object:
		out = append(out, '{')
		for i, name := range o.names(v) {
			if i > 0 {
				out = append(out, ',')
			}
			out = o.json(append(o.json(out, name), ':'), v[name])
		}
		return append(out, '}')
	case []any:
		out = append(out, '[')
		for i, value := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = o.json(out, value)
		}
		return append(out, ']')
	}
	var one bytes.Buffer
	e := json.NewEncoder(&one)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // it was decoded from a text
	}
	return append(out, bytes.TrimSpace(one.Bytes())...)
}

// indented is json over several lines.
func (o order) indented(v any) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, o.json(nil, v), "", "  "); err != nil {
		panic(err) // it is JSON
	}
	return out.Bytes()
}
