package main

import (
	"encoding/json"
	"slices"
	"strings"

	"icecore/enginetest"
)

// roles of tools, with what harnesses call them: in small letters, without marks.
var roles = map[string][]string{
	"shell": {"bash", "execcommand", "runshellcommand", "shell", "shellcommand"},
	"read":  {"read", "readfile"},
	"edit":  {"edit", "replace"},
	"patch": {"applypatch"},
	"spawn": {"agent", "task", "spawnagent"},
	"wait":  {"waitagent"},
}

// bare is a tool's name without what a gateway or a harness put before or into it.
func bare(name string) string {
	name = name[strings.LastIndexAny(name, ".:/")+1:]
	if at := strings.LastIndex(name, "__"); at >= 0 {
		name = name[at+2:]
	}
	return strings.ReplaceAll(strings.ToLower(name), "_", "")
}

// offered gives the tool of a role, or nil.
func (c *conversation) offered(role string) *enginetest.Tool {
	for i := range c.Tools {
		if slices.Contains(roles[role], bare(c.Tools[i].Name)) {
			return &c.Tools[i]
		}
	}
	return nil
}

// called says whether a tool of the role was called before.
func (c *conversation) called(role string) bool {
	for _, m := range c.Messages {
		for _, call := range m.Calls {
			if slices.Contains(roles[role], bare(call.Name)) {
				return true
			}
		}
	}
	return false
}

// call calls the tool of a role, with arguments by its schema. what is the command,
// path, patch or task.
func (c *conversation) call(role, what string) enginetest.Call {
	tool := c.offered(role)
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	_ = json.Unmarshal(tool.Parameters, &schema) // without a schema nothing is filled in
	values := map[string]any{
		"command": what, "cmd": what, "input": what, "prompt": what, "message": what, "request": what,
		"file_path": what, "path": what, "absolute_path": what,
		"old_string": wrongLine, "new_string": rightLine,
		"edits":         []map[string]string{{"oldText": wrongLine, "newText": rightLine}},
		"description":   "one step",
		"instruction":   "Put the right operator in.",
		"subagent_type": "general-purpose", "agent_name": "generalist",
	}
	var names []string
	for name := range schema.Properties {
		_, known := values[name]
		// What is not required is left out, unless it is what the call is about.
		if known && (slices.Contains(schema.Required, name) || len(schema.Required) == 0 && values[name] == any(what) || name == "subagent_type") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	// As models write JSON: blanks behind colons and commas.
	out := []byte("{")
	for i, name := range names {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(append(out, '"'), name...)
		out = append(out, `": `...)
		out = append(out, spaced(values[name])...)
	}
	return enginetest.Call{Name: tool.Name, Arguments: string(append(out, '}'))}
}

func spaced(v any) string {
	switch v := v.(type) {
	case []map[string]string:
		return `[{"oldText": ` + spaced(v[0]["oldText"]) + `, "newText": ` + spaced(v[0]["newText"]) + `}]`
	default:
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(v) // text always encodes
		return strings.TrimSuffix(b.String(), "\n")
	}
}
