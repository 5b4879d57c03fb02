package messages_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	ours := turn.Anchor{TraceID: "t-1", Reasoning: "I think"}.Seal()
	for _, c := range []struct {
		name, body string
		want       []string
		rewrites   []string
	}{
		{
			name: "system blocks are one message",
			body: `"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1"},{"type":"text","text":"Be good.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"hi"}]`,
			want: []string{
				`{"role":"system","content":"x-anthropic-billing-header: cch=1\n\nBe good."}`,
				`{"role":"user","content":"hi"}`,
			},
		},
		{
			name: "row 18: a system message stays in its place",
			body: `"messages":[{"role":"user","content":"a"},{"role":"system","content":[{"type":"text","text":"note"}]},{"role":"user","content":"b"}]`,
			want: []string{
				`{"role":"user","content":"a"}`,
				`{"role":"system","content":"note"}`,
				`{"role":"user","content":"b"}`,
			},
		},
		{
			name: "one block is a string, several are parts",
			body: `"messages":[{"role":"user","content":[{"type":"text","text":"a<b>&\u2028"}]},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`,
			want: []string{
				`{"role":"user","content":"a<b>&\u2028"}`,
				`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
			},
		},
		{
			name: "a turn of thinking, text and calls is one message",
			body: `"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"text","text":"A"},{"type":"tool_use","id":"c1","name":"Bash","input":{"command": "ls  -l", "n": 9007199254740993}},{"type":"text","text":"B"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"ok"}]}]`,
			want: []string{
				`{"role":"assistant","content":"AB","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"Bash","arguments":"{\"command\":\"ls  -l\",\"n\":9007199254740993}"}}]}`,
				`{"role":"tool","content":"ok","tool_call_id":"c1"}`,
			},
		},
		{
			name: "row 20: thinking that was emptied comes back from our signature",
			body: `"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"` + ours + `"}]},{"role":"user","content":"go"}]`,
			want: []string{
				`{"role":"assistant","content":null,"reasoning_content":"I think"}`,
				`{"role":"user","content":"go"}`,
			},
		},
		{
			name: "row 20: with another's signature the turn is still there",
			body: `"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"EqQB"},{"type":"redacted_thinking","data":"zzz"}]},{"role":"user","content":"go"}]`,
			want: []string{
				`{"role":"assistant","content":null}`,
				`{"role":"user","content":"go"}`,
			},
			rewrites: []string{"dropped_reasoning messages[0].content[0]", "dropped_reasoning messages[0].content[1]"},
		},
		{
			name: "redacted thinking of ours",
			body: `"messages":[{"role":"assistant","content":[{"type":"redacted_thinking","data":"` + ours + `"},{"type":"text","text":"A"}]},{"role":"user","content":"go"}]`,
			want: []string{
				`{"role":"assistant","content":"A","reasoning_content":"I think"}`,
				`{"role":"user","content":"go"}`,
			},
		},
		{
			name: "results go in the order of their calls, before text",
			body: `"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"a","input":{}},{"type":"tool_use","id":"c2","name":"b"}]},
				{"role":"user","content":[{"type":"text","text":"also"},{"type":"tool_result","tool_use_id":"c2","is_error":true,"content":[{"type":"text","text":"2"}]},{"type":"tool_result","tool_use_id":"c1"}]}]`,
			want: []string{
				`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"a","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"b","arguments":"{}"}}]}`,
				`{"role":"tool","content":"","tool_call_id":"c1"}`,
				`{"role":"tool","content":"2","tool_call_id":"c2"}`,
				`{"role":"user","content":"also"}`,
			},
			rewrites: []string{"dropped_field messages[1].content[1].is_error", "reordered_content messages[1].content"},
		},
		{
			name: "images of a result follow it",
			body: `"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"shot"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},{"type":"image","source":{"type":"url","url":"https://x/y.png"}},{"type":"text","text":"see"}]}]`,
			want: []string{
				`{"role":"tool","content":"shot","tool_call_id":"c1"}`,
				`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"image_url","image_url":{"url":"https://x/y.png"}},{"type":"text","text":"see"}]}`,
			},
			rewrites: []string{"moved_image messages[0].content[0].content[1]"},
		},
		{
			name: "documents of text",
			body: `"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"D"},"title":"T"},{"type":"document","source":{"type":"content","content":[{"type":"text","text":"E"}]}}]}]`,
			want: []string{
				`{"role":"user","content":[{"type":"text","text":"D"},{"type":"text","text":"E"}]}`,
			},
			rewrites: []string{"dropped_field messages[0].content[0].title"},
		},
		{
			name: "tools of Anthropic's servers, and a prefill",
			body: `"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]},{"type":"text","text":"{"}]}]`,
			want: []string{
				`{"role":"user","content":"q"}`,
				`{"role":"assistant","content":"{"}`,
			},
			rewrites: []string{"dropped_block messages[1].content[0]", "dropped_block messages[1].content[1]", "prefill_as_turn messages[1]"},
		},
		{
			name: "arguments that a harness kept as text",
			body: `"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"a","input":"{\"x\": "}]},{"role":"user","content":"q"}]`,
			want: []string{
				`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"a","arguments":"{\"x\": "}}]}`,
				`{"role":"user","content":"q"}`,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := decode(t, "{"+head+c.body+"}")
			require.Equal(t, strings.Join(c.want, "\n"), wire(t, r))
			require.Equal(t, c.rewrites, rewrites(r))
		})
	}
}
