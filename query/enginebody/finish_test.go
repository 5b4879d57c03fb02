package enginebody

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFinish(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body   string
		choice *int64
		want   Finish
	}{
		"not said":    {body: `{"choices":[{"token_ids":[1],"finish_reason":null}]}`},
		"not JSON":    {body: `finish_reason`},
		"chat":        {body: `{"choices":[{"finish_reason":"tool_calls","stop_reason":151645}]}`, want: Finish{"choices[0].finish_reason", "tool_calls"}},
		"chat stream": {body: `[{"choices":[{"finish_reason":null}]},{"choices":[{"finish_reason":"length"}]},{"choices":[],"usage":{}}]`, want: Finish{"choices[0].finish_reason", "length"}},
		"choice":      {body: `{"choices":[{"index":0,"finish_reason":"stop"},{"index":1,"finish_reason":"length"}]}`, choice: ptr(int64(1)), want: Finish{"choices[1].finish_reason", "length"}},
		"the only":    {body: `{"choices":[{"index":0,"finish_reason":"stop"}]}`, choice: ptr(int64(3)), want: Finish{"choices[0].finish_reason", "stop"}},
		"another's":   {body: `{"choices":[{"index":0},{"index":1,"finish_reason":"length"}]}`},
		"messages":    {body: `{"type":"message","content":[],"stop_reason":"tool_use"}`, want: Finish{"stop_reason", "tool_use"}},
		"messages stream": {body: `[{"type":"message_start","message":{"stop_reason":null}},{"type":"message_delta","delta":{"stop_reason":"end_turn"}},{"type":"message_stop"}]`,
			want: Finish{"delta.stop_reason", "end_turn"}},
		"responses": {body: `[{"type":"response.created","response":{"status":"in_progress","output":[]}},{"type":"response.completed","response":{"status":"completed","output":[]}}]`,
			want: Finish{"status", "completed"}},
		"responses cut": {body: `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}`, want: Finish{"incomplete_details.reason", "max_output_tokens"}},
		"gemini":        {body: `{"candidates":[{"finishReason":"MAX_TOKENS"}]}`, want: Finish{"candidates[0].finishReason", "MAX_TOKENS"}},
		"sglang":        {body: `{"output_ids":[1],"meta_info":{"finish_reason":{"type":"length","length":1}}}`, want: Finish{"meta_info.finish_reason.type", "length"}},
		"llama.cpp":     {body: `{"tokens":[1],"stop_type":"limit"}`, want: Finish{"stop_type", "limit"}},
		"tgi":           {body: `{"details":{"finish_reason":"eos_token","tokens":[]}}`, want: Finish{"details.finish_reason", "eos_token"}},
	} {
		require.Equal(t, c.want, ParseResponse([]byte(c.body), c.choice).Finish, name)
	}
}

func TestFinishMeans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		word, reason string
		same, known  bool
	}{
		{"stop", "stop", true, true}, {"stop", "tool_calls", true, true}, {"stop", "length", false, true},
		{"tool_use", "tool_calls", true, true}, {"tool_calls", "stop", false, true},
		{"MAX_TOKENS", "length", true, true}, {"MAX_TOKENS", "stop", false, true},
		{"abort", "abort", true, true}, {"", "stop", false, false}, {"OTHER", "stop", false, false},
	} {
		same, known := Finish{"place", c.word}.Says(c.reason)
		require.Equal(t, c.same, same, "%+v", c)
		require.Equal(t, c.known, known, "%+v", c)
	}
}
