package generate

import (
	"strconv"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// separator stands between the texts of the system instruction.
const separator = "\n\n"

// system reads the instruction: a content, its parts, or a string.
func (d *decoder) system() error {
	v := get(d.body, "systemInstruction")
	var texts []string
	if v.Kind() == body.KindString {
		text, err := v.String()
		if err != nil {
			return err
		}
		texts = append(texts, text)
	} else {
		parts := v
		if v.Kind() == body.KindObject {
			f, err := v.Fields()
			if err != nil {
				return err
			}
			if parts = get(f, "parts"); parts.Absent() && !get(f, "text").Absent() {
				parts = v // a part alone
			} else {
				d.drop(f, "role", "parts")
			}
		}
		all, err := list(parts)
		if err != nil {
			return err
		}
		for _, v := range all {
			text, err := d.systemPart(v)
			if err != nil {
				return err
			}
			texts = append(texts, text)
		}
	}
	var said []string
	for _, text := range texts {
		if text != "" {
			said = append(said, text)
		}
	}
	if len(said) > 0 {
		d.r.Messages = append(d.r.Messages, turn.Message{Role: turn.RoleSystem, Content: turn.TextOf(strings.Join(said, separator))})
	}
	return nil
}

func (d *decoder) systemPart(v body.Value) (string, error) {
	if v.Kind() == body.KindString {
		return v.String()
	}
	f, err := v.Fields()
	if err != nil {
		return "", err
	}
	if get(f, "text").Absent() {
		return "", unsupported(v, "a system instruction holds text")
	}
	d.drop(f, "text")
	return get(f, "text").String()
}

func (d *decoder) history() error {
	v := get(d.body, "contents")
	all, err := list(v)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return v.Invalid("is required, with at least one content")
	}
	model := false
	for at, v := range all {
		f, err := v.Fields()
		if err != nil {
			return err
		}
		d.drop(f, "role", "parts")
		role, err := f.Get("role").String()
		if err != nil {
			return err
		}
		parts, err := list(f.Get("parts"))
		if err != nil {
			return err
		}
		switch role {
		case "model":
			err = d.model(at, parts)
		case "", "user", "function":
			err = d.user(v, at, parts)
		default:
			err = f.Get("role").Invalid("must be user or model, not " + strconv.Quote(role))
		}
		if err != nil {
			return err
		}
		model = role == "model"
	}
	if model {
		d.r.Rewrite("prefill_as_turn", all[len(all)-1].Path(), "the engine begins another turn after the model's last one")
	}
	return nil
}

// data are the members of which a part holds one.
var data = []string{
	"text", "functionCall", "functionResponse", "inlineData", "fileData",
	"executableCode", "codeExecutionResult", "toolCall", "toolResponse",
}

// kindOf gives what a part holds. A part of nothing but a signature holds empty text.
func (d *decoder) kindOf(v body.Value, f body.Fields) (string, body.Value, error) {
	for _, name := range data {
		if held := get(f, name); !held.Absent() {
			d.drop(f, name, "thought", "thoughtSignature")
			return name, held, nil
		}
	}
	if !get(f, "thought").Absent() || !get(f, "thoughtSignature").Absent() {
		d.drop(f, "thought", "thoughtSignature")
		return "text", body.Value{}, nil
	}
	return "", v, unsupported(v, "a part must hold one of "+strings.Join(data[:5], ", "))
}

// model makes one message of a model's turn.
func (d *decoder) model(at int, parts []body.Value) error {
	m := turn.Message{Role: turn.RoleAssistant}
	var text, thought, sealed strings.Builder
	seen := map[string]bool{} // traces whose thinking is in sealed
	first := true
	for i, v := range parts {
		f, err := v.Fields()
		if err != nil {
			return err
		}
		name, held, err := d.kindOf(v, f)
		if err != nil {
			return err
		}
		isThought, err := get(f, "thought").Bool()
		if err != nil {
			return err
		}
		signature, err := get(f, "thoughtSignature").String()
		if err != nil {
			return err
		}
		anchor, ours, err := d.r.Anchor(signature, v.Path())
		if err != nil {
			return err
		}
		if ours && !seen[anchor.TraceID] {
			seen[anchor.TraceID] = true
			sealed.WriteString(anchor.Reasoning)
		}
		switch name {
		case "text":
			said, err := held.String()
			if err != nil {
				return err
			}
			if isThought != nil && *isThought {
				thought.WriteString(said)
			} else {
				text.WriteString(said)
			}
		case "functionCall":
			if first {
				d.calls.turn()
				first = false
			}
			c, err := d.functionCall(held, at, i)
			if err != nil {
				return err
			}
			m.Calls = append(m.Calls, c)
		case "executableCode", "codeExecutionResult", "toolCall", "toolResponse":
			d.r.Rewrite("dropped_block", v.Path(), name)
		default:
			return unsupported(held, "is not supported in a model's turn")
		}
	}
	if text.Len() > 0 {
		m.Content = turn.TextOf(text.String())
	} else {
		m.Null = true
	}
	reasoning := thought.String()
	if reasoning == "" {
		reasoning = sealed.String()
	}
	if reasoning != "" {
		m.Reasoning = &reasoning
	}
	d.r.Messages = append(d.r.Messages, m)
	return nil
}
