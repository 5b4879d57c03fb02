package generate_test

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
			name: "a system instruction in all its forms",
			body: `"systemInstruction":{"role":"user","parts":[{"text":"A"},{"text":""},{"text":"B"}]},"contents":[{"role":"user","parts":[{"text":"q"}]}]`,
			want: []string{`{"role":"system","content":"A\n\nB"}`, `{"role":"user","content":"q"}`},
		},
		{
			name: "snake_case and single objects",
			body: `"system_instruction":{"parts":{"text":"A"}},"contents":{"parts":{"text":"q"}}`,
			want: []string{`{"role":"system","content":"A"}`, `{"role":"user","content":"q"}`},
		},
		{
			name: "a string",
			body: `"systemInstruction":"A","contents":[{"role":"user","parts":[{"text":"a"},{"text":"b"}]}]`,
			want: []string{`{"role":"system","content":"A"}`, `{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`},
		},
		{
			name: "row 36: calls without ids and without signatures",
			body: `"contents":[{"role":"user","parts":[{"text":"q"}]},
				{"role":"model","parts":[{"text":"A"},{"functionCall":{"name":"ls","args":{"dir": "/", "n": 9007199254740993}}},{"functionCall":{"name":"cat"}},{"functionCall":{"name":"ls","args":{}}}]},
				{"role":"user","parts":[{"functionResponse":{"name":"ls","response":{"output": "a  b"}}},{"functionResponse":{"name":"cat","response":{"error":"no"}}},{"functionResponse":{"name":"ls"}}]}]`,
			want: []string{
				`{"role":"user","content":"q"}`,
				`{"role":"assistant","content":"A","tool_calls":[{"id":"call_1_1","type":"function","function":{"name":"ls","arguments":"{\"dir\":\"/\",\"n\":9007199254740993}"}},{"id":"call_1_2","type":"function","function":{"name":"cat","arguments":"{}"}},{"id":"call_1_3","type":"function","function":{"name":"ls","arguments":"{}"}}]}`,
				`{"role":"tool","content":"{\"output\":\"a  b\"}","tool_call_id":"call_1_1"}`,
				`{"role":"tool","content":"{\"error\":\"no\"}","tool_call_id":"call_1_2"}`,
				`{"role":"tool","content":"","tool_call_id":"call_1_3"}`,
			},
		},
		{
			name: "ids, and responses in another order after text",
			body: `"contents":[{"role":"model","parts":[{"functionCall":{"id":"x","name":"f","args":{}}},{"functionCall":{"id":"y","name":"g","args":{}}}]},
				{"role":"function","parts":[{"text":"t"},{"functionResponse":{"id":"y","name":"g","response":{}}},{"functionResponse":{"id":"unheard-of","name":"f","response":{}}}]}]`,
			want: []string{
				`{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"y","type":"function","function":{"name":"g","arguments":"{}"}}]}`,
				`{"role":"tool","content":"{}","tool_call_id":"x"}`,
				`{"role":"tool","content":"{}","tool_call_id":"y"}`,
				`{"role":"user","content":"t"}`,
			},
			rewrites: []string{"reordered_content contents[1]"},
		},
		{
			name: "a call that was never answered does not take a later one's response",
			body: `"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"}}]},{"role":"user","parts":[{"text":"stop"}]},{"role":"model","parts":[{"functionCall":{"name":"f"}}]},
				{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}},{"functionResponse":{"name":"h","response":{}}}]}]`,
			want: []string{
				`{"role":"assistant","content":null,"tool_calls":[{"id":"call_0_0","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
				`{"role":"user","content":"stop"}`,
				`{"role":"assistant","content":null,"tool_calls":[{"id":"call_2_0","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
				`{"role":"tool","content":"{}","tool_call_id":"call_2_0"}`,
				`{"role":"tool","content":"{}","tool_call_id":"call_3_1"}`,
			},
		},
		{
			name: "thoughts come back from the signature on a call",
			body: `"contents":[{"role":"model","parts":[{"functionCall":{"id":"x","name":"f","args":{}},"thoughtSignature":"` + ours + `"}]},{"role":"user","parts":[{"functionResponse":{"id":"x","name":"f","response":{}}}]}]`,
			want: []string{
				`{"role":"assistant","content":null,"reasoning_content":"I think","tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
				`{"role":"tool","content":"{}","tool_call_id":"x"}`,
			},
		},
		{
			name: "thoughts that came with it count, and another's signature does not",
			body: `"contents":[{"role":"model","parts":[{"text":"Hm","thought":true},{"text":"A","thought_signature":"` + ours + `"}]},{"role":"model","parts":[{"text":"B"},{"thoughtSignature":"c2tpcA=="}]},{"role":"user","parts":[{"text":"q"}]}]`,
			want: []string{
				`{"role":"assistant","content":"A","reasoning_content":"Hm"}`,
				`{"role":"assistant","content":"B"}`,
				`{"role":"user","content":"q"}`,
			},
		},
		{
			name: "images",
			body: `"contents":[{"role":"user","parts":[{"functionResponse":{"id":"x","name":"f","response":{},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}},{"inline_data":{"mime_type":"image/jpeg","data":"BBBB"}},{"fileData":{"fileUri":"https://x/y.png","mimeType":"image/png"}}]}]`,
			want: []string{
				`{"role":"tool","content":"{}","tool_call_id":"x"}`,
				`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,BBBB"}},{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}`,
			},
			rewrites: []string{"moved_image contents[0].parts[0].functionResponse.parts[0]"},
		},
		{
			name:     "code that Google ran, and a model's turn at the end",
			body:     `"contents":[{"role":"model","parts":[{"executableCode":{"code":"1"}},{"codeExecutionResult":{"output":"1"}},{"text":"A"}]}]`,
			want:     []string{`{"role":"assistant","content":"A"}`},
			rewrites: []string{"dropped_block contents[0].parts[0]", "dropped_block contents[0].parts[1]", "prefill_as_turn contents[0]"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := decode(t, "{"+c.body+"}")
			require.Equal(t, strings.Join(c.want, "\n"), wire(t, r))
			require.Equal(t, c.rewrites, rewrites(r))
		})
	}
}
