package responses

import (
	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// summarise asks the model for what a compaction_trigger wants of the server.
const summarise = "Summarise the conversation so far, so that the work can go on from your summary alone: " +
	"the task and its constraints, what was done and found, the files, names and commands that matter, " +
	"and what is left to do. Answer with the summary only."

// summarised begins the message that stands for a history that was summarised.
const summarised = "Summary of the conversation so far:\n\n"

// item makes of one item what it is in messages.
func (h *history) item(v body.Value) error {
	f, err := v.Fields()
	if err != nil {
		return err
	}
	kind, err := f.Get("type").String()
	if err != nil {
		return err
	}
	switch kind {
	case "message", "":
		return h.message(f)
	case "reasoning":
		return h.reasoning(f)
	case "function_call":
		return h.called(f, false)
	case "custom_tool_call":
		return h.called(f, true)
	case "function_call_output", "custom_tool_call_output":
		return h.result(f)
	case "compaction_trigger":
		h.add(turn.Message{Role: turn.RoleUser, Content: turn.TextOf(summarise)})
		h.r.Compact, h.r.Kind = true, trace.KindAuxiliary
		h.r.Rewrite("compaction_prompt", v.Path(), "the model is asked for a summary")
		return nil
	case "compaction", "compaction_summary":
		return h.compaction(f)
	case "item_reference":
		return turn.Unsupported(v.Path(), v.Path()+": items are not kept here; send the item itself")
	case "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
		"apply_patch_call", "apply_patch_call_output", "computer_call", "computer_call_output",
		"mcp_call", "mcp_approval_request", "mcp_approval_response", "code_interpreter_call",
		"tool_search_call", "tool_search_output":
		return turn.Unsupported(v.Path(), v.Path()+": the tool behind "+kind+
			" is not offered here; use a tool of type function or custom, and its call and output")
	}
	// Of a tool on another server (web_search_call, …), or newer than this: the model
	// was told of it in no way that engines know.
	h.r.Rewrite("dropped_item", v.Path(), "an item of type "+kind)
	return nil
}

func (h *history) message(f body.Fields) error {
	role, err := f.Get("role").NeedString()
	if err != nil {
		return err
	}
	f.Drop(h.r, "type", "id", "status", "role", "content")
	switch role {
	case turn.RoleAssistant:
		return h.said(f)
	case turn.RoleUser, turn.RoleSystem, turn.RoleDeveloper:
	default:
		return f.Get("role").Invalid("must be user, assistant, system or developer")
	}
	text := f.Get("content")
	if text.Absent() {
		return text.Invalid("is required")
	}
	parts, err := content(h.r, text)
	if err != nil {
		return err
	}
	h.add(turn.Message{Role: role, Content: parts, AsArray: asArray(parts)})
	return nil
}

// result is what a tool gave. Its call may be of any turn before.
func (h *history) result(f body.Fields) error {
	id, err := f.Get("call_id").NeedString()
	if err != nil {
		return err
	}
	f.Drop(h.r, "type", "id", "status", "call_id", "output")
	output := f.Get("output")
	m := turn.Message{Role: turn.RoleTool, CallID: id}
	switch output.Kind() {
	case body.KindString, body.KindArray:
		if m.Content, err = content(h.r, output); err != nil {
			return err
		}
		m.AsArray = asArray(m.Content)
	case body.KindAbsent:
	default:
		m.Content = turn.TextOf(string(output.Raw())) // JSON, as older clients sent it
	}
	h.add(m)
	return nil
}

func (h *history) compaction(f body.Fields) error {
	f.Drop(h.r, "type", "id", "encrypted_content")
	sealed := f.Get("encrypted_content")
	text, err := sealed.String()
	if err != nil {
		return err
	}
	anchor, ours, err := h.r.Open(text, sealed.Path())
	if err != nil {
		return err
	}
	if !ours {
		return turn.Unsupported(sealed.Path(), sealed.Path()+": this summary was made by another server and cannot be read here")
	}
	h.add(turn.Message{Role: turn.RoleUser, Content: turn.TextOf(summarised + anchor.Reasoning)})
	return nil
}

// asArray: one text goes as a text, anything else as parts.
func asArray(parts []turn.Part) bool {
	return len(parts) > 1 || len(parts) == 1 && parts[0].Raw != nil
}
