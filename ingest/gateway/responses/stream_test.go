package responses_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/responses"
	"icecore/ingest/gateway/turn"
)

// tools are the names of a request that has one tool of each sort.
var tools = turn.Names{
	"apply_patch": {Name: "apply_patch", Custom: true},
	"team__spawn": {Name: "spawn", Namespace: "team"},
}

func TestStream_Grammar(t *testing.T) {
	t.Parallel()
	text, flags := stream(&turn.Request{Names: tools}, []turn.Delta{
		{Reasoning: "hm"}, {}, {Reasoning: "?", Text: "I "}, {Text: "see", Calls: []turn.CallDelta{}},
		{Calls: []turn.CallDelta{{Index: 0, ID: "c1", Name: "shell", Arguments: `{"a":`}}},
		{Calls: []turn.CallDelta{{Index: 1, ID: "c2", Name: "apply_patch", Arguments: `{"inpu`}, {Index: 0, Arguments: "1}"}}},
		{Calls: []turn.CallDelta{{Index: 1, Arguments: `t":"*** \"x\"\n"}`}, {Index: 2, ID: "c3", Name: "team__spawn", Arguments: "{}"}}},
	}, turn.FinishToolCalls)
	require.Empty(t, flags)
	a := hear(t, text)
	require.Equal(t, "completed", a.ended)
	items := a.items(t)
	require.Len(t, items, 5)

	require.Equal(t, "reasoning", items[0].Type)
	require.Equal(t, "hm?", items[0].whole())
	anchor, ours := turn.OpenAnchor(items[0].Encrypted)
	require.True(t, ours)
	require.Equal(t, turn.Anchor{TraceID: traceID, Reasoning: "hm?"}, anchor)
	require.Equal(t, "I see", items[1].whole())
	require.Equal(t, "assistant", items[1].Role)
	require.Equal(t, []string{"function_call", "c1", "shell", "", `{"a":1}`},
		[]string{items[2].Type, items[2].CallID, items[2].Name, items[2].Namespace, *items[2].Arguments})
	require.Equal(t, []string{"custom_tool_call", "c2", "apply_patch", "*** \"x\"\n"},
		[]string{items[3].Type, items[3].CallID, items[3].Name, *items[3].Input}, "row 23")
	require.Equal(t, []string{"function_call", "c3", "spawn", "team", "{}"},
		[]string{items[4].Type, items[4].CallID, items[4].Name, items[4].Namespace, *items[4].Arguments})
	for _, it := range items {
		require.Equal(t, "completed", it.Status)
	}
	require.JSONEq(t, `{"input_tokens":9,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":12}`,
		string(a.final["usage"]))
	require.Equal(t, []string{"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
		"response.reasoning_text.delta", "response.in_progress"}, a.kinds[:6])
}

// Nothing before End completes the answer: its last item stays open.
func TestStream_NothingEndsItBeforeEnd(t *testing.T) {
	t.Parallel()
	for _, last := range []turn.Delta{{Reasoning: "hm"}, {Text: "x"}, {Calls: []turn.CallDelta{{ID: "c", Name: "f", Arguments: "{}"}}}} {
		s := responses.Provider{}.Stream(&turn.Request{}, head)
		out := s.Heartbeat(s.Delta(s.Start(nil), last))
		a := hear(t, out)
		require.Empty(t, a.ended)
		require.Nil(t, a.done[0])
		a = hear(t, s.Fail(out, &turn.Fault{Status: 502, Code: turn.CodeEngineBroke, Message: "broke", Field: "f"}))
		require.Empty(t, a.ended)
		require.Equal(t, "broke", a.failed["message"])
		require.Equal(t, "engine_broke", a.failed["code"])
		require.NotContains(t, string(out), "response.failed")
	}
}

// Row 22: an answer cut by its length.
func TestStream_Length(t *testing.T) {
	t.Parallel()
	deltas := []turn.Delta{{Reasoning: "hm"}, {Text: "x"}}
	text, flags := stream(&turn.Request{}, deltas, turn.FinishLength)
	a := hear(t, text)
	require.Equal(t, "incomplete", a.ended)
	require.JSONEq(t, `{"reason":"max_output_tokens"}`, string(a.final["incomplete_details"]))
	require.Equal(t, "completed", a.items(t)[0].Status)
	require.Equal(t, "incomplete", a.items(t)[1].Status)
	require.Empty(t, flags)

	text, flags = stream(&turn.Request{LengthAsCompleted: true}, deltas, turn.FinishLength)
	require.Equal(t, "completed", hear(t, text).ended)
	require.Equal(t, []string{responses.FlagLengthAsCompleted}, flags)

	text, _ = stream(&turn.Request{}, deltas, turn.FinishContentFilter)
	require.JSONEq(t, `{"reason":"content_filter"}`, string(hear(t, text).final["incomplete_details"]))
	_, flags = stream(&turn.Request{}, deltas, "repetition")
	require.Equal(t, []string{responses.FlagUnknownFinish}, flags)
}

func TestStream_Empty(t *testing.T) {
	t.Parallel()
	text, _ := stream(&turn.Request{}, nil, turn.FinishStop)
	a := hear(t, text)
	require.Equal(t, "completed", a.ended)
	require.JSONEq(t, `[]`, string(a.final["output"]))
}

func TestStream_InvalidInputIsTheTextItself(t *testing.T) {
	t.Parallel()
	text, flags := stream(&turn.Request{Names: tools}, []turn.Delta{
		{Calls: []turn.CallDelta{{ID: "c", Name: "apply_patch", Arguments: "*** Begin"}}},
		{Calls: []turn.CallDelta{{Arguments: " Patch\n"}}},
	}, turn.FinishToolCalls)
	require.Equal(t, "*** Begin Patch\n", *hear(t, text).items(t)[0].Input)
	require.Equal(t, []string{openai.FlagInvalidInput}, flags)
}

func TestStream_ReasoningAfterText(t *testing.T) {
	t.Parallel()
	text, _ := stream(&turn.Request{}, []turn.Delta{{Text: "a"}, {Reasoning: "b"}, {Text: "c", Refusal: "d"}, {Text: "e"}}, turn.FinishStop)
	var kinds []string
	for _, it := range hear(t, text).items(t) {
		kinds = append(kinds, it.Type+" "+it.whole())
	}
	require.Equal(t, []string{"message a", "reasoning b", "message cde"}, kinds)
}

func TestStream_RepeatsTheRequest(t *testing.T) {
	t.Parallel()
	r := decode(t, `{"model":"m","input":"x","instructions":"be\n brief","temperature":0.50,"metadata":{"a":"b"},"tools":[ {"type":"function", "name":"f"} ],"max_output_tokens":9007199254740993}`)
	text, _ := stream(r, []turn.Delta{{Text: "x"}}, turn.FinishStop)
	final := hear(t, text).final
	for name, want := range map[string]string{
		"id": `"resp_0190aaaa000070008000000000000001"`, "object": `"response"`, "created_at": "17", "model": `"m"`, "temperature": "0.50",
		"instructions": `"be\n brief"`, "metadata": `{"a":"b"}`, "tools": `[{"type":"function","name":"f"}]`,
		"max_output_tokens": "9007199254740993", "tool_choice": `"auto"`, "parallel_tool_calls": "true", "store": "false", "error": "null",
	} {
		require.Equal(t, want, string(final[name]), name)
	}
	require.Equal(t, 2, strings.Count(string(text), `be\n brief`), "heartbeats are short")
}

// cuts gives an answer in pieces that are cut anywhere.
func cuts(t *rapid.T) (deltas []turn.Delta) {
	text := rapid.StringMatching(`[a-zé😀"\\\n\t]{0,12}`)
	split := func(s string, each func(piece string)) {
		runes := []rune(s)
		for len(runes) > 0 {
			at := rapid.IntRange(1, len(runes)).Draw(t, "at")
			each(string(runes[:at]))
			runes = runes[at:]
		}
	}
	split(text.Draw(t, "reasoning"), func(p string) { deltas = append(deltas, turn.Delta{Reasoning: p}) })
	split(text.Draw(t, "text"), func(p string) { deltas = append(deltas, turn.Delta{Text: p}) })
	n := rapid.IntRange(0, 3).Draw(t, "calls")
	var pieces [3][]turn.Delta
	for i := range n {
		name := rapid.SampledFrom([]string{"shell", "apply_patch", "team__spawn"}).Draw(t, "name")
		arguments := text.Draw(t, "arguments")
		if name == "apply_patch" {
			arguments = openai.CustomArguments(arguments)
		}
		deltas = append(deltas, turn.Delta{Calls: []turn.CallDelta{{Index: i, ID: "c" + string(rune('a'+i)), Name: name}}})
		split(arguments, func(p string) {
			pieces[i] = append(pieces[i], turn.Delta{Calls: []turn.CallDelta{{Index: i, Arguments: p}}})
		})
	}
	for len(pieces[0])+len(pieces[1])+len(pieces[2]) > 0 { // calls may be written in turns
		i := rapid.IntRange(0, 2).Draw(t, "of")
		if len(pieces[i]) > 0 {
			deltas, pieces[i] = append(deltas, pieces[i][0]), pieces[i][1:]
		}
	}
	return deltas
}

// A whole answer is what a stream of it ends with, wherever that was cut; and sent back
// as input, it is the turn that the engine wrote.
func TestWhole_IsTheStreamGathered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &turn.Request{Names: tools}
		deltas := cuts(t)
		finish := rapid.SampledFrom([]string{turn.FinishStop, turn.FinishLength}).Draw(t, "finish")
		text, flags := stream(r, deltas, finish)
		streamed := hear(t, text)
		require.Empty(t, flags)

		var g turn.Gather
		for _, d := range deltas {
			g.Add(d)
		}
		whole := &turn.Answer{Head: head, Usage: usage(), Choices: []turn.Choice{{Message: g.Message(0), End: turn.End{Finish: finish}}}}
		out, err := responses.Provider{}.Whole(r, whole)
		require.NoError(t, err)
		want, err := json.Marshal(streamed.final)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(out))
		require.Empty(t, responses.Provider{}.WholeFlags(r, whole))

		if len(streamed.done) == 0 {
			return
		}
		input, err := json.Marshal(map[string]any{"model": "m", "input": streamed.done, "tools": json.RawMessage(oneOfEach)})
		require.NoError(t, err)
		back := decode(t, string(input))
		require.Len(t, back.Messages, 1, "one turn")
		require.Equal(t, g.Message(0), back.Messages[0])
		require.Equal(t, map[int]string{0: traceID}, back.Anchors)
	})
}

const oneOfEach = `[{"type":"function","name":"shell"},{"type":"custom","name":"apply_patch"},{"type":"namespace","name":"team","tools":[{"type":"function","name":"spawn"}]}]`
