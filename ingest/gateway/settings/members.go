package settings

import (
	"encoding/json"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// own are members of an engine's body that the gateway sets itself: another value
// would break what it captures.
var own = []string{
	"model", "messages", "prompt", "input_ids", "token_ids", "tools", "stream", "stream_options", "n",
	"logprobs", "top_logprobs", "return_token_ids", "return_tokens_as_token_ids", "return_prompt_token_ids",
	"return_meta_info", "return_input_ids_in_sglext", "return_output_ids_in_sglext", "include_reasoning",
	"request_id", "rid",
}

// members reads an object whose values go to the engine as JSON. limits are names
// that have a setting of their own.
func (r *reader) members(n *yaml.Node, at string) Members {
	out := Members{}
	r.each(n, at, func(name string, value *yaml.Node, at string) {
		switch {
		case slices.Contains(own, name):
			r.fault(value, at, "is set by the gateway itself")
		case name == "max_tokens" || name == "max_completion_tokens":
			r.fault(value, at, "is said by the model's max_tokens and default_max_tokens")
		default:
			out[name] = r.json(nil, value, at)
		}
	})
	return out
}

// json appends a node as JSON, its members in the order of the file.
func (r *reader) json(dst []byte, n *yaml.Node, at string) json.RawMessage {
	switch n.Kind {
	case yaml.MappingNode:
		dst = append(dst, '{')
		first := len(dst)
		r.each(n, at, func(name string, value *yaml.Node, at string) {
			if len(dst) > first {
				dst = append(dst, ',')
			}
			dst = append(r.plain(dst, n, at, name), ':')
			dst = r.json(dst, value, at)
		})
		return append(dst, '}')
	case yaml.SequenceNode:
		dst = append(dst, '[')
		for i, item := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.json(dst, item, fmt.Sprintf("%s[%d]", at, i))
		}
		return append(dst, ']')
	}
	if !r.is(n, at, yaml.ScalarNode, "a value") {
		return append(dst, "null"...)
	}
	switch n.Tag {
	case "!!null":
		return append(dst, "null"...)
	case "!!str", "!!timestamp":
		return r.plain(dst, n, at, n.Value)
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) { // as it stands, so that nothing is rounded
			return append(dst, n.Value...)
		}
	case "!!bool":
	default:
		r.fault(n, at, "is of type %s, which JSON has not", n.Tag)
		return append(dst, "null"...)
	}
	var v any
	if err := n.Decode(&v); err != nil {
		r.fault(n, at, "cannot be read: %v", err)
	}
	return r.plain(dst, n, at, v)
}

func (r *reader) plain(dst []byte, n *yaml.Node, at string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		r.fault(n, at, "%s has no form in JSON", n.Value)
		return append(dst, "null"...)
	}
	return append(dst, text...)
}
