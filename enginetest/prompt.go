package enginetest

import (
	"encoding/json"
	"strings"
)

// seenIn reads a conversation back from the text of its prompt, so that the same
// script answers the same on routes that take ids and no messages.
func seenIn(text string) Seen {
	var s Seen
	turns := strings.Split(text, "<|im_start|>")[1:]
	for i, t := range turns {
		role, content, _ := strings.Cut(t, "\n")
		content, _, ended := strings.Cut(content, "<|im_end|>")
		if i == len(turns)-1 && role == "assistant" && !ended {
			break // the answer that is asked for
		}
		switch {
		case role == "system" && strings.Contains(content, toolsHead):
			before, rest, _ := strings.Cut(content, toolsHead)
			tools, _, _ := strings.Cut(rest, toolsTail)
			s.Tools = toolsIn(tools)
			if before = strings.TrimSuffix(before, "\n\n"); before != "" {
				s.Messages = append(s.Messages, Message{Role: role, Content: before})
			}
		case role == "user" && strings.HasPrefix(content, "<tool_response>\n"):
			for _, r := range strings.Split(content, "<tool_response>\n")[1:] {
				r = strings.TrimSuffix(strings.TrimSuffix(r, "\n"), "\n</tool_response>")
				s.Messages = append(s.Messages, Message{Role: "tool", Content: r})
			}
		case role == "assistant":
			p := parser{thinking: true, tools: true}
			var g gathered
			g.add(p.push(content))
			g.add(p.end())
			m := Message{Role: role, Content: string(g.text), Reasoning: string(g.reasoning)}
			for _, c := range g.calls {
				m.Calls = append(m.Calls, Call{Name: c.name, Arguments: c.arguments})
			}
			s.Messages = append(s.Messages, m)
		default:
			s.Messages = append(s.Messages, Message{Role: role, Content: content})
		}
	}
	s.count()
	return s
}

func toolsIn(text string) []Tool {
	var raw []json.RawMessage
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			raw = append(raw, json.RawMessage(line))
		}
	}
	tools, err := readTools(raw)
	if err != nil {
		return nil // no tools of the template's
	}
	return tools
}
