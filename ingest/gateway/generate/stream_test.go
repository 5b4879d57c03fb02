package generate_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/generate"
	"icecore/ingest/gateway/turn"
)

func number(n int64) *int64 { return &n }

func call(index int, id, name, arguments string) turn.Delta {
	return turn.Delta{Calls: []turn.CallDelta{{Index: index, ID: id, Name: name, Arguments: arguments}}}
}

var stop = []turn.End{{Finish: turn.FinishStop}}

// seen spells a part for a table.
func seen(t require.TestingT, p part) string {
	out := ""
	switch {
	case p.Call != nil:
		out = "call " + p.Call.ID + " " + p.Call.Name + " " + string(p.Call.Args)
	case p.Thought:
		out = "thought " + *p.Text
	default:
		out = "text " + *p.Text
	}
	if p.Signature != "" {
		anchor, ours := turn.OpenAnchor(p.Signature)
		require.True(t, ours)
		out += " <" + anchor.TraceID + " " + anchor.Reasoning + ">"
	}
	return out
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		hidden bool
		deltas []turn.Delta
		want   []string
		flags  []string
	}{
		{
			name:   "row 13, 15: one delta of several parts, and empty ones",
			deltas: []turn.Delta{{}, {Reasoning: "r", Text: "t"}, {Text: "u", Calls: []turn.CallDelta{}}, {}},
			want:   []string{"thought r", "text tu <0190-aa r>"},
		},
		{
			name:   "text alone",
			deltas: []turn.Delta{{Text: "t"}},
			want:   []string{"text t"},
		},
		{
			name:   "thoughts that are not shown",
			hidden: true,
			deltas: []turn.Delta{{Reasoning: "r"}, {Text: "t"}},
			want:   []string{"text t <0190-aa r>"},
		},
		{
			name:   "nothing but hidden thoughts",
			hidden: true,
			deltas: []turn.Delta{{Reasoning: "r"}},
			want:   []string{"text  <0190-aa r>"},
		},
		{
			name:   "row 16: calls, the first with the signature",
			deltas: []turn.Delta{{Reasoning: "r"}, {Text: "t"}, call(0, "x", "f", ""), call(0, "", "", "{\"a\":\n 1}"), call(1, "y", "g", "")},
			want:   []string{"thought r", "text t", `call x f {"a":1} <0190-aa r>`, "call y g {}"},
		},
		{
			name:   "a call without thinking still names its trace",
			deltas: []turn.Delta{call(0, "", "f", `{}`)},
			want:   []string{`call call_0190aa_0 f {} <0190-aa >`},
		},
		{
			name:   "arguments that are no object",
			deltas: []turn.Delta{call(0, "x", "f", `{"a":`), call(1, "y", "g", `{"b":2}`)},
			want:   []string{"call x f {} <0190-aa >", `call y g {"b":2}`},
			flags:  []string{"invalid_arguments"},
		},
		{
			name:   "a refusal is text",
			deltas: []turn.Delta{{Refusal: "no"}},
			want:   []string{"text no"},
		},
		{
			name:   "nothing",
			deltas: nil,
			want:   nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, array := range []bool{false, true} {
				r := &turn.Request{Array: array, Reasoning: turn.Reasoning{Hidden: c.hidden}}
				a := answer{deltas: c.deltas, ends: stop}
				streamed, flags := play(t, r, a)
				full, wholeFlags := whole(t, r, a)
				for _, got := range []*client{streamed, full} {
					var parts []string
					for _, p := range got.parts[0] {
						parts = append(parts, seen(t, p))
					}
					require.Equal(t, c.want, parts)
					require.Equal(t, "STOP", got.finish[0])
				}
				require.Equal(t, c.flags, flags)
				require.Equal(t, c.flags, wholeFlags)
			}
		})
	}
}

func TestTextAfterACall(t *testing.T) {
	t.Parallel()
	got, _ := play(t, &turn.Request{}, answer{ends: stop, deltas: []turn.Delta{
		{Text: "a"}, call(0, "x", "f", `{`), {Text: "b"}, {Text: "c"}, call(0, "", "", `}`), {Reasoning: "r"},
	}})
	var parts []string
	for _, p := range got.parts[0] {
		parts = append(parts, seen(t, p))
	}
	require.Equal(t, []string{"text a", "call x f {} <0190-aa r>", "text bc", "thought r"}, parts)
}

func TestStreamIsReal(t *testing.T) {
	t.Parallel()
	s := generate.Provider{}.Stream(&turn.Request{}, answerHead)
	c := newClient(t)
	for i, d := range []turn.Delta{{Reasoning: "a"}, {Reasoning: "b"}, {Text: "c"}, {Text: "d"}} {
		c.events(s.Delta(nil, d))
		require.Equal(t, i+1, c.chunks)
	}
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	r := &turn.Request{N: 2}
	a := answer{
		deltas: []turn.Delta{{Choice: 1, Text: "b1"}, {Choice: 0, Text: "a"}, {Choice: 1, Text: "b2"}, {Choice: 2, Text: "no"}, {Choice: 1, Calls: []turn.CallDelta{{ID: "x", Name: "f"}}}},
		ends:   []turn.End{{Choice: 0, Finish: "length"}, {Choice: 1, Finish: "tool_calls"}},
	}
	got, _ := play(t, r, a)
	require.Equal(t, map[int]string{0: "MAX_TOKENS", 1: "STOP"}, got.finish)
	require.Equal(t, "text a", seen(t, got.parts[0][0]))
	require.Equal(t, "text b1b2", seen(t, got.parts[1][0]))
	require.Equal(t, "call x f {} <0190-bb >", seen(t, got.parts[1][1]))
}

func TestUsage(t *testing.T) {
	t.Parallel()
	a := answer{deltas: []turn.Delta{{Text: "x"}}, ends: []turn.End{{Finish: "content_filter"}}, usage: turn.Usage{Prompt: number(10), Completion: number(7), Reasoning: number(3), Cached: number(4)}}
	got, _ := play(t, &turn.Request{}, a)
	full, _ := whole(t, &turn.Request{}, a)
	for _, c := range []*client{got, full} {
		require.Equal(t, map[string]int64{"promptTokenCount": 10, "candidatesTokenCount": 4, "thoughtsTokenCount": 3, "cachedContentTokenCount": 4, "totalTokenCount": 17}, c.usage)
		require.Equal(t, "SAFETY", c.finish[0])
	}
}

// What goes out comes back as it was sampled, though harnesses drop thought parts.
func TestThoughtsComeBack(t *testing.T) {
	t.Parallel()
	got, _ := play(t, &turn.Request{}, answer{ends: stop, deltas: []turn.Delta{{Reasoning: "why"}, call(0, "x", "f", `{"a":1}`)}})
	var kept []part
	for _, p := range got.parts[0] {
		if !p.Thought {
			kept = append(kept, p)
		}
	}
	back, err := json.Marshal(kept)
	require.NoError(t, err)
	r := decode(t, `{"contents":[{"role":"model","parts":`+string(back)+`},{"role":"user","parts":[{"functionResponse":{"id":"x","name":"f","response":{}}}]}]}`)
	require.Equal(t, "why", *r.Messages[0].Reasoning)
	require.Equal(t, map[int]string{0: "0190-aa"}, r.Anchors)
	require.Equal(t, []turn.Call{{ID: "x", Name: "f", Arguments: `{"a":1}`}}, r.Messages[0].Calls)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault  *turn.Fault
		status int
		want   string
	}{
		{turn.Invalid("contents", "contents: is required"), 400, `{"error":{"code":400,"message":"contents: is required","status":"INVALID_ARGUMENT"}}`},
		{&turn.Fault{Status: 401, Message: "m"}, 401, `{"error":{"code":401,"message":"m","status":"UNAUTHENTICATED"}}`},
		{&turn.Fault{Status: 403, Message: "m"}, 403, `{"error":{"code":403,"message":"m","status":"PERMISSION_DENIED"}}`},
		{&turn.Fault{Status: 404, Message: "m"}, 404, `{"error":{"code":404,"message":"m","status":"NOT_FOUND"}}`},
		{&turn.Fault{Status: 409, Message: "m"}, 409, `{"error":{"code":409,"message":"m","status":"ABORTED"}}`},
		{&turn.Fault{Status: 413, Message: "m"}, 413, `{"error":{"code":413,"message":"m","status":"INVALID_ARGUMENT"}}`},
		{&turn.Fault{Status: 429, Message: "m"}, 429, `{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}`},
		{&turn.Fault{Message: "m"}, 500, `{"error":{"code":500,"message":"m","status":"INTERNAL"}}`},
		{&turn.Fault{Status: 504, Message: "m"}, 504, `{"error":{"code":504,"message":"m","status":"DEADLINE_EXCEEDED"}}`},
		{
			&turn.Fault{Status: 503, Code: turn.CodeOverloaded, Message: "m", RetryAfter: 1500 * time.Millisecond}, 503,
			`{"error":{"code":503,"message":"overloaded: m","status":"UNAVAILABLE","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2s"}]}}`,
		},
	} {
		status, header, raw := generate.Provider{}.Fault(c.fault)
		require.Equal(t, c.status, status)
		require.Equal(t, c.want, string(raw))
		require.Equal(t, "application/json", header.Get("Content-Type"))
		if c.fault.RetryAfter > 0 {
			require.Equal(t, "2", header.Get("Retry-After"))
		}
	}
}

func TestFailInAStream(t *testing.T) {
	t.Parallel()
	fault := &turn.Fault{Status: 502, Message: "the engine broke"}
	s := generate.Provider{}.Stream(&turn.Request{}, answerHead)
	s.Delta(nil, turn.Delta{Text: "x"})
	var bare response
	require.NoError(t, json.Unmarshal(s.Fail(nil, fault), &bare))
	require.Equal(t, "UNAVAILABLE", bare.Error.Status)

	// An array stays open, so that no reader takes it for an answer.
	s = generate.Provider{}.Stream(&turn.Request{Array: true}, answerHead)
	all := s.Fail(s.Delta(nil, turn.Delta{Text: "x"}), fault)
	require.False(t, json.Valid(all))
	var chunks []response
	require.NoError(t, json.Unmarshal(append(all, ']'), &chunks))
	require.Equal(t, 502, chunks[1].Error.Code)
}
