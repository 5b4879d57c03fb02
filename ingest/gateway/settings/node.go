package settings

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// reader walks the file's nodes, and gathers every fault with its line.
type reader struct {
	from Source
	dir  string
	errs []error
}

func (r *reader) fault(n *yaml.Node, at, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("line %d: %s: %s", n.Line, at, fmt.Sprintf(format, args...)))
}

// fields are what an object may have, and what reads each.
type fields map[string]func(n *yaml.Node, at string)

// object reads the members that are known, and refuses others.
func (r *reader) object(n *yaml.Node, at string, known fields) {
	r.each(n, at, func(name string, value *yaml.Node, at string) {
		read := known[name]
		if read == nil {
			names := make([]string, 0, len(known))
			for k := range known {
				names = append(names, k)
			}
			slices.Sort(names)
			r.fault(value, at, "is not known here; there are %s", strings.Join(names, ", "))
			return
		}
		read(value, at)
	})
}

// each goes through the members of an object in the order of the file.
func (r *reader) each(n *yaml.Node, at string, do func(name string, value *yaml.Node, at string)) {
	if !r.is(n, at, yaml.MappingNode, "an object") {
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			r.fault(key, at, "has a member whose name is no plain text")
			continue
		}
		here := key.Value
		if at != "" {
			here = at + "." + here
		}
		if line := seen[key.Value]; line > 0 {
			r.fault(key, here, "is there already at line %d", line)
			continue
		}
		seen[key.Value] = key.Line
		do(key.Value, value, here)
	}
}

// list goes through a list.
func (r *reader) list(n *yaml.Node, at string, do func(n *yaml.Node, at string)) {
	if !r.is(n, at, yaml.SequenceNode, "a list") {
		return
	}
	for i, item := range n.Content {
		do(item, fmt.Sprintf("%s[%d]", at, i))
	}
}

// is says whether there is something of that kind to read. Nothing at all counts as
// an empty object or list.
func (r *reader) is(n *yaml.Node, at string, kind yaml.Kind, what string) bool {
	switch {
	case n.Kind == kind:
		return true
	case n.Kind == yaml.AliasNode:
		// Anchors can be nested until they mean gigabytes, or themselves.
		r.fault(n, at, "refers to an anchor; write it out")
	case n.Kind != yaml.ScalarNode || n.Tag != "!!null" || kind == yaml.ScalarNode:
		r.fault(n, orWhole(at), "is not %s", what)
	}
	return false
}

func orWhole(at string) string {
	if at == "" {
		return "the file"
	}
	return at
}

// scalar gives a value that has one of the tags, else "".
func (r *reader) scalar(n *yaml.Node, at, what string, tags ...string) string {
	if !r.is(n, at, yaml.ScalarNode, what) {
		return ""
	}
	if !slices.Contains(tags, n.Tag) {
		r.fault(n, at, "is not %s", what)
		return ""
	}
	return n.Value
}

// text reads a text that is not empty.
func (r *reader) text(n *yaml.Node, at string) string {
	before := len(r.errs)
	v := r.scalar(n, at, "a text (numbers and the like need quotes)", "!!str")
	if v == "" && len(r.errs) == before {
		r.fault(n, at, "is empty")
	}
	return v
}

// texts reads a list of texts without doubles.
func (r *reader) texts(n *yaml.Node, at string) (out []string) {
	r.list(n, at, func(n *yaml.Node, at string) {
		v := r.text(n, at)
		if slices.Contains(out, v) {
			r.fault(n, at, "%q is there already", v)
			return
		}
		out = append(out, v)
	})
	return out
}

func (r *reader) oneOf(n *yaml.Node, at string, words ...string) string {
	v := r.scalar(n, at, "one of "+strings.Join(words, ", "), "!!str", "!!bool")
	if v != "" && !slices.Contains(words, v) {
		r.fault(n, at, "%q is none of %s", v, strings.Join(words, ", "))
	}
	return v
}

func (r *reader) flag(n *yaml.Node, at string) bool {
	v := false
	if r.scalar(n, at, "true or false", "!!bool") != "" && n.Decode(&v) != nil {
		r.fault(n, at, "is not true or false")
	}
	return v
}

// count reads a whole number from least on.
func (r *reader) count(n *yaml.Node, at string, least int64) int64 {
	v := int64(0)
	text := r.scalar(n, at, "a whole number", "!!int")
	switch {
	case text == "":
	case n.Decode(&v) != nil || v > math.MaxInt32:
		r.fault(n, at, "%s is too large", text)
	case v < least:
		r.fault(n, at, "%s is less than %d", text, least)
	}
	return v
}

// size reads a size from 0B on, or above it.
func (r *reader) size(n *yaml.Node, at string, needed bool) int64 {
	text := r.scalar(n, at, "a size such as 64MiB", "!!str", "!!int", "!!float")
	if text == "" {
		return 0
	}
	v, err := ParseSize(text)
	switch {
	case err != nil && !needed:
		r.fault(n, at, "%q is not a size such as 64MiB", text)
	case err != nil || v == 0 && needed:
		r.fault(n, at, "%q is not a size such as 64MiB, above 0", text)
	}
	return v
}

// time reads a duration from 0 on, or above 0.
func (r *reader) time(n *yaml.Node, at string, needed bool) time.Duration {
	text := r.scalar(n, at, "a time such as 15s", "!!str", "!!int", "!!float")
	if text == "" {
		return 0
	}
	v, err := time.ParseDuration(text)
	switch {
	case err != nil || v < 0:
		r.fault(n, at, "%q is not a time such as 15s or 5m", text)
	case v == 0 && needed:
		r.fault(n, at, "must be above 0")
	}
	return v
}
