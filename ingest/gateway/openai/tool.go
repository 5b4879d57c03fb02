package openai

import (
	"encoding/json"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// Function reads name, description, parameters and strict of a function.
func Function(f body.Fields) (turn.Tool, error) {
	var t turn.Tool
	var err error
	if t.Name, err = f.Get("name").NeedString(); err != nil {
		return t, err
	}
	if t.Description, err = f.Get("description").String(); err != nil {
		return t, err
	}
	t.Described = f.Has("description")
	if parameters := f.Get("parameters"); !parameters.Absent() {
		if _, err := parameters.Fields(); err != nil {
			return t, err
		}
		t.Parameters = parameters.Raw()
	}
	t.Strict, err = f.Get("strict").Bool()
	return t, err
}

// customSchema is a tool that takes free text, as engines know it.
const customSchema = `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}`

// Custom reads a tool that takes free text: engines know it as a function with the one
// argument input, and the grammar of the text is told in the description.
func Custom(r *turn.Request, f body.Fields) (turn.Tool, error) {
	var t turn.Tool
	var err error
	if t.Name, err = f.Get("name").NeedString(); err != nil {
		return t, err
	}
	if t.Description, err = f.Get("description").String(); err != nil {
		return t, err
	}
	t.Described = f.Has("description")
	t.Parameters = json.RawMessage(customSchema)
	format := f.Get("format")
	if format.Absent() {
		return t, nil
	}
	g, err := format.Fields()
	if err != nil {
		return t, err
	}
	if !g.Has("definition") && g.Has("grammar") { // as Chat Completions nests it
		if g, err = g.Get("grammar").Fields(); err != nil {
			return t, err
		}
	}
	g.Drop(r, "type", "definition", "syntax")
	definition, err := g.Get("definition").String()
	if err != nil || definition == "" {
		return t, err
	}
	syntax, err := g.Get("syntax").String()
	if err != nil {
		return t, err
	}
	if syntax != "" {
		syntax += " "
	}
	if t.Description != "" {
		t.Description += "\n\n"
	}
	t.Description += "The argument input is free text by this " + syntax + "grammar:\n" + definition
	return t, nil
}

// CustomArguments writes free text as the arguments that an engine knows.
func CustomArguments(input string) string {
	return string(append(body.AppendString([]byte(`{"input":`), input), '}'))
}
