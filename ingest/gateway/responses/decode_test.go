package responses_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/responses"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

func decode(t require.TestingT, text string) *turn.Request {
	r, err := responses.Provider{}.Decode(turn.Incoming{Body: []byte(text)})
	require.NoError(t, err)
	return r
}

func with(member string) string { return `{"model":"m","input":"x",` + member + `}` }

func items(items string) string { return `{"model":"m","input":[` + items + `]}` }

// engine gives the messages as an engine gets them.
func engine(t require.TestingT, r *turn.Request) string {
	all := []json.RawMessage{}
	for i := range r.Messages {
		one, err := r.Messages[i].JSON(turn.ReasoningContent)
		require.NoError(t, err)
		all = append(all, one)
	}
	text, err := turn.AppendJSON(nil, all)
	require.NoError(t, err)
	return string(text)
}

func sealed(traceID, reasoning string) string {
	return turn.Anchor{TraceID: traceID, Reasoning: reasoning}.Seal()
}

func TestDecode_Items(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ items, want string }{
		"easy message":  {`{"role":"user","content":"a"}`, `[{"role":"user","content":"a"}]`},
		"typed message": {`{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}`, `[{"role":"user","content":"a"}]`},
		"several texts": {`{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}`, `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`},
		"developer":     {`{"role":"user","content":"a"},{"role":"developer","content":"b"},{"role":"system","content":"c"}`, `[{"role":"user","content":"a"},{"role":"developer","content":"b"},{"role":"system","content":"c"}]`},
		"image":         {`{"role":"user","content":[{"type":"input_image","image_url":"data:x","detail":"high"}]}`, `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x","detail":"high"}}]}]`},
		"file":          {`{"role":"user","content":[{"type":"input_file","filename":"f","file_data":"data:x"}]}`, `[{"role":"user","content":[{"type":"file","file":{"filename":"f","file_data":"data:x"}}]}]`},
		"one turn": {
			`{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]}]},
			 {"type":"function_call","call_id":"c1","name":"f","arguments":"{ \"a\":1}"},{"type":"function_call","call_id":"c2","name":"g","arguments":""},
			 {"type":"function_call_output","call_id":"c2","output":"two"},{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"one"}]}`,
			`[{"role":"assistant","content":"a","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{ \"a\":1}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":""}}]},
			  {"role":"tool","content":"two","tool_call_id":"c2"},{"role":"tool","content":"one","tool_call_id":"c1"}]`,
		},
		"two turns": {
			`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":""},{"type":"function_call","call_id":"c2","name":"f","arguments":"{}"}`,
			`[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"","tool_call_id":"c1"},
			  {"role":"assistant","content":null,"tool_calls":[{"id":"c2","type":"function","function":{"name":"f","arguments":"{}"}}]}]`,
		},
		"reasoning begins a turn": {
			`{"role":"assistant","content":"a"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},{"role":"assistant","content":"b"}`,
			`[{"role":"assistant","content":"a"},{"role":"assistant","content":"b","reasoning_content":"hm"}]`,
		},
		"a message begins a turn": {`{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}`, `[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}]`},
		"custom call": {
			`{"type":"custom_tool_call","call_id":"c","name":"p","input":"a\n\"b\""},{"type":"custom_tool_call_output","call_id":"c","output":"ok"}`,
			`[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"p","arguments":"{\"input\":\"a\\n\\\"b\\\"\"}"}}]},{"role":"tool","content":"ok","tool_call_id":"c"}]`,
		},
		"namespace": {
			`{"type":"function_call","call_id":"c","name":"spawn","namespace":"team","arguments":"{}"}`,
			`[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"team__spawn","arguments":"{}"}}]}]`,
		},
		"image of a tool": {
			`{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:x"}]}`,
			`[{"role":"tool","content":[{"type":"image_url","image_url":{"url":"data:x"}}],"tool_call_id":"c"}]`,
		},
		"output is an object": {`{"type":"function_call_output","call_id":"c","output":{"ok": true}}`, `[{"role":"tool","content":"{\"ok\": true}","tool_call_id":"c"}]`},
		"our reasoning, emptied (row 20)": {
			`{"type":"reasoning","summary":[],"encrypted_content":"` + sealed("t1", "hm") + `"},{"role":"assistant","content":"a"}`,
			`[{"role":"assistant","content":"a","reasoning_content":"hm"}]`,
		},
		"text wins over the anchor": {
			`{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"new"}],"encrypted_content":"` + sealed("t1", "old") + `"},{"role":"assistant","content":"a"}`,
			`[{"role":"assistant","content":"a","reasoning_content":"new"}]`,
		},
		"another's summary": {
			`{"type":"reasoning","summary":[{"type":"summary_text","text":"so"}],"encrypted_content":"gAAAA"},{"role":"assistant","content":"a"}`,
			`[{"role":"assistant","content":"a","reasoning_content":"so"}]`,
		},
		"one answer in turns": {
			`{"type":"reasoning","summary":[],"encrypted_content":"` + sealed("t1", "a") + `"},{"role":"assistant","content":"x"},
			 {"type":"reasoning","summary":[],"encrypted_content":"` + sealed("t1", "b") + `"},{"role":"assistant","content":"y","id":"msg_1"}`,
			`[{"role":"assistant","content":"xy","reasoning_content":"ab"}]`,
		},
		"two answers in a row": {
			`{"type":"reasoning","summary":[],"encrypted_content":"` + sealed("t1", "a") + `"},{"type":"reasoning","summary":[],"encrypted_content":"` + sealed("t2", "b") + `"},{"role":"assistant","content":"y"}`,
			`[{"role":"assistant","content":null,"reasoning_content":"a"},{"role":"assistant","content":"y","reasoning_content":"b"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := decode(t, items(c.items))
			require.JSONEq(t, c.want, engine(t, r))
			require.Empty(t, r.Rewrites)
		})
	}
}

func TestDecode_Instructions(t *testing.T) {
	t.Parallel()
	r := decode(t, `{"model":"m","instructions":"be brief","input":"hi"}`)
	require.JSONEq(t, `[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}]`, engine(t, r))
	r = decode(t, `{"model":"m","instructions":[{"role":"developer","content":"be brief"}],"input":"hi"}`)
	require.JSONEq(t, `[{"role":"developer","content":"be brief"},{"role":"user","content":"hi"}]`, engine(t, r))
}

func TestDecode_Anchors(t *testing.T) {
	t.Parallel()
	r := decode(t, items(`{"role":"user","content":"q"},{"type":"reasoning","summary":[],"encrypted_content":"`+sealed("t1", "")+`"},{"role":"assistant","content":"a"},
		{"role":"user","content":"q"},{"type":"function_call","id":"fc_0190aaaa000070008000000000000001_0","call_id":"c","name":"f","arguments":""},
		{"type":"function_call_output","call_id":"c","output":""},{"type":"message","role":"assistant","id":"msg_0123456789abcdef0123456789abcdef0123456789abcdef","content":"z"}`))
	require.Equal(t, map[int]string{1: "t1", 3: traceID}, r.Anchors)
	require.Nil(t, r.Messages[1].Reasoning, "it held none")
}

func TestDecode_LeavesOutWhatNobodyKnows(t *testing.T) {
	t.Parallel()
	r := decode(t, items(`{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_hologram"}]},{"type":"web_search_call","id":"w"},{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}`))
	require.JSONEq(t, `[{"role":"user","content":"a"}]`, engine(t, r))
	var what []string
	for _, w := range r.Rewrites {
		what = append(what, w.What+" "+w.Where)
	}
	require.Equal(t, []string{"dropped_part input[0].content[1]", "dropped_item input[1]", "dropped_reasoning input[2]"}, what)
}

func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, field, code string }{
		"no model":          {`{"input":"x"}`, "model", turn.CodeInvalidRequest},
		"no input":          {`{"model":"m"}`, "input", turn.CodeInvalidRequest},
		"empty input":       {items(""), "input", turn.CodeInvalidRequest},
		"input is a number": {`{"model":"m","input":5}`, "input", turn.CodeInvalidRequest},
		"earlier answer":    {with(`"previous_response_id":"resp_1"`), "previous_response_id", turn.CodeUnsupported},
		"conversation":      {with(`"conversation":{"id":"c"}`), "conversation", turn.CodeUnsupported},
		"prompt template":   {with(`"prompt":{"id":"p"}`), "prompt", turn.CodeUnsupported},
		"background":        {with(`"background":true`), "background", turn.CodeUnsupported},
		"reference":         {items(`{"type":"item_reference","id":"msg_1"}`), "input[0]", turn.CodeUnsupported},
		"local shell":       {items(`{"type":"local_shell_call","call_id":"c","action":{}}`), "input[0]", turn.CodeUnsupported},
		"another's summary": {items(`{"type":"compaction","encrypted_content":"gAAA"}`), "input[0].encrypted_content", turn.CodeUnsupported},
		"image by id":       {items(`{"role":"user","content":[{"type":"input_image","file_id":"f"}]}`), "input[0].content[0].file_id", turn.CodeUnsupported},
		"file by id":        {items(`{"role":"user","content":[{"type":"input_file","file_id":"f"}]}`), "input[0].content[0].file_id", turn.CodeUnsupported},
		"file by address":   {items(`{"role":"user","content":[{"type":"input_file","file_url":"http://x"}]}`), "input[0].content[0].file_data", turn.CodeUnsupported},
		"item is a string":  {items(`"x"`), "input[0]", turn.CodeInvalidRequest},
		"unknown role":      {items(`{"role":"bot","content":"x"}`), "input[0].role", turn.CodeInvalidRequest},
		"no content":        {items(`{"role":"user"}`), "input[0].content", turn.CodeInvalidRequest},
		"text is a number":  {items(`{"role":"user","content":[{"type":"input_text","text":5}]}`), "input[0].content[0].text", turn.CodeInvalidRequest},
		"call without id":   {items(`{"type":"function_call","name":"f","arguments":""}`), "input[0].call_id", turn.CodeInvalidRequest},
		"output without id": {items(`{"type":"function_call_output","output":""}`), "input[0].call_id", turn.CodeInvalidRequest},
		"arguments no text": {items(`{"type":"function_call","call_id":"c","name":"f","arguments":{}}`), "input[0].arguments", turn.CodeInvalidRequest},
		"assistant's image": {items(`{"role":"assistant","content":[{"type":"input_image","image_url":"data:x"}]}`), "input[0].content", turn.CodeInvalidRequest},
		"max is 0":          {with(`"max_output_tokens":0`), "max_output_tokens", turn.CodeInvalidRequest},
		"format":            {with(`"text":{"format":{"type":"xml"}}`), "text.format.type", turn.CodeInvalidRequest},
		"no schema":         {with(`"text":{"format":{"type":"json_schema","name":"n"}}`), "text.format.schema", turn.CodeInvalidRequest},
		"tool without type": {with(`"tools":[{"name":"f"}]`), "tools[0].type", turn.CodeInvalidRequest},
		"tool twice":        {with(`"tools":[{"type":"function","name":"f"},{"type":"custom","name":"f"}]`), "tools[1].name", turn.CodeInvalidRequest},
		"choice of no tool": {with(`"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"}`), "tool_choice", turn.CodeInvalidRequest},
		"choice of hosted":  {with(`"tools":[{"type":"web_search"}],"tool_choice":"required"`), "tool_choice", turn.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := responses.Provider{}.Decode(turn.Incoming{Body: []byte(c.text)})
			var f *turn.Fault
			require.ErrorAs(t, err, &f)
			require.Equal(t, 400, f.Status)
			require.Equal(t, c.field, f.Field)
			require.Equal(t, c.code, f.Code)
			require.Contains(t, f.Message, c.field, "the message names the place")
		})
	}
}

func TestDecode_Parameters(t *testing.T) {
	t.Parallel()
	r := decode(t, with(`"stream":true,"max_output_tokens":7,"temperature":0.5,"top_k":3,"reasoning":{"effort":"high","summary":"auto"},"store":false,
		"include":["reasoning.encrypted_content"],"service_tier":"auto","truncation":"disabled","max_tool_calls":3,"user":"u",
		"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object","x":9007199254740993},"strict":true,"description":null}}`))
	require.True(t, r.Stream)
	require.Equal(t, int64(7), *r.MaxTokens)
	require.Equal(t, "high", r.Reasoning.Effort)
	require.Empty(t, r.Rewrites)
	require.Len(t, r.Sampling, 3)
	require.JSONEq(t, `{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","x":9007199254740993},"strict":true}}`, string(r.Sampling["response_format"]))
	require.Contains(t, string(r.Sampling["response_format"]), "9007199254740993")

	r = decode(t, with(`"text":{"verbosity":"low","format":{"type":"text"}},"truncation":"auto","top_logprobs":2,"return_token_ids":false,"mine":1`))
	var dropped []string
	for _, w := range r.Rewrites {
		require.Equal(t, "dropped_field", w.What)
		dropped = append(dropped, w.Where)
	}
	require.Equal(t, []string{"top_logprobs", "truncation", "text.verbosity", "return_token_ids", "mine"}, dropped)
	require.Empty(t, r.Sampling)
}

func TestDecode_Session(t *testing.T) {
	t.Parallel()
	for member, want := range map[string]turn.Session{
		`"prompt_cache_key":"k"`: {ID: "k"},
		`"prompt_cache_key":"k","client_metadata":{"session_id":"s","thread_id":"t","parent_thread_id":"p"}`: {ID: "s", Thread: "t", Parent: "p"},
		`"client_metadata":{"x-codex-turn-metadata":"{\"session_id\":\"s\",\"thread_id\":\"t\"}"}`:           {ID: "s", Thread: "t"},
		`"client_metadata":{"session_id":7,"x-codex-turn-metadata":"{"}`:                                     {},
		`"client_metadata":"mine"`: {},
	} {
		require.Equal(t, want, decode(t, with(member)).Session, member)
	}
	require.Equal(t, trace.KindAuxiliary, decode(t, with(`"client_metadata":{"x-codex-turn-metadata":"{\"request_kind\":\"compaction\"}"}`)).Kind)
	require.Empty(t, decode(t, with(`"client_metadata":{"request_kind":"turn"}`)).Kind)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(with(`"tools":` + oneOfEach + `,"tool_choice":{"type":"custom","name":"apply_patch"},"text":{"format":{"type":"json_object"}}`)))
	f.Add([]byte(items(`{"type":"reasoning","summary":[],"encrypted_content":"` + sealed("t1", "a") + `"},{"role":"assistant","content":[{"type":"refusal","refusal":"x"}]},{"type":"custom_tool_call","call_id":"c","name":"p","input":"i"},{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_image","image_url":"u"}]},{"type":"compaction_trigger"}`)))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := responses.Provider{}.Decode(turn.Incoming{Body: text})
		if err != nil {
			var f *turn.Fault
			require.ErrorAs(t, err, &f)
			require.Equal(t, 400, f.Status)
			return
		}
		require.NotEmpty(t, r.Messages)
		require.True(t, json.Valid([]byte(engine(t, r))))
		for i := range r.Tools {
			out, err := r.Tools[i].JSON()
			require.NoError(t, err)
			require.True(t, json.Valid(out))
		}
		out, _ := stream(r, []turn.Delta{{Text: "x"}}, turn.FinishStop)
		hear(t, out)
	})
}
