package enginetest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func render(t testing.TB, tpl Template, messages ...Message) string {
	text, err := tpl.Render(messages, nil, true, true)
	require.NoError(t, err)
	return text
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	tool := Tool{Name: "bash", Raw: json.RawMessage(`{"type":"function","function":{"name":"bash","x":[1,true,null,"<é>"]}}`)}
	text, err := Template{}.Render([]Message{{Role: "system", Content: "S"}, {Role: "user", Content: "U"},
		{Role: "assistant", Reasoning: "\nR\n", Content: "\n\nA\n", Calls: []Call{{"bash", `{"a": 1}`}, {"bash", `{}`}}},
		{Role: "tool", Content: "one"}, {Role: "tool", Content: "two"}}, []Tool{tool}, true, false)
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>system\nS\n\n"+toolsHead+"\n"+
		`{"type": "function", "function": {"name": "bash", "x": [1, true, null, "<é>"]}}`+toolsTail+"<|im_end|>\n"+
		"<|im_start|>user\nU<|im_end|>\n"+
		"<|im_start|>assistant\n<think>\nR\n</think>\n\nA\n"+
		"<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"+
		"<tool_call>\n{\"name\": \"bash\", \"arguments\": {}}\n</tool_call><|im_end|>\n"+
		"<|im_start|>user\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response><|im_end|>\n"+
		"<|im_start|>assistant\n<think>\n\n</think>\n\n", text)
}

func TestTemplateSwitches(t *testing.T) {
	t.Parallel()
	history := []Message{{Role: "user", Content: "1"}, {Role: "assistant", Reasoning: "R1", Calls: []Call{{"f", `{"b":1,"a":{"d":1.50,"c":2}}`}}},
		{Role: "tool", Content: "T"}, {Role: "user", Content: "2"}, {Role: "assistant", Reasoning: "R2", Content: "A"}}
	plain := render(t, Template{}, history...)
	require.Contains(t, plain, "R1")
	require.Contains(t, plain, `"arguments": {"b": 1, "a": {"d": 1.50, "c": 2}}}`, "written again, as engines do")

	dropped := render(t, Template{DropThinking: true}, history...)
	require.NotContains(t, dropped, "R1")
	require.Contains(t, dropped, "R2", "the last turn keeps its own")

	require.Contains(t, render(t, Template{SortKeys: true}, history...), `"arguments": {"a": {"c": 2, "d": 1.50}, "b": 1}}`)
	require.Contains(t, render(t, Template{ArgumentsAsSent: true}, history...), `"arguments": {"b":1,"a":{"d":1.50,"c":2}}}`, "as it came")

	require.Contains(t, render(t, Template{}, Message{Role: "assistant", Calls: []Call{{"f", ""}}}), `"arguments": {}}`)

	none := ""
	require.Contains(t, render(t, Template{SeparatorAfterEOT: &none}, history...), "1<|im_end|><|im_start|>assistant")
	require.Contains(t, plain, "1<|im_end|>\n<|im_start|>assistant")

	_, err := Template{NoMidSystem: true}.Render([]Message{{Role: "user"}, {Role: "system"}}, nil, true, true)
	require.ErrorIs(t, err, errMidSystem)
	_, err = Template{NoMidSystem: true}.Render([]Message{{Role: "system"}, {Role: "user"}}, nil, true, true)
	require.NoError(t, err)
	for _, wrong := range []string{`{"a":`, `{} {}`, `{"a": 1}}`} {
		for _, tpl := range []Template{{}, {SortKeys: true}} {
			_, err = tpl.Render([]Message{{Role: "assistant", Calls: []Call{{"f", wrong}}}}, nil, true, true)
			require.ErrorContains(t, err, "messages[0]: tool_calls[0].function.arguments", wrong)
		}
		require.Contains(t, render(t, Template{ArgumentsAsSent: true}, Message{Role: "assistant", Calls: []Call{{"f", wrong}}}), `"arguments": `+wrong+"}\n")
	}
}

// turns draws answers as a model would give them.
func turns() *rapid.Generator[Turn] {
	text := rapid.SampledFrom([]string{"", "Yes.", "I look.\n", "line\n\nline — é 雪", "a } b", "  indented"})
	return rapid.Custom(func(t *rapid.T) Turn {
		turn := Turn{Reasoning: rapid.SampledFrom([]string{"", "Hm.", "first\nthen"}).Draw(t, "reasoning"), Text: text.Draw(t, "text")}
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			turn.Calls = append(turn.Calls, Call{"bash", rapid.SampledFrom([]string{`{}`, `{"command": "ls"}`,
				`{"a":{"b":[{}]}}`, `{"command": "echo '</x> } {'"}`}).Draw(t, "arguments")})
		}
		return turn
	})
}

// parsed is the message that the engine makes of a turn.
func parsed(turn Turn) Message {
	p := parser{thinking: true, tools: true}
	var g gathered
	g.add(p.push(turn.text()))
	g.add(p.end())
	m := Message{Role: "assistant", Content: string(g.text), Reasoning: string(g.reasoning)}
	for _, c := range g.calls {
		m.Calls = append(m.Calls, Call{c.name, c.arguments})
	}
	return m
}

// What the model wrote, taken apart by the parser and rendered again, is the same text:
// a conversation whose answers come back untouched only ever grows.
func TestNextPromptExtendsTheAnswer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		turn := turns().Draw(t, "turn")
		if turn.Reasoning != "" && len(turn.Text) > 0 && turn.Text[0] == '\n' {
			t.Skip("the template trims it")
		}
		// How the model spells JSON is its own affair, so it counts as it came.
		tpl := Template{ArgumentsAsSent: true}
		before, err := tpl.Render([]Message{{Role: "user", Content: "q"}}, nil, true, true)
		require.NoError(t, err)
		after, err := tpl.Render([]Message{{Role: "user", Content: "q"}, parsed(turn), {Role: "user", Content: "r"}}, nil, true, true)
		require.NoError(t, err)
		require.Equal(t, before+turn.text()+"<|im_end|>\n<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n", after)
	})
}

func TestSeenInIsWhatWasRendered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		messages := []Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "q"}}
		for range rapid.IntRange(0, 4).Draw(t, "turns") {
			m := parsed(turns().Draw(t, "turn"))
			m.Content = trimNewlines(m.Content)
			messages = append(messages, m)
			if len(m.Calls) > 0 {
				messages = append(messages, Message{Role: "tool", Content: "out"}, Message{Role: "tool", Content: "put\n"})
			} else {
				messages = append(messages, Message{Role: "user", Content: "and?"})
			}
		}
		raw := json.RawMessage(`{"type": "function", "function": {"name": "bash", "parameters": {"a": 1}}}`)
		tools, err := readTools([]json.RawMessage{raw})
		require.NoError(t, err)
		text, err := Template{ArgumentsAsSent: true}.Render(messages, tools, true, true)
		require.NoError(t, err)
		seen := seenIn(text)
		require.Equal(t, tools, seen.Tools)
		require.Len(t, seen.Messages, len(messages))
		for i, m := range seen.Messages {
			require.Equal(t, messages[i].Role, m.Role)
			require.Equal(t, messages[i].Calls, m.Calls)
			require.Equal(t, trimNewlines(messages[i].Content), trimNewlines(m.Content))
		}
	})
}
