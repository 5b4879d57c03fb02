package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Message is one message of a request, as the template reads it.
type Message struct {
	Role string `json:"role"`
	// Content joins the parts that are text; an image is the marks of one.
	Content   string `json:"content"`
	Reasoning string `json:"reasoning,omitempty"`
	Calls     []Call `json:"calls,omitempty"`
	CallID    string `json:"tool_call_id,omitempty"`
}

// Call is one tool call.
type Call struct {
	Name string `json:"name"`
	// Arguments is the text of the arguments, which need not be valid JSON.
	Arguments string `json:"arguments"`
}

// Tool is a function that the request offers.
type Tool struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Raw is the tool as it came.
	Raw json.RawMessage `json:"-"`
}

// Seen is what an agent sees of a request.
type Seen struct {
	Messages []Message
	Tools    []Tool
	// Assistant counts the assistant's messages so far.
	Assistant int
	// Choice is which of n answers is asked for.
	Choice int
	// Attempt counts the requests that this script was asked before, from 0.
	Attempt int
	// MaxTokens bounds the answer; 0: not said.
	MaxTokens int
	// ToolChoice is auto, none, required, or the name of a tool.
	ToolChoice string
	// Format is the JSON schema that the answer must follow; nil: any text may come. It
	// is not known where a prompt comes as ids.
	Format json.RawMessage
}

func (s *Seen) count() {
	for _, m := range s.Messages {
		if m.Role == "assistant" {
			s.Assistant++
		}
	}
}

// wireMessage is a message as it is sent.
type wireMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Reasoning        *string         `json:"reasoning"`
	ReasoningContent *string         `json:"reasoning_content"`
	ToolCallID       string          `json:"tool_call_id"`
	ToolCalls        []struct {
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (w *wireMessage) message(at int) (Message, error) {
	m := Message{Role: w.Role, CallID: w.ToolCallID}
	if w.Role == "" {
		return m, fmt.Errorf("messages[%d]: role is missing", at)
	}
	for _, r := range []*string{w.Reasoning, w.ReasoningContent} {
		if r != nil {
			m.Reasoning = *r
		}
	}
	for i, c := range w.ToolCalls {
		arguments := string(c.Function.Arguments)
		if strings.HasPrefix(arguments, `"`) {
			if err := json.Unmarshal(c.Function.Arguments, &arguments); err != nil {
				return m, fmt.Errorf("messages[%d].tool_calls[%d].function.arguments: %w", at, i, err)
			}
		}
		m.Calls = append(m.Calls, Call{Name: c.Function.Name, Arguments: arguments})
	}
	var err error
	if m.Content, err = contentText(w.Content); err != nil {
		return m, fmt.Errorf("messages[%d].content: %w", at, err)
	}
	return m, nil
}

func contentText(raw json.RawMessage) (string, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", fmt.Errorf("read string: %w", err)
		}
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", fmt.Errorf("read parts: %w", err)
	}
	var b strings.Builder
	for i, p := range parts {
		switch p.Type {
		case "text":
			b.WriteString(p.Text)
		case "image_url", "image":
			b.WriteString("<|vision_start|><|image_pad|><|vision_end|>")
		default:
			return "", fmt.Errorf("part %d: unknown type %q", i, p.Type)
		}
	}
	return b.String(), nil
}

// readTools reads the tools as they are sent.
func readTools(raw []json.RawMessage) ([]Tool, error) {
	out := make([]Tool, len(raw))
	for i, r := range raw {
		var t struct {
			Function struct {
				Name       string          `json:"name"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"function"`
		}
		if err := json.Unmarshal(r, &t); err != nil {
			return nil, fmt.Errorf("tools[%d]: %w", i, err)
		}
		if t.Function.Name == "" {
			return nil, fmt.Errorf("tools[%d].function.name is missing", i)
		}
		out[i] = Tool{Name: t.Function.Name, Parameters: t.Function.Parameters, Raw: r}
	}
	return out, nil
}

// readToolChoice gives auto, none, required or a name.
func readToolChoice(raw json.RawMessage) string {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return name
	}
	var named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &named) == nil {
		return named.Function.Name
	}
	return ""
}
