package messages

import (
	"strconv"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// separator stands between the texts of a system message.
const separator = "\n\n"

func (d *decoder) system() error {
	v := d.body.Get("system")
	if v.Absent() {
		return nil
	}
	text, err := d.systemText(v)
	if err == nil && text != "" {
		d.r.Messages = append(d.r.Messages, turn.Message{Role: turn.RoleSystem, Content: turn.TextOf(text)})
	}
	return err
}

// systemText reads a string, or the texts of blocks.
func (d *decoder) systemText(v body.Value) (string, error) {
	if v.Kind() != body.KindArray {
		return v.String()
	}
	blocks, err := v.Array()
	if err != nil {
		return "", err
	}
	var texts []string
	for _, block := range blocks {
		f, kind, err := open(block)
		if err != nil {
			return "", err
		}
		if kind != "text" {
			return "", unsupported(f.Get("type"), "only text can be in a system message, not "+strconv.Quote(kind))
		}
		text, err := f.Get("text").String()
		if err != nil {
			return "", err
		}
		f.Drop(d.r, "type", "text")
		if text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, separator), nil
}

// open gives a block's members and type.
func open(block body.Value) (body.Fields, string, error) {
	f, err := block.Fields()
	if err != nil {
		return f, "", err
	}
	kind, err := f.Get("type").NeedString()
	return f, kind, err
}

func (d *decoder) history() error {
	all, err := d.body.Get("messages").Array()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return d.body.Get("messages").Invalid("is required, with at least one message")
	}
	role := ""
	for _, v := range all {
		f, err := v.Fields()
		if err != nil {
			return err
		}
		if role, err = f.Get("role").NeedString(); err != nil {
			return err
		}
		if f.Get("content").Absent() {
			return f.Get("content").Invalid("is required")
		}
		f.Drop(d.r, "role", "content")
		if err := d.message(f, role); err != nil {
			return err
		}
	}
	if role == turn.RoleAssistant {
		d.r.Rewrite("prefill_as_turn", all[len(all)-1].Path(), "the engine begins another turn after the assistant's last one")
	}
	return nil
}

func (d *decoder) message(f body.Fields, role string) error {
	content := f.Get("content")
	switch role {
	case turn.RoleSystem, turn.RoleDeveloper:
		text, err := d.systemText(content)
		if err != nil {
			return err
		}
		d.r.Messages = append(d.r.Messages, turn.Message{Role: role, Content: turn.TextOf(text)})
		return nil
	case turn.RoleUser, turn.RoleAssistant:
	default:
		return f.Get("role").Invalid("must be user, assistant or system, not " + strconv.Quote(role))
	}
	if content.Kind() == body.KindString {
		text, err := content.String()
		d.r.Messages = append(d.r.Messages, turn.Message{Role: role, Content: turn.TextOf(text)})
		return err
	}
	blocks, err := content.Array()
	if err != nil {
		return content.Invalid("must be a string or an array of blocks")
	}
	if role == turn.RoleAssistant {
		return d.assistant(blocks)
	}
	return d.user(content, blocks)
}

// assistant makes one message of a turn's blocks.
func (d *decoder) assistant(blocks []body.Value) error {
	m := turn.Message{Role: turn.RoleAssistant}
	var text, reasoning strings.Builder
	for _, v := range blocks {
		f, kind, err := open(v)
		if err != nil {
			return err
		}
		switch kind {
		case "text":
			said, err := f.Get("text").String()
			if err != nil {
				return err
			}
			f.Drop(d.r, "type", "text")
			text.WriteString(said)
		case "thinking", "redacted_thinking":
			thought, err := d.thought(f, kind)
			if err != nil {
				return err
			}
			reasoning.WriteString(thought)
		case "tool_use":
			call, err := d.toolUse(f)
			if err != nil {
				return err
			}
			m.Calls = append(m.Calls, call)
		case "server_tool_use", "mcp_tool_use", "mcp_tool_result", "fallback", "compaction":
			d.r.Rewrite("dropped_block", v.Path(), kind)
		default:
			if !strings.HasSuffix(kind, "_tool_result") {
				return unsupported(f.Get("type"), "a block of type "+strconv.Quote(kind)+" is not supported in an assistant's turn")
			}
			d.r.Rewrite("dropped_block", v.Path(), kind) // of a tool of Anthropic's servers
		}
	}
	if text.Len() > 0 {
		m.Content = turn.TextOf(text.String())
	} else {
		m.Null = true
	}
	if reasoning.Len() > 0 {
		thought := reasoning.String()
		m.Reasoning = &thought
	}
	d.r.Messages = append(d.r.Messages, m)
	return nil
}

// thought reads a block of thinking. The message that it is in comes next in the list.
func (d *decoder) thought(f body.Fields, kind string) (string, error) {
	seal, text := f.Get("signature"), ""
	if kind == "redacted_thinking" {
		seal = f.Get("data")
	} else {
		var err error
		if text, err = f.Get("thinking").String(); err != nil {
			return "", err
		}
	}
	f.Drop(d.r, "type", "thinking", "signature", "data")
	sealed, err := seal.String()
	if err != nil {
		return "", err
	}
	anchor, ours, err := d.r.Anchor(sealed, seal.Path())
	if err != nil {
		return "", err
	}
	if !ours {
		if text == "" {
			d.r.Rewrite("dropped_reasoning", f.Path(), "it has no text, and its signature is not of this gateway")
		}
		return text, nil
	}
	if text == "" {
		text = anchor.Reasoning
	}
	return text, nil
}

func (d *decoder) toolUse(f body.Fields) (turn.Call, error) {
	var call turn.Call
	var err error
	if call.ID, err = f.Get("id").NeedString(); err != nil {
		return call, err
	}
	if call.Name, err = f.Get("name").NeedString(); err != nil {
		return call, err
	}
	f.Drop(d.r, "type", "id", "name", "input")
	switch input := f.Get("input"); input.Kind() {
	case body.KindAbsent:
		call.Arguments = "{}"
	case body.KindString: // a harness that keeps arguments which were no JSON
		if call.Arguments, err = input.String(); err != nil {
			return call, err
		}
	default:
		call.Arguments = string(input.Compact())
	}
	if d.order == nil {
		d.order = map[string]int{}
	}
	d.seen++
	d.order[call.ID] = d.seen // an id that comes again takes the later place
	return call, nil
}
