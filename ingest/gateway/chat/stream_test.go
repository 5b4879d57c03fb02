package chat_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/chat"
	"icecore/ingest/gateway/turn"
)

func TestStream_Grammar(t *testing.T) {
	t.Parallel()
	r := &turn.Request{IncludeUsage: true}
	a := hear(t, r, stream(r, []turn.Delta{
		{Reasoning: "hm", Text: "x"},               // row 13: one delta both begins a part and carries text
		{}, {Text: "y", Calls: []turn.CallDelta{}}, // row 15
		{Calls: []turn.CallDelta{{Index: 0, ID: "c1", Name: "f"}}},
		{Calls: []turn.CallDelta{{Index: 0, Arguments: `{"a":`}, {Index: 1, ID: "c2", Name: "g", Arguments: "{}"}}},
		{Calls: []turn.CallDelta{{Index: 0, ID: "c1", Name: "f", Arguments: `1}`}}},
	}, []turn.End{{Finish: turn.FinishToolCalls}}, usage()))
	require.Equal(t, heard{roles: 1, content: "xy", reasoning: "hm", finish: "tool_calls", calls: []map[string]string{
		{"id": "c1", "name": "f", "arguments": `{"a":1}`}, {"id": "c2", "name": "g", "arguments": "{}"},
	}}, a.choices[0])
	require.True(t, a.done)
	require.InDelta(t, 12, a.usage["total_tokens"], 0)
}

// Row 16: arguments that arrive in one piece at the end.
func TestStream_ArgumentsInOnePiece(t *testing.T) {
	t.Parallel()
	r := &turn.Request{}
	a := hear(t, r, stream(r, []turn.Delta{{Calls: []turn.CallDelta{{Name: "f", Arguments: `{"a":1}`}}}}, []turn.End{{Finish: "tool_calls"}}, usage()))
	require.Equal(t, `{"a":1}`, a.choices[0].calls[0]["arguments"])
	require.Equal(t, "call_0190aaaa000070008000000000000001_0", a.choices[0].calls[0]["id"])
	require.Nil(t, a.usage, "nobody asked for it")
}

// Row 14: one role for each choice, whatever comes.
func TestStream_Choices(t *testing.T) {
	t.Parallel()
	r := &turn.Request{N: 2}
	a := hear(t, r, stream(r, []turn.Delta{{Choice: 1, Text: "b"}, {Choice: 0, Text: "a"}, {Choice: 1, Text: "b"}, {Choice: 7, Text: "lost"}},
		[]turn.End{{Choice: 1, Finish: "length"}, {Choice: 0, Finish: "stop"}}, usage()))
	require.Equal(t, []heard{{roles: 1, content: "a", finish: "stop"}, {roles: 1, content: "bb", finish: "length"}}, a.choices)
}

func TestStream_NothingEndsItBeforeEnd(t *testing.T) {
	t.Parallel()
	r := &turn.Request{IncludeUsage: true}
	s := chat.Provider{}.Stream(r, head)
	out := s.Heartbeat(s.Delta(s.Start(nil), turn.Delta{Text: "x", Calls: []turn.CallDelta{{Name: "f"}}}))
	a := hear(t, r, out)
	require.False(t, a.done)
	require.Empty(t, a.choices[0].finish)

	a = hear(t, r, s.Fail(out, &turn.Fault{Status: 503, Code: turn.CodeEngineBroke, Message: "broke"}))
	require.False(t, a.done, "a failed stream has no end")
	require.Empty(t, a.choices[0].finish)
	require.Equal(t, "overloaded: broke (HTTP_STATUS/503)", a.failed["message"], "harnesses look in it for a status to try again at")

	a = hear(t, r, s.Fail(out, &turn.Fault{Status: 400, Code: turn.CodeInvalidRequest, Message: "no"}))
	require.Equal(t, "no", a.failed["message"], "what would fail again is not to be sent again")
}

func TestStream_UnknownFinishIsFlagged(t *testing.T) {
	t.Parallel()
	r := &turn.Request{}
	s := chat.Provider{}.Stream(r, head)
	a := hear(t, r, s.End(s.Start(nil), []turn.End{{Finish: "repetition"}}, usage()))
	require.Equal(t, "stop", a.choices[0].finish)
	flagger, ok := s.(turn.Flagger)
	require.True(t, ok)
	require.Equal(t, []string{chat.FlagUnknownFinish}, flagger.Flags())
}

func TestStream_Logprobs(t *testing.T) {
	t.Parallel()
	one := json.RawMessage(`{"content":[{"token":"token_id:7","logprob":-0.5,"bytes":[104,105],"top_logprobs":[{"token":"token_id:8","logprob":-1,"bytes":null}]}]}`)
	deltas := []turn.Delta{{Reasoning: "h", Text: "i", Logprobs: one}, {Logprobs: one}, {Text: "x", Logprobs: json.RawMessage(`{"content":[{"logprob":NaN}]}`)}}
	r := &turn.Request{Logprobs: true}
	a := hear(t, r, stream(r, deltas, []turn.End{{Finish: "stop"}}, usage()))
	require.Len(t, a.choices[0].logprobs, 2, "each is told once, also where the text is held back")
	token, ok := a.choices[0].logprobs[0].(map[string]any)
	require.True(t, ok)
	require.Equal(t, "hi", token["token"])
	require.InDelta(t, -0.5, token["logprob"], 0)

	r = &turn.Request{}
	require.Empty(t, hear(t, r, stream(r, deltas, []turn.End{{Finish: "stop"}}, usage())).choices[0].logprobs, "nobody asked")
}

func TestHiddenThinking(t *testing.T) {
	t.Parallel()
	r := &turn.Request{Reasoning: turn.Reasoning{Hidden: true}}
	a := hear(t, r, stream(r, []turn.Delta{{Reasoning: "hm", Text: "x"}}, []turn.End{{Finish: "stop"}}, usage()))
	require.Empty(t, a.choices[0].reasoning)
	require.Equal(t, "x", a.choices[0].content)
}

// cuts gives an answer in pieces that are cut anywhere.
func cuts(t *rapid.T, n int) (deltas []turn.Delta) {
	text := rapid.StringMatching(`[a-zé😀"\\\n]{0,12}`)
	split := func(s string, each func(piece string)) {
		runes := []rune(s)
		for len(runes) > 0 {
			at := rapid.IntRange(1, len(runes)).Draw(t, "at")
			each(string(runes[:at]))
			runes = runes[at:]
		}
	}
	for choice := range n {
		split(text.Draw(t, "reasoning"), func(p string) { deltas = append(deltas, turn.Delta{Choice: choice, Reasoning: p}) })
		split(text.Draw(t, "text"), func(p string) { deltas = append(deltas, turn.Delta{Choice: choice, Text: p}) })
		for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
			begin := turn.CallDelta{Index: i, ID: "c" + string(rune('a'+i)), Name: "f"}
			deltas = append(deltas, turn.Delta{Choice: choice, Calls: []turn.CallDelta{begin}})
			split(text.Draw(t, "arguments"), func(p string) {
				deltas = append(deltas, turn.Delta{Choice: choice, Calls: []turn.CallDelta{{Index: i, Arguments: p}}})
			})
		}
	}
	return deltas
}

// A whole answer is what a client gathers of a stream, wherever it was cut.
func TestWhole_IsTheStreamGathered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &turn.Request{N: rapid.IntRange(1, 2).Draw(t, "n"), IncludeUsage: true}
		deltas := cuts(t, r.N)
		var g turn.Gather
		var ends []turn.End
		for _, d := range deltas {
			g.Add(d)
		}
		whole := &turn.Answer{Head: head, Usage: usage()}
		for i := range r.N {
			ends = append(ends, turn.End{Choice: i, Finish: turn.FinishStop})
			whole.Choices = append(whole.Choices, turn.Choice{Message: g.Message(i), End: ends[i]})
		}
		streamed := hear(t, r, stream(r, deltas, ends, usage()))

		text, err := chat.Provider{}.Whole(r, whole)
		require.NoError(t, err)
		var o object
		require.NoError(t, json.Unmarshal(text, &o))
		require.Equal(t, "chat.completion", o.Object)
		require.Equal(t, streamed.usage, o.Usage)
		require.Len(t, o.Choices, r.N)
		for i, c := range o.Choices {
			h := heard{roles: 1, finish: *c.FinishReason}
			h.hear(t, c.Message)
			require.Equal(t, streamed.choices[i], h)
			require.Equal(t, "assistant", c.Message.Role)
		}
	})
}

func TestWhole_Content(t *testing.T) {
	t.Parallel()
	thought := "hm"
	for _, c := range []struct {
		choice turn.Choice
		want   string
	}{
		{turn.Choice{Message: turn.Message{Null: true}}, `"content":"","refusal":null}`},
		{turn.Choice{Message: turn.Message{Null: true, Reasoning: &thought}}, `"content":"","refusal":null,"reasoning_content":"hm"}`},
		{turn.Choice{Message: turn.Message{Null: true, Calls: []turn.Call{{Name: "f", Arguments: "{"}}}},
			`"content":null,"refusal":null,"tool_calls":[{"id":"call_0190aaaa000070008000000000000001_0","type":"function","function":{"name":"f","arguments":"{"}}]}`},
		{turn.Choice{Refusal: "no"}, `"content":null,"refusal":"no"}`},
	} {
		text, err := chat.Provider{}.Whole(&turn.Request{}, &turn.Answer{Head: head, Choices: []turn.Choice{c.choice}})
		require.NoError(t, err)
		require.Contains(t, string(text), c.want)
		require.True(t, json.Valid(text))
	}
	p := chat.Provider{}
	require.Equal(t, []string{chat.FlagUnknownFinish}, p.WholeFlags(nil, &turn.Answer{Choices: []turn.Choice{{End: turn.End{Finish: "x"}}, {End: turn.End{Finish: "stop"}}}}))
	require.Equal(t, "openai.chat", p.API())
}
