package messages_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/messages"
	"icecore/ingest/gateway/turn"
)

func number(n int64) *int64 { return &n }

func call(index int, id, name, arguments string) turn.Delta {
	return turn.Delta{Calls: []turn.CallDelta{{Index: index, ID: id, Name: name, Arguments: arguments}}}
}

func TestStream(t *testing.T) {
	t.Parallel()
	type block struct{ kind, text string }
	for _, c := range []struct {
		name   string
		deltas []turn.Delta
		want   []block
		flags  []string
	}{
		{
			name:   "row 13: one delta opens a block and carries its text",
			deltas: []turn.Delta{{Reasoning: "r1"}, {Reasoning: "r2", Text: "t1"}, {Text: "t2"}},
			want:   []block{{"thinking", "r1r2"}, {"text", "t1t2"}},
		},
		{
			name:   "row 14, 15: empty deltas, and a text beside no calls",
			deltas: []turn.Delta{{}, {Text: "x", Calls: []turn.CallDelta{}}, {}},
			want:   []block{{"text", "x"}},
		},
		{
			name:   "row 16: arguments in one piece at the end",
			deltas: []turn.Delta{call(0, "c", "f", ""), call(0, "", "", `{"a":1}`)},
			want:   []block{{"tool_use", `c f {"a":1}`}},
		},
		{
			name:   "thinking, text, calls, and text again",
			deltas: []turn.Delta{{Reasoning: "r"}, {Text: "t"}, call(0, "c", "f", `{"a":`), call(0, "", "", `"}"}`), {Text: "u"}, {Reasoning: "s"}},
			want:   []block{{"thinking", "r"}, {"text", "t"}, {"tool_use", `c f {"a":"}"}`}, {"text", "u"}, {"thinking", "s"}},
		},
		{
			name:   "two calls at once",
			deltas: []turn.Delta{call(0, "c", "f", `{"a":`), call(1, "d", "g", `{"b"`), call(0, "", "", `1`), {Text: "t"}, call(1, "", "", `:2}`), call(0, "", "", `}`), call(0, "", "", " ")},
			want:   []block{{"tool_use", `c f {"a":1}`}, {"tool_use", `d g {"b":2}`}, {"text", "t"}},
		},
		{
			name:   "calls without arguments",
			deltas: []turn.Delta{call(0, "c", "f", ""), call(1, "d", "g", " \n")},
			want:   []block{{"tool_use", `c f {}`}, {"tool_use", `d g {}`}},
		},
		{
			name:   "a name that comes late",
			deltas: []turn.Delta{call(0, "c", "", ""), call(0, "", "", `{"a"`), call(0, "", "f", ""), call(0, "", "", `:1}`)},
			want:   []block{{"tool_use", `c f {"a":1}`}},
		},
		{
			name:   "arguments that are no object",
			deltas: []turn.Delta{call(0, "c", "f", ` [1`), call(0, "", "", `]`), call(1, "d", "g", `{"a":1}`)},
			want:   []block{{"tool_use", `c f {}`}, {"tool_use", `d g {"a":1}`}},
			flags:  []string{"invalid_arguments"},
		},
		{
			name:   "arguments that break off",
			deltas: []turn.Delta{call(0, "c", "f", `{"a":`), call(0, "", "", `"x`)},
			want:   []block{{"tool_use", `c f {}`}},
			flags:  []string{"invalid_arguments"},
		},
		{
			name:   "arguments that go on after their end",
			deltas: []turn.Delta{call(0, "c", "f", `{"a":1}`), {Text: "t"}, call(0, "", "", `x`)},
			want:   []block{{"tool_use", `c f {"a":1}`}, {"text", "t"}},
			flags:  []string{"invalid_arguments"},
		},
		{
			name:   "no id",
			deltas: []turn.Delta{call(0, "", "f", `{}`)},
			want:   []block{{"tool_use", `toolu_0190aa_0 f {}`}},
		},
		{
			name:   "a choice that nobody asked for",
			deltas: []turn.Delta{{Choice: 1, Text: "no"}, {Text: "yes"}},
			want:   []block{{"text", "yes"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, flags := play(t, &turn.Request{}, answer{deltas: c.deltas, end: turn.End{Finish: turn.FinishStop}})
			var blocks []block
			for _, b := range got.message.Content {
				switch b.Type {
				case "thinking":
					anchor, ours := turn.OpenAnchor(b.Signature)
					require.True(t, ours)
					require.Equal(t, turn.Anchor{TraceID: "0190-aa", Reasoning: b.Thinking}, anchor)
					blocks = append(blocks, block{b.Type, b.Thinking})
				case "text":
					blocks = append(blocks, block{b.Type, b.Text})
				default:
					blocks = append(blocks, block{b.Type, b.ID + " " + b.Name + " " + string(b.Input)})
				}
			}
			require.Equal(t, c.want, blocks)
			require.Equal(t, c.flags, flags)
		})
	}
}

// Each piece goes out as it comes: nothing waits that need not.
func TestStreamIsReal(t *testing.T) {
	t.Parallel()
	s := messages.Provider{}.Stream(&turn.Request{}, answerHead)
	c := &client{t: t}
	c.read(s.Start(nil))
	for _, d := range []turn.Delta{{Reasoning: "a"}, {Reasoning: "b"}, {Text: "c"}, call(0, "i", "f", ""), call(0, "", "", `{"x":`), call(0, "", "", `1}`), call(1, "j", "g", `{`)} {
		before := len(c.events)
		c.read(s.Delta(nil, d))
		require.Greater(t, len(c.events), before, "%v", d)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	// Row 17: the engine counts only at the end.
	s := messages.Provider{}.Stream(&turn.Request{}, answerHead)
	require.Contains(t, string(s.Start(nil)), `"usage":{"input_tokens":0,`)
	counted := answerHead
	counted.PromptTokens = number(11)
	s = messages.Provider{}.Stream(&turn.Request{}, counted)
	require.Contains(t, string(s.Start(nil)), `"usage":{"input_tokens":11,`)
	end := string(s.End(nil, []turn.End{{Finish: "stop"}}, turn.Usage{Completion: number(3), Cached: number(8)}))
	require.Contains(t, end, `"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":8,"output_tokens":3}`)
}

func TestStopReasons(t *testing.T) {
	t.Parallel()
	text := []turn.Delta{{Text: "x"}}
	calls := []turn.Delta{call(0, "c", "f", "{}")}
	for _, c := range []struct {
		deltas         []turn.Delta
		end            turn.End
		want, sequence string
	}{
		{text, turn.End{Finish: "stop"}, "end_turn", ""},
		{text, turn.End{Finish: "stop", StopSequence: "\"END\""}, "stop_sequence", "\"END\""},
		{text, turn.End{Finish: "length"}, "max_tokens", ""},
		{text, turn.End{Finish: "content_filter"}, "refusal", ""},
		{[]turn.Delta{{Refusal: "no"}}, turn.End{Finish: "stop"}, "refusal", ""},
		{calls, turn.End{Finish: "tool_calls"}, "tool_use", ""},
		{calls, turn.End{Finish: "stop"}, "tool_use", ""},
		{calls, turn.End{Finish: "length"}, "max_tokens", ""},
		{nil, turn.End{Finish: "stop"}, "end_turn", ""},
	} {
		a := answer{deltas: c.deltas, end: c.end}
		got, _ := play(t, &turn.Request{}, a)
		full, _ := whole(t, &turn.Request{}, a)
		for _, m := range []*message{got.message, &full} {
			require.Equal(t, c.want, *m.StopReason)
			if c.sequence == "" {
				require.Nil(t, m.StopSequence)
			} else {
				require.Equal(t, c.sequence, *m.StopSequence)
			}
		}
	}
}

// Thinking that is not to be shown still comes back through its signature (row 20).
func TestHiddenThinking(t *testing.T) {
	t.Parallel()
	r := &turn.Request{Reasoning: turn.Reasoning{Hidden: true}}
	a := answer{deltas: []turn.Delta{{Reasoning: "secret"}, {Text: "x"}}, end: turn.End{Finish: "stop"}}
	got, _ := play(t, r, a)
	full, _ := whole(t, r, a)
	for _, m := range []*message{got.message, &full} {
		require.Empty(t, m.Content[0].Thinking)
		back, err := json.Marshal(m.Content)
		require.NoError(t, err)
		history := decode(t, `{`+head+`"messages":[{"role":"assistant","content":`+string(back)+`},{"role":"user","content":"q"}]}`)
		require.Equal(t, "secret", *history.Messages[0].Reasoning)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	s := messages.Provider{}.Stream(&turn.Request{}, answerHead)
	require.True(t, strings.HasPrefix(string(s.Heartbeat(nil)), ":"))
	c := &client{t: t}
	c.read(s.Heartbeat(nil))
	c.read(s.Start(nil))
	c.read(s.Heartbeat(nil))
	require.Equal(t, 1, c.pings)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault  *turn.Fault
		status int
		want   string
	}{
		{turn.Invalid("messages", "messages: is required"), 400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: is required"}}`},
		{&turn.Fault{Status: 401, Message: "m"}, 401, `{"type":"error","error":{"type":"authentication_error","message":"m"}}`},
		{&turn.Fault{Status: 403, Message: "m"}, 403, `{"type":"error","error":{"type":"permission_error","message":"m"}}`},
		{&turn.Fault{Status: 404, Message: "m"}, 404, `{"type":"error","error":{"type":"not_found_error","message":"m"}}`},
		{&turn.Fault{Status: 413, Message: "m"}, 413, `{"type":"error","error":{"type":"request_too_large","message":"m"}}`},
		{&turn.Fault{Status: 429, Message: "m"}, 429, `{"type":"error","error":{"type":"rate_limit_error","message":"m"}}`},
		{&turn.Fault{Status: 502, Message: "m"}, 502, `{"type":"error","error":{"type":"api_error","message":"m"}}`},
		{&turn.Fault{Status: 503, Code: turn.CodeOverloaded, Message: "m", RetryAfter: 1500 * time.Millisecond}, 503, `{"type":"error","error":{"type":"overloaded_error","message":"overloaded: m"}}`},
		{&turn.Fault{Status: 504, Message: "m"}, 504, `{"type":"error","error":{"type":"timeout_error","message":"m"}}`},
		{&turn.Fault{Message: "m"}, 500, `{"type":"error","error":{"type":"api_error","message":"m"}}`},
	} {
		status, header, raw := messages.Provider{}.Fault(c.fault)
		require.Equal(t, c.status, status)
		require.Equal(t, c.want, string(raw))
		require.Equal(t, "application/json", header.Get("Content-Type"))
		if c.fault.RetryAfter > 0 {
			require.Equal(t, "2", header.Get("Retry-After"))
		}
	}
	s := messages.Provider{}.Stream(&turn.Request{}, answerHead)
	read := &client{t: t}
	read.read(s.Start(nil))
	read.read(s.Delta(nil, turn.Delta{Text: "x"}))
	read.read(s.Fail(nil, &turn.Fault{Status: 502, Message: "the engine broke"}))
	require.Equal(t, "api_error: the engine broke", read.failed)
	require.False(t, read.done)
}
