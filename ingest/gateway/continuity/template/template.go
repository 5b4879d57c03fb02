package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"

	"icecore/ingest/gateway/turn"
)

// Form is how an engine hands tools to its template.
type Form string

// Forms of tools: as they were sent; as SGLang fills them in (description, name,
// parameters, strict); the same without the object around the function, as older
// SGLang did.
const (
	AsSent   Form = "as_sent"
	Filled   Form = "filled"
	Function Form = "function"
)

// Forms are all of them. Which one an engine uses shows when its prompts come.
var Forms = []Form{AsSent, Filled, Function}

// Options are what a template sees beside messages and tools.
type Options struct {
	// Field is the member for an assistant's thinking; empty: reasoning_content.
	Field turn.ReasoningField
	// Tools is the form of tools; empty: AsSent.
	Tools Form
	// Params are chat_template_kwargs, and bos_token and eos_token where the template
	// writes them.
	Params map[string]json.RawMessage
	// Now is for templates that write the date; zero: the time of the call.
	Now time.Time
}

// Template is one model's chat template. Safe for concurrent use.
type Template struct{ parsed *exec.Template }

// A generation block marks the assistant's text for training; it prints its body.
var generation = regexp.MustCompile(`\{%(-?)\s*(end)?generation\s*(-?)%\}`)

// New reads the source of a template.
func New(source string) (t *Template, err error) {
	defer guard(&err, "read the chat template")
	source = generation.ReplaceAllStringFunc(source, func(block string) string {
		if strings.Contains(block, "endgeneration") {
			return strings.Replace(block, "endgeneration", "endif", 1)
		}
		return strings.Replace(block, "generation", "if true", 1)
	})
	loader, err := loaders.NewMemoryLoader(map[string]string{"/template": source})
	if err != nil {
		return nil, fmt.Errorf("read the chat template: %w", err)
	}
	parsed, err := exec.NewTemplate("/template", settings(), loader, environment())
	if err != nil {
		return nil, fmt.Errorf("read the chat template: %w", shorten(err))
	}
	return &Template{parsed: parsed}, nil
}

// Render gives the text of the prompt for an answer to the request.
func (t *Template) Render(r *turn.Request, o Options) (text string, err error) {
	defer guard(&err, "render the chat template")
	members := map[string]any{"add_generation_prompt": true}
	for name, raw := range o.Params {
		if members[name], err = decode(raw); err != nil {
			return "", fmt.Errorf("read template parameter %s: %w", name, err)
		}
	}
	messages := make(list, len(r.Messages))
	for i := range r.Messages {
		if messages[i], err = message(&r.Messages[i], o.Field); err != nil {
			return "", fmt.Errorf("prepare message %d: %w", i, err)
		}
	}
	members["messages"] = messages
	members["tools"], members["documents"] = nil, nil
	if len(r.Tools) > 0 && r.Choice.Mode != "none" {
		if members["tools"], err = tools(r, o.Tools); err != nil {
			return "", err
		}
	}
	now := o.Now
	if now.IsZero() {
		now = time.Now()
	}
	members["strftime_now"] = clock(now)

	data := exec.EmptyContext()
	for _, name := range slices.Sorted(maps.Keys(members)) {
		data.Set(name, members[name])
	}
	var out strings.Builder
	if err := t.parsed.Execute(&out, data); err != nil {
		return "", fmt.Errorf("render the chat template: %w", shorten(err))
	}
	return out.String(), nil
}

// message gives what engines hand to the template: content as text, arguments as an
// object.
func message(m *turn.Message, field turn.ReasoningField) (any, error) {
	if len(m.Content) > 1 || len(m.Content) == 1 && m.Content[0].Raw != nil {
		return nil, errors.New("its content has parts that engines join each in their way")
	}
	if field == "" {
		field = turn.ReasoningContent
	}
	plain := *m
	plain.AsArray = false
	if plain.Null = false; len(plain.Content) == 0 {
		plain.Content = turn.TextOf("")
	}
	raw, err := plain.JSON(field)
	if err != nil {
		return nil, fmt.Errorf("write the message: %w", err)
	}
	v, err := decode(raw)
	if err != nil {
		return nil, err
	}
	d, ok := v.(*exec.Dict)
	if !ok {
		return nil, errors.New("it is no object")
	}
	calls, _ := get(d, "tool_calls").(list)
	for i, c := range calls {
		call, _ := c.(*exec.Dict)
		function, ok := get(call, "function").(*exec.Dict)
		if !ok {
			return nil, fmt.Errorf("call %d is no function", i)
		}
		arguments, err := decode([]byte(m.Calls[i].Arguments))
		if err != nil {
			return nil, fmt.Errorf("read the arguments of call %d: %w", i, err)
		}
		put(function, "arguments", arguments)
	}
	return d, nil
}

func tools(r *turn.Request, form Form) (any, error) {
	out := make(list, 0, len(r.Tools))
	for i := range r.Tools {
		if r.Choice.Name != "" && r.Choice.Name != r.Tools[i].Name && (form == Filled || form == Function) {
			continue // SGLang shows only the tool that must be called
		}
		raw, err := r.Tools[i].JSON()
		if err != nil {
			return nil, fmt.Errorf("write tool %d: %w", i, err)
		}
		v, err := decode(raw)
		if err != nil {
			return nil, fmt.Errorf("read tool %d: %w", i, err)
		}
		tool, _ := v.(*exec.Dict)
		if form == Filled || form == Function {
			sent, _ := get(tool, "function").(*exec.Dict)
			full := exec.NewDict()
			for _, name := range []string{"description", "name", "parameters", "strict"} {
				put(full, name, get(sent, name))
			}
			if get(sent, "strict") == nil {
				put(full, "strict", false)
			}
			put(tool, "function", full)
			if v = tool; form == Function {
				v = full
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// guard makes an error of a panic in the template library: a template must not end
// the gateway.
func guard(err *error, doing string) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: %v", doing, p)
	}
}

// shorten cuts an error that quotes the whole template.
func shorten(err error) error {
	const most = 300
	text := err.Error()
	if len(text) <= 2*most {
		return err
	}
	return errors.New(strings.ToValidUTF8(text[:most]+" … "+text[len(text)-most:], ""))
}
