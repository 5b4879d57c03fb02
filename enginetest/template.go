package enginetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Template switches what the chat template does. The zero value keeps what was sampled,
// so that a next prompt can extend a last answer; a call's arguments keep their text if
// that is spelled as Python spells JSON.
type Template struct {
	// DropThinking leaves out the thinking of turns before the last user message, as Qwen3's does.
	DropThinking bool `json:"drop_thinking,omitempty"`
	// SeparatorAfterEOT stands between a turn's end token and the next turn; nil: "\n".
	SeparatorAfterEOT *string `json:"separator_after_eot,omitempty"`
	// ArgumentsAsSent prints the arguments of calls as they came. Otherwise they are read
	// and written again as Python's json.dumps writes them, which is what engines and most
	// templates do; arguments that are no JSON are refused then, as engines refuse them, and none are {}.
	ArgumentsAsSent bool `json:"arguments_as_sent,omitempty"`
	// SortKeys writes them again with their keys sorted.
	SortKeys bool `json:"sort_keys,omitempty"`
	// NoMidSystem refuses a system message that is not the first.
	NoMidSystem bool `json:"no_mid_system,omitempty"`
}

const toolsHead = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
	"You are provided with function signatures within <tools></tools> XML tags:\n<tools>"

// The example of Qwen's own template holds real marks; here it does without, so that
// whoever looks for marks finds only those that mean something.
const toolsTail = "\n</tools>\n\nFor each function call, return a JSON object with function name and arguments within tool call marks:\n" +
	`{"name": <function-name>, "arguments": <args-json-object>}`

var errMidSystem = errors.New("System message must be at the beginning.") //nolint:staticcheck,revive // as a template raises it

// Render gives the text of a conversation. generate appends what opens the
// assistant's turn; thinking false then says that there is to be none.
func (t Template) Render(messages []Message, tools []Tool, generate, thinking bool) (string, error) {
	var b strings.Builder
	end := "<|im_end|>\n"
	if t.SeparatorAfterEOT != nil {
		end = "<|im_end|>" + *t.SeparatorAfterEOT
	}
	if len(tools) > 0 {
		b.WriteString("<|im_start|>system\n")
		if len(messages) > 0 && messages[0].Role == "system" {
			b.WriteString(messages[0].Content + "\n\n")
			messages = messages[1:]
		}
		b.WriteString(toolsHead)
		for i, tool := range tools {
			raw, err := dumps(tool.Raw, false)
			if err != nil {
				return "", fmt.Errorf("tools[%d]: %w", i, err)
			}
			b.WriteString("\n" + raw)
		}
		b.WriteString(toolsTail + end)
	}
	last := len(messages) - 1 // the last question
	for last >= 0 && messages[last].Role != "user" {
		last--
	}
	for i, m := range messages {
		switch m.Role {
		case "system":
			if t.NoMidSystem && (i > 0 || len(tools) > 0) {
				return "", errMidSystem
			}
			b.WriteString("<|im_start|>system\n" + m.Content + end)
		case "assistant":
			b.WriteString("<|im_start|>assistant\n")
			if err := t.assistant(&b, m, i > last || !t.DropThinking); err != nil {
				return "", fmt.Errorf("messages[%d]: %w", i, err)
			}
			b.WriteString(end)
		case "tool":
			if i == 0 || messages[i-1].Role != "tool" {
				b.WriteString("<|im_start|>user")
			}
			b.WriteString("\n<tool_response>\n" + m.Content + "\n</tool_response>")
			if i == len(messages)-1 || messages[i+1].Role != "tool" {
				b.WriteString(end)
			}
		default:
			b.WriteString("<|im_start|>" + m.Role + "\n" + m.Content + end)
		}
	}
	if generate {
		b.WriteString("<|im_start|>assistant\n")
		if !thinking {
			b.WriteString("<think>\n\n</think>\n\n")
		}
	}
	return b.String(), nil
}

// assistant writes what stands between an assistant's marks. What Turn.text makes and
// the parser takes apart comes out the same.
func (t Template) assistant(b *strings.Builder, m Message, thinking bool) error {
	content := m.Content
	if m.Reasoning != "" {
		content = strings.TrimLeft(content, "\n")
		if thinking {
			b.WriteString("<think>\n" + strings.Trim(m.Reasoning, "\n") + "\n</think>\n\n")
		}
	}
	b.WriteString(content)
	for i, c := range m.Calls {
		if i > 0 || content != "" && !strings.HasSuffix(content, "\n") {
			b.WriteString("\n")
		}
		arguments := c.Arguments
		if t.SortKeys || !t.ArgumentsAsSent {
			var err error
			if arguments == "" {
				arguments = "{}"
			}
			if arguments, err = dumps([]byte(arguments), t.SortKeys); err != nil {
				return fmt.Errorf("tool_calls[%d].function.arguments: %w", i, err)
			}
		}
		b.WriteString(callText(Call{Name: c.Name, Arguments: arguments}))
	}
	return nil
}

// callText is a call as the model writes it and the template prints it.
func callText(c Call) string {
	return "<tool_call>\n{\"name\": " + string(appendString(nil, c.Name)) + ", \"arguments\": " + c.Arguments + "}\n</tool_call>"
}

// dumps writes JSON as Python's json.dumps does with ensure_ascii off: ", " and ": "
// between, numbers as they stood, and keys in their order or sorted.
func dumps(raw []byte, sortKeys bool) (string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	out, err := dump(nil, d, sortKeys)
	if err != nil {
		return "", fmt.Errorf("read JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read JSON: something follows at byte %d", d.InputOffset())
	}
	return string(out), nil
}

func dump(dst []byte, d *json.Decoder, sortKeys bool) ([]byte, error) {
	token, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	switch v := token.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return fmt.Append(dst, v), nil
	case json.Number:
		return append(dst, v...), nil
	case string:
		return appendString(dst, v), nil
	}
	object := token == json.Delim('{')
	type member struct {
		key  string
		text []byte
	}
	var members []member
	for d.More() {
		var m member
		if object {
			key, err := d.Token()
			if err != nil {
				return nil, fmt.Errorf("read key: %w", err)
			}
			m.key, _ = key.(string)
			m.text = append(appendString(nil, m.key), ": "...)
		}
		if m.text, err = dump(m.text, d, sortKeys); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	if _, err := d.Token(); err != nil { // the closing bracket
		return nil, fmt.Errorf("read end: %w", err)
	}
	if object && sortKeys {
		slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	}
	brackets := "[]"
	if object {
		brackets = "{}"
	}
	dst = append(dst, brackets[0])
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, m.text...)
	}
	return append(dst, brackets[1]), nil
}
