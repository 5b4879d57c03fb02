package template

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

type testCase struct {
	Messages []struct {
		Role, Content string
		Reasoning     *string `json:"reasoning_content"`
		CallID        string  `json:"tool_call_id"`
		Calls         []struct {
			ID       string
			Function struct {
				Name      string
				Arguments json.RawMessage
			}
		} `json:"tool_calls"`
	}
	Tools []struct {
		Function struct {
			Name, Description string
			Parameters        json.RawMessage
			Strict            *bool
		}
	}
	Params map[string]json.RawMessage
}

func (c *testCase) request() *turn.Request {
	r := &turn.Request{}
	for _, m := range c.Messages {
		one := turn.Message{Role: m.Role, Content: turn.TextOf(m.Content), Reasoning: m.Reasoning, CallID: m.CallID}
		for _, call := range m.Calls {
			one.Calls = append(one.Calls, turn.Call{ID: call.ID, Name: call.Function.Name, Arguments: string(call.Function.Arguments)})
		}
		r.Messages = append(r.Messages, one)
	}
	for _, t := range c.Tools {
		f := t.Function
		r.Tools = append(r.Tools, turn.Tool{Name: f.Name, Description: f.Description, Parameters: f.Parameters, Strict: f.Strict})
	}
	return r
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, into))
}

func open(t *testing.T, name string) *Template {
	t.Helper()
	source, err := os.ReadFile("testdata/" + name + ".jinja")
	require.NoError(t, err)
	out, err := New(string(source))
	require.NoError(t, err)
	return out
}

// Python's Jinja2 wrote expected.json (reference.py).
func TestTemplatesSayWhatPythonSays(t *testing.T) {
	t.Parallel()
	var cases []testCase
	read(t, "cases.json", &cases)
	var expected map[string][]any
	read(t, "expected.json", &expected)
	require.Len(t, expected, 3)
	for name, texts := range expected {
		template := open(t, name)
		require.Len(t, texts, len(cases))
		for i := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // one template, many renderings
				got, err := template.Render(cases[i].request(), Options{Params: cases[i].Params, Now: time.Date(2026, 3, 7, 15, 4, 5, 0, time.UTC)})
				if want, ok := texts[i].(string); ok {
					require.NoError(t, err)
					require.Equal(t, want, got)
					return
				}
				require.ErrorContains(t, err, "Unexpected role critic")
			})
		}
	}
}

const oneTool = `{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments | tojson }}{% endif %}{% endfor %}`

func TestFormsOfTools(t *testing.T) {
	t.Parallel()
	template, err := New(oneTool)
	require.NoError(t, err)
	r := &turn.Request{Tools: []turn.Tool{{Name: "f", Parameters: json.RawMessage(`{"b":1,"a":[]}`)}, {Name: "g", Description: "d"}}}
	for form, want := range map[Form]string{
		"":       `[{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": []}}}, {"type": "function", "function": {"name": "g", "description": "d"}}]`,
		AsSent:   `[{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": []}}}, {"type": "function", "function": {"name": "g", "description": "d"}}]`,
		Filled:   `[{"type": "function", "function": {"description": null, "name": "f", "parameters": {"b": 1, "a": []}, "strict": false}}, {"type": "function", "function": {"description": "d", "name": "g", "parameters": null, "strict": false}}]`,
		Function: `[{"description": null, "name": "f", "parameters": {"b": 1, "a": []}, "strict": false}, {"description": "d", "name": "g", "parameters": null, "strict": false}]`,
	} {
		got, err := template.Render(r, Options{Tools: form})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	r.Choice.Name = "g"
	got, err := template.Render(r, Options{Tools: Function})
	require.NoError(t, err)
	require.Equal(t, `[{"description": "d", "name": "g", "parameters": null, "strict": false}]`, got)
	r.Choice = turn.ToolChoice{Mode: "none"}
	got, err = template.Render(r, Options{})
	require.NoError(t, err)
	require.Equal(t, "null", got)
}

func TestWhatIsNotSureIsAnError(t *testing.T) {
	t.Parallel()
	template, err := New(oneTool)
	require.NoError(t, err)
	call := func(arguments string) turn.Message {
		return turn.Message{Role: "assistant", Null: true, Calls: []turn.Call{{ID: "1", Name: "f", Arguments: arguments}}}
	}
	for want, m := range map[string]turn.Message{
		"prepare message 0: its content has parts": {Role: "user", Content: []turn.Part{{Raw: json.RawMessage(`{"type":"image_url"}`)}}},
		"read the arguments of call 0: read JSON":  call(`{"a":`),
		"something follows the value":              call(`{} {}`),
		"the number 12345678901234567890 is too":   call(`{"a":12345678901234567890}`),
		"the number 1e999 is too large":            call(`{"a":1e999}`),
	} {
		_, err := template.Render(&turn.Request{Messages: []turn.Message{m}}, Options{})
		require.ErrorContains(t, err, want)
	}
	_, err = template.Render(&turn.Request{}, Options{Params: map[string]json.RawMessage{"x": json.RawMessage("nope")}})
	require.ErrorContains(t, err, "read template parameter x")
}

func TestTemplatesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"{% if %}", "{{ a", "{% nothing %}", "{% for x in %}{% endfor %}"} {
		_, err := New(source)
		require.ErrorContains(t, err, "read the chat template", source)
	}
	for source, want := range map[string]string{
		"{{ messages | nothing }}":                "render the chat template",
		"{{ raise_exception('no') }}":             "the template refuses: no",
		"{{ messages | tojson(sort_keys=true) }}": "tojson does not know sort_keys",
		"{{ messages | string }}":                 "cannot be printed as Python does",
		"{{ none.x.y }}":                          "render the chat template",
		"{% include '/etc/passwd' %}":             "",
	} {
		template, err := New(source)
		if err == nil {
			_, err = template.Render(&turn.Request{}, Options{})
		}
		require.ErrorContains(t, err, want, source)
	}
}

func TestAPanicIsAnError(t *testing.T) {
	t.Parallel()
	fails := func() (err error) {
		defer guard(&err, "do it")
		panic("why")
	}
	require.EqualError(t, fails(), "do it: why")
}

func TestTextIsNeverTakenForATemplate(t *testing.T) {
	t.Parallel()
	template, err := New(oneTool)
	require.NoError(t, err)
	text := "{{ tools }} {% raw %} <&> \u2028 \x00"
	got, err := template.Render(&turn.Request{Messages: []turn.Message{{Role: "user", Content: turn.TextOf(text), AsArray: true}}}, Options{})
	require.NoError(t, err)
	require.Equal(t, "null"+text, got)
}

func TestWhatDiffersFromTheLibrary(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`{{ 'a  b'.split() | join(',') }}{{ 'a-b-c'.split('-', 1) | join(',') }}{{ 'x'.split('y')[-1] }}`: "a,ba,b-cx",
		`{{ 'aXbX'.replace('X', '') }}{{ 'aXbX'.replace('X', '.', 1) }}`:                                  "aba.bX",
		`{{ [1, 2.0, true, none, 'a'] | tojson }}`:                                                        `[1, 2.0, true, null, "a"]`,
		`{{ {'b': 1, 'a': {}} | tojson(indent=2, ensure_ascii=false) }}`:                                  "{\n  \"b\": 1,\n  \"a\": {}\n}",
		`{{ {'b': 1}.get('b') }}{{ {'b': 1}.get('c', 2) }}{{ {'b': 1}.get('c') is none }}`:                "12True",
		`{% for k in {'b': 1, 'a': 2} %}{{ k }}{% endfor %}{{ {'b': 1, 'a': 2}.values() | join('') }}`:    "ba12",
		`{{ true | string }}{{ 1.5 | string }}{{ 1e20 | string }}{{ none | string }}{{ 7 | string }}`:     "True1.51e+20None7",
		`{{ messages[0:][-1].content }}{{ (messages | list)[0].content }}`:                                "hihi",
	} {
		template, err := New(source)
		require.NoError(t, err, source)
		got, err := template.Render(&turn.Request{Messages: []turn.Message{{Role: "user", Content: turn.TextOf("hi")}}}, Options{})
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

func BenchmarkRender(b *testing.B) {
	source, err := os.ReadFile("testdata/chatml.jinja")
	require.NoError(b, err)
	template, err := New(string(source))
	require.NoError(b, err)
	r := &turn.Request{}
	for range 100 {
		r.Messages = append(r.Messages, turn.Message{Role: "user", Content: turn.TextOf(strings.Repeat("text ", 500))},
			turn.Message{Role: "assistant", Calls: []turn.Call{{ID: "1", Name: "f", Arguments: `{"a": [1, 2, {"b": "c"}]}`}}})
	}
	for b.Loop() {
		_, err := template.Render(r, Options{})
		require.NoError(b, err)
	}
}
