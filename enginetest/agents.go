package enginetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// turn asks whoever answers for this script.
func (s *Script) turn(seen *Seen) Turn {
	switch {
	case s.Agent != nil:
		return s.Agent(seen)
	case len(s.Turns) > 0:
		return s.Turns[min(seen.Assistant, len(s.Turns)-1)].choice(seen.Choice)
	case s.Builtin == "echo":
		return echo(seen).choice(seen.Choice)
	}
	t := s.coder(seen)
	if t.Reasoning == "" {
		t.Reasoning = s.Think
	}
	return t.choice(seen.Choice)
}

func (t Turn) choice(i int) Turn {
	switch {
	case i == 0:
	case i <= len(t.Choices):
		t = t.Choices[i-1]
	case t.Raw != "":
		t.Raw += fmt.Sprintf(" (choice %d)", i)
	default:
		t.Text += fmt.Sprintf(" (choice %d)", i)
	}
	t.Choices = nil
	return t
}

func echo(seen *Seen) Turn {
	if len(seen.Messages) == 0 {
		return Turn{}
	}
	return Turn{Text: seen.Messages[len(seen.Messages)-1].Content}
}

var defaultCommands = []string{"pwd", "printf 'def add(a, b):\\n    return a - b\\n' > sum.py", "cat sum.py",
	"sed 's/a - b/a + b/' sum.py > sum.new && mv sum.new sum.py", "cat sum.py"}

const defaultAnswer = "I looked at the file, found the wrong operator in it, and put the right one there. The sum of two numbers is now what it should be."

// coder runs its commands one by one where a tool like a shell is offered, and then
// says what it did. It counts the calls that the history still holds.
func (s *Script) coder(seen *Seen) Turn {
	answer := s.Answer
	if answer == "" {
		answer = defaultAnswer
	}
	commands := s.Commands
	if commands == nil {
		commands = defaultCommands
	}
	if seen.Format != nil {
		return Turn{Text: FillArguments(seen.Format, answer)}
	}
	tool := pickTool(seen)
	done := 0
	for _, m := range seen.Messages {
		if m.Role == "assistant" && len(m.Calls) > 0 {
			done++
		}
	}
	if tool == nil || done >= len(commands) && !forced(seen) {
		return Turn{Text: answer}
	}
	command := commands[min(done, len(commands)-1)]
	text := ""
	if done == 0 {
		text = "I begin with a look around.\n"
	}
	return Turn{Text: text, Calls: []Call{{Name: tool.Name, Arguments: FillArguments(tool.Parameters, command)}}}
}

// forced says that the request wants a call whatever was done.
func forced(seen *Seen) bool {
	return seen.ToolChoice == "required" || seen.ToolChoice != "" && seen.ToolChoice != "auto" && seen.ToolChoice != "none"
}

var shells = []string{"bash", "shell", "exec_command", "shell_command", "run_shell_command", "local_shell", "execute_bash", "execute_command"}

// pickTool takes the named tool, else the first that is like a shell, else, when a
// call is required, the first.
func pickTool(seen *Seen) *Tool {
	if seen.ToolChoice == "none" {
		return nil
	}
	for i := range seen.Tools {
		if seen.Tools[i].Name == seen.ToolChoice {
			return &seen.Tools[i]
		}
	}
	for i := range seen.Tools {
		name := strings.ToLower(seen.Tools[i].Name)
		// A gateway may have flattened a namespace into the name.
		name = name[strings.LastIndex(name, ".")+1:]
		name = name[strings.LastIndex(name, "__")+1:]
		name = strings.TrimPrefix(name, "_")
		if slices.Contains(shells, name) || strings.HasPrefix(name, "run_terminal") {
			return &seen.Tools[i]
		}
	}
	if seen.ToolChoice == "required" && len(seen.Tools) > 0 {
		return &seen.Tools[0]
	}
	return nil
}

// schema is what FillArguments reads of a JSON schema.
type schema struct {
	Type       any                        `json:"type"`
	Enum       []json.RawMessage          `json:"enum"`
	Required   []string                   `json:"required"`
	Properties map[string]json.RawMessage `json:"properties"`
	Minimum    *json.Number               `json:"minimum"`
}

var commandNames = []string{"command", "cmd", "script", "input", "code"}

// FillArguments makes arguments for a tool: command where its schema has a place for
// one, and what else is required. The text is as models write JSON.
func FillArguments(parameters json.RawMessage, command string) string {
	var s schema
	if json.Unmarshal(parameters, &s) != nil {
		return "{}"
	}
	names := slices.Clone(s.Required)
	for _, name := range commandNames {
		if _, there := s.Properties[name]; there && !slices.Contains(names, name) {
			names = append([]string{name}, names...)
			break
		}
	}
	var out []byte
	used := false
	for _, name := range names {
		out = append(out, ", "...)
		out = append(appendString(out, name), ": "...)
		word := "run a command"
		if !used && slices.Contains(commandNames, name) {
			word, used = command, true
		}
		out = append(out, fill(s.Properties[name], word, used && word == command)...)
	}
	return "{" + strings.TrimPrefix(string(out), ", ") + "}"
}

func fill(raw json.RawMessage, word string, isCommand bool) string {
	var s schema
	if json.Unmarshal(raw, &s) != nil {
		return string(appendString(nil, word))
	}
	if len(s.Enum) > 0 {
		return string(s.Enum[0])
	}
	kind, _ := s.Type.(string)
	if several, ok := s.Type.([]any); ok && len(several) > 0 {
		kind, _ = several[0].(string)
	}
	switch kind {
	case "array":
		if isCommand {
			return `["bash", "-lc", ` + string(appendString(nil, word)) + `]`
		}
		return "[]"
	case "object":
		return FillArguments(raw, word)
	case "boolean":
		return "false"
	case "integer", "number":
		if s.Minimum != nil {
			return s.Minimum.String()
		}
		return "60000" // a time limit, most likely
	}
	return string(appendString(nil, word))
}
