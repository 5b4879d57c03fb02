package chat_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/chat"
	"icecore/ingest/gateway/turn"
)

func decode(t require.TestingT, text string) *turn.Request {
	r, err := chat.Provider{}.Decode(turn.Incoming{Body: []byte(text)})
	require.NoError(t, err)
	return r
}

func fault(t *testing.T, text string) *turn.Fault {
	t.Helper()
	_, err := chat.Provider{}.Decode(turn.Incoming{Body: []byte(text)})
	var f *turn.Fault
	require.ErrorAs(t, err, &f, text)
	require.Equal(t, 400, f.Status)
	return f
}

// with is a request with one more member.
func with(member string) string {
	return `{"model":"m","messages":[{"role":"user","content":"hi"}],` + member + `}`
}

const someTools = `"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}]`

// What reaches the engine is what came.
func TestDecode_MessagesAsTheyCame(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]string{
		"text":               `{"role":"user","content":"a\nb"}`,
		"empty text":         `{"role":"user","content":""}`,
		"system in place":    `{"role":"system","content":"s"}`,
		"developer":          `{"role":"developer","content":"s"}`,
		"parts":              `{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
		"one part":           `{"role":"user","content":[{"type":"text","text":"a"}]}`,
		"no part":            `{"role":"user","content":[]}`,
		"image":              `{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}]}`,
		"sound":              `{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}]}`,
		"name":               `{"role":"user","content":"a","name":"bob"}`,
		"calls":              `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{ \"a\": 1.0}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":""}}]}`,
		"reasoning":          `{"role":"assistant","content":"x","reasoning_content":"hm"}`,
		"empty reasoning":    `{"role":"assistant","content":"x","reasoning_content":""}`,
		"result":             `{"role":"tool","content":"ok","tool_call_id":"c1"}`,
		"result in parts":    `{"role":"tool","content":[{"type":"text","text":"ok"}],"tool_call_id":"c1","name":"f"}`,
		"member of its own":  `{"role":"assistant","content":"x","mine":{"n":9007199254740993}}`,
		"partial assistant":  `{"role":"assistant","content":"x","prefix":true}`,
		"thinking of others": `{"role":"user","content":"x","reasoning":"not mine"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := decode(t, `{"model":"m","messages":[{"role":"user","content":"first"},`+m+`]}`)
			require.Len(t, r.Messages, 2)
			got, err := r.Messages[1].JSON(turn.ReasoningContent)
			require.NoError(t, err)
			require.JSONEq(t, m, string(got))
			require.Empty(t, r.Rewrites)
		})
	}
}

func TestDecode_ReadsThinkingUnderEveryName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"reasoning_content", "reasoning", "reasoning_text"} {
		r := decode(t, `{"model":"m","messages":[{"role":"assistant","content":"x","`+name+`":"hm"}]}`)
		require.Equal(t, "hm", *r.Messages[0].Reasoning)
		require.Empty(t, r.Messages[0].Extra)
	}
	r := decode(t, `{"model":"m","messages":[{"role":"assistant","content":"x","reasoning_content":"","reasoning":"hm","refusal":null}]}`)
	require.Equal(t, "hm", *r.Messages[0].Reasoning)
	require.Empty(t, r.Messages[0].Extra)
	r = decode(t, `{"model":"m","messages":[{"role":"assistant","content":null,"refusal":"no"}]}`)
	require.Equal(t, "no", r.Messages[0].Text())
	r = decode(t, `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a": 1}}}]}]}`)
	require.Equal(t, `{"a": 1}`, r.Messages[0].Calls[0].Arguments, "an object's bytes are kept")
}

func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	message := func(m string) string { return `{"model":"m","messages":[` + m + `]}` }
	for name, c := range map[string]struct{ text, field, code string }{
		"no JSON":              {`{`, "", turn.CodeInvalidRequest},
		"no model":             {`{"messages":[{"role":"user","content":"x"}]}`, "model", turn.CodeInvalidRequest},
		"no messages":          {`{"model":"m"}`, "messages", turn.CodeInvalidRequest},
		"empty messages":       {message(""), "messages", turn.CodeInvalidRequest},
		"messages no array":    {`{"model":"m","messages":"hi"}`, "messages", turn.CodeInvalidRequest},
		"no role":              {message(`{"content":"x"}`), "messages[0].role", turn.CodeInvalidRequest},
		"unknown role":         {message(`{"role":"bot","content":"x"}`), "messages[0].role", turn.CodeInvalidRequest},
		"function role":        {message(`{"role":"function","name":"f","content":"x"}`), "messages[0].role", turn.CodeUnsupported},
		"function call":        {message(`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":""}}`), "messages[0].function_call", turn.CodeUnsupported},
		"no content":           {message(`{"role":"user"}`), "messages[0].content", turn.CodeInvalidRequest},
		"content no text":      {message(`{"role":"user","content":5}`), "messages[0].content", turn.CodeInvalidRequest},
		"part without type":    {message(`{"role":"user","content":[{"text":"x"}]}`), "messages[0].content[0].type", turn.CodeInvalidRequest},
		"part without text":    {message(`{"role":"user","content":[{"type":"text"}]}`), "messages[0].content[0].text", turn.CodeInvalidRequest},
		"part is a string":     {message(`{"role":"user","content":["x"]}`), "messages[0].content[0]", turn.CodeInvalidRequest},
		"part of Responses":    {message(`{"role":"user","content":[{"type":"input_text","text":"x"}]}`), "messages[0].content[0].type", turn.CodeInvalidRequest},
		"file id":              {message(`{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}`), "messages[0].content[0].file.file_id", turn.CodeUnsupported},
		"call without name":    {message(`{"role":"assistant","tool_calls":[{"function":{}}]}`), "messages[0].tool_calls[0].function.name", turn.CodeInvalidRequest},
		"custom call":          {message(`{"role":"assistant","tool_calls":[{"type":"custom","custom":{}}]}`), "messages[0].tool_calls[0]", turn.CodeUnsupported},
		"arguments no text":    {message(`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":5}}]}`), "messages[0].tool_calls[0].function.arguments", turn.CodeInvalidRequest},
		"earlier sound":        {message(`{"role":"assistant","audio":{"id":"a"}}`), "messages[0].audio", turn.CodeUnsupported},
		"stream no boolean":    {with(`"stream":"yes"`), "stream", turn.CodeInvalidRequest},
		"n is 0":               {with(`"n":0`), "n", turn.CodeInvalidRequest},
		"n is large":           {with(`"n":1000000000`), "n", turn.CodeInvalidRequest},
		"max_tokens is 0":      {with(`"max_tokens":0`), "max_tokens", turn.CodeInvalidRequest},
		"max_tokens is half":   {with(`"max_completion_tokens":0.5`), "max_completion_tokens", turn.CodeInvalidRequest},
		"functions":            {with(`"functions":[]`), "functions", turn.CodeUnsupported},
		"sound":                {with(`"modalities":["text","audio"]`), "modalities[1]", turn.CodeUnsupported},
		"top without asking":   {with(`"top_logprobs":3`), "top_logprobs", turn.CodeInvalidRequest},
		"top too many":         {with(`"logprobs":true,"top_logprobs":21`), "top_logprobs", turn.CodeInvalidRequest},
		"custom tool":          {with(`"tools":[{"type":"custom","custom":{"name":"p"}}]`), "tools[0]", turn.CodeUnsupported},
		"tool without name":    {with(`"tools":[{"type":"function","function":{}}]`), "tools[0].function.name", turn.CodeInvalidRequest},
		"tool twice":           {with(`"tools":[{"function":{"name":"a"}},{"function":{"name":"a"}}]`), "tools[1].function.name", turn.CodeInvalidRequest},
		"parameters no object": {with(`"tools":[{"function":{"name":"a","parameters":"x"}}]`), "tools[0].function.parameters", turn.CodeInvalidRequest},
		"choice of nothing":    {with(`"tool_choice":"required"`), "tool_choice", turn.CodeInvalidRequest},
		"unknown choice":       {with(someTools + `,"tool_choice":"maybe"`), "tool_choice", turn.CodeInvalidRequest},
		"choice of no tool":    {with(someTools + `,"tool_choice":{"type":"function","function":{"name":"z"}}`), "tool_choice", turn.CodeInvalidRequest},
		"thinking unknown":     {with(`"thinking":{"type":"maybe"}`), "thinking.type", turn.CodeInvalidRequest},
		"stop no text":         {with(`"stop":[1]`), "stop[0]", turn.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fault(t, c.text)
			require.Equal(t, c.field, f.Field)
			require.Equal(t, c.code, f.Code)
			require.Contains(t, f.Message, c.field, "the message names the place")
		})
	}
}

// Rows 15 and 18: an empty list of calls, and system messages anywhere.
func TestDecode_Rows(t *testing.T) {
	t.Parallel()
	r := decode(t, `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"system","content":"b"},{"role":"assistant","content":"x","tool_calls":[]},{"role":"system","content":"c"}]}`)
	var roles []string
	for _, m := range r.Messages {
		roles = append(roles, m.Role)
	}
	require.Equal(t, []string{"user", "system", "assistant", "system"}, roles)
	require.Empty(t, r.Messages[2].Calls)
}

func TestDecode_HalfACharacter(t *testing.T) {
	t.Parallel()
	r := decode(t, `{"model":"m","messages":[{"role":"user","content":"a\ud83d"}]}`)
	require.Equal(t, "a\ufffd", r.Messages[0].Text())
	require.Equal(t, "replaced_surrogate", r.Rewrites[0].What)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(with(someTools + `,"tool_choice":"auto","stop":["a"],"n":2,"thinking":{"type":"enabled"}`)))
	f.Add([]byte(`{"model":"m","messages":[{"role":"assistant","content":null,"reasoning":"r","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":[{"type":"image_url"}],"tool_call_id":"c"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := chat.Provider{}.Decode(turn.Incoming{Body: text})
		if err != nil {
			var f *turn.Fault
			require.ErrorAs(t, err, &f)
			require.Equal(t, 400, f.Status)
			return
		}
		require.NotEmpty(t, r.Messages)
		for i := range r.Messages {
			out, err := r.Messages[i].JSON(turn.ReasoningContent)
			require.NoError(t, err)
			require.True(t, json.Valid(out))
		}
		for i := range r.Tools {
			out, err := r.Tools[i].JSON()
			require.NoError(t, err)
			require.True(t, json.Valid(out))
		}
	})
}
