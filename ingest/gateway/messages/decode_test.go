package messages_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/messages"
	"icecore/ingest/gateway/turn"
)

const head = `"model":"claude-x","max_tokens":100,`

func decode(t require.TestingT, body string) *turn.Request {
	r, err := messages.Provider{}.Decode(turn.Incoming{Body: []byte(body), Path: "messages"})
	require.NoError(t, err, body)
	return r
}

// wire is the history as an engine gets it, one message per line.
func wire(t require.TestingT, r *turn.Request) string {
	lines := make([]string, len(r.Messages))
	for i := range r.Messages {
		line, err := r.Messages[i].JSON(turn.ReasoningContent)
		require.NoError(t, err)
		require.True(t, json.Valid(line), "%s", line)
		lines[i] = string(line)
	}
	return strings.Join(lines, "\n")
}

func rewrites(r *turn.Request) []string {
	var all []string
	for _, w := range r.Rewrites {
		all = append(all, w.What+" "+w.Where)
	}
	return all
}

func TestAnchorsNameTheirMessage(t *testing.T) {
	t.Parallel()
	seal := turn.Anchor{TraceID: "t-9", Reasoning: "was"}.Seal()
	r := decode(t, `{`+head+`"system":"s","messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"thinking","thinking":"said otherwise","signature":"`+seal+`"},{"type":"text","text":"A"}]},{"role":"user","content":"r"}]}`)
	require.Equal(t, map[int]string{2: "t-9"}, r.Anchors)
	require.Equal(t, "said otherwise", *r.Messages[2].Reasoning) // what the harness sends counts
}

func TestParameters(t *testing.T) {
	t.Parallel()
	r := decode(t, `{`+head+`"messages":[{"role":"user","content":"q"}],"stream":true,
		"temperature":1.0,"top_p":0.95,"top_k":40,"stop_sequences":["a", "b"],
		"thinking":{"type":"enabled","budget_tokens":2048,"display":"omitted"},
		"output_config":{"effort":"high","format":{"type":"json_schema","schema":{"type": "object"}}},
		"metadata":{"user_id":"{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"s-1\"}"},
		"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"},{"type":"clear_tool_uses_20250919"}]},
		"tools":[{"name":"Bash","description":"d","input_schema":{"type": "object"},"cache_control":{"type":"ephemeral"}},
			{"type":"custom","name":"Read","input_schema":{},"strict":true,"defer_loading":true},
			{"type":"web_search_20250305","name":"web_search"},{"type":"bash_20250124","name":"bash"}],
		"tool_choice":{"type":"any","disable_parallel_tool_use":true},
		"something_new":1,"service_tier":"auto"}`)
	require.Equal(t, "claude-x", r.Model)
	require.True(t, r.Stream)
	require.EqualValues(t, 100, *r.MaxTokens)
	sampling, err := json.Marshal(r.Sampling)
	require.NoError(t, err)
	require.JSONEq(t, `{"temperature":1.0,"top_p":0.95,"top_k":40,"stop":["a","b"],"response_format":{"type":"json_schema","json_schema":{"name":"output","schema":{"type":"object"},"strict":true}}}`, string(sampling))
	require.True(t, *r.Reasoning.Enabled)
	require.EqualValues(t, 2048, *r.Reasoning.Budget)
	require.Equal(t, "high", r.Reasoning.Effort)
	require.True(t, r.Reasoning.Hidden)
	require.Equal(t, "s-1", r.Session.ID)
	require.Len(t, r.Tools, 2)
	tool, err := r.Tools[0].JSON()
	require.NoError(t, err)
	require.Equal(t, `{"type":"function","function":{"name":"Bash","description":"d","parameters":{"type": "object"}}}`, string(tool))
	require.True(t, *r.Tools[1].Strict)
	require.Equal(t, turn.ToolChoice{Mode: "required"}, r.Choice)
	require.False(t, *r.Parallel)
	require.Equal(t, []string{
		"loaded_deferred_tool tools[1]", "dropped_tool tools[2]", "dropped_tool tools[3]",
		"ignored_context_edit context_management.edits[1]", "dropped_field something_new",
	}, rewrites(r))
}

func TestSession(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]string{
		`"user_abc_account__session_0af1"`: "0af1",
		`"{\"session_id\":5}"`:             "",
		`"somebody"`:                       "",
		`7`:                                "",
	} {
		r := decode(t, `{`+head+`"messages":[{"role":"user","content":"q"}],"metadata":{"user_id":`+user+`}}`)
		require.Equal(t, want, r.Session.ID, user)
	}
}

func TestChoiceWithoutTools(t *testing.T) {
	t.Parallel()
	r := decode(t, `{`+head+`"messages":[{"role":"user","content":"q"}],"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"auto"}}`)
	require.Zero(t, r.Choice)
	require.Empty(t, r.Tools)
}

func TestCountTokensNeedsNoMaxTokens(t *testing.T) {
	t.Parallel()
	r, err := messages.Provider{}.Decode(turn.Incoming{Path: "messages/count_tokens", Body: []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"q"}]}`)})
	require.NoError(t, err)
	require.Nil(t, r.MaxTokens)
	require.False(t, r.Stream)
	require.Equal(t, `{"input_tokens":17}`, string(messages.CountTokens(17)))
}

func TestDecodeFaults(t *testing.T) {
	t.Parallel()
	said := func(block string) string {
		return `{` + head + `"messages":[{"role":"user","content":[` + block + `]}]}`
	}
	for _, c := range []struct{ body, field string }{
		{`[]`, ""},
		{`{"model":"m","model":"n"}`, "model"},
		{`{"max_tokens":1,"messages":[{"role":"user","content":"q"}]}`, "model"},
		{`{"model":"m","messages":[{"role":"user","content":"q"}]}`, "max_tokens"},
		{`{"model":"m","max_tokens":0,"messages":[{"role":"user","content":"q"}]}`, "max_tokens"},
		{`{` + head + `"messages":[]}`, "messages"},
		{`{` + head + `"messages":[{"role":"tool","content":"q"}]}`, "messages[0].role"},
		{`{` + head + `"messages":[{"role":"user"}]}`, "messages[0].content"},
		{`{` + head + `"messages":[{"role":"user","content":5}]}`, "messages[0].content"},
		{said(`{"type":"video"}`), "messages[0].content[0].type"},
		{said(`{"type":"text","text":5}`), "messages[0].content[0].text"},
		{said(`{"type":"tool_use","id":"a","name":"b","input":{}}`), "messages[0].content[0].type"},
		{said(`{"type":"tool_result","content":"a"}`), "messages[0].content[0].tool_use_id"},
		{said(`{"type":"tool_result","tool_use_id":"a","content":[{"type":"search_result"}]}`), "messages[0].content[0].content[0].type"},
		{said(`{"type":"image","source":{"type":"file","file_id":"f"}}`), "messages[0].content[0].source.type"},
		{said(`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"A"}}`), "messages[0].content[0].source.type"},
		{said(`{"type":"container_upload","file_id":"f"}`), "messages[0].content[0].type"},
		{`{` + head + `"messages":[{"role":"assistant","content":[{"type":"image"}]}]}`, "messages[0].content[0].type"},
		{`{` + head + `"messages":[{"role":"user","content":"q"}],"mcp_servers":[{"url":"x"}]}`, "mcp_servers"},
		{`{` + head + `"messages":[{"role":"user","content":"q"}],"container":"c"}`, "container"},
		{`{` + head + `"messages":[{"role":"user","content":"q"}],"tools":[{"input_schema":{}}]}`, "tools[0].name"},
		{`{` + head + `"messages":[{"role":"user","content":"q"}],"tools":[{"name":"a","input_schema":"x"}]}`, "tools[0].input_schema"},
		{`{` + head + `"messages":[{"role":"user","content":"q"}],"tool_choice":{"type":"any"}}`, "tool_choice.type"},
		{`{` + head + `"messages":[{"role":"user","content":"q"}],"tool_choice":{"type":"tool","name":"a"}}`, "tool_choice.name"},
		{`{` + head + `"messages":[{"role":"user","content":"q"}],"stop_sequences":[""]}`, "stop_sequences[0]"},
		{`{` + head + `"messages":[{"role":"user","content":"q"}],"temperature":"hot"}`, "temperature"},
		{`{` + head + `"messages":[{"role":"user","content":"q"}],"thinking":{"type":"deep"}}`, "thinking.type"},
		{`{` + head + `"messages":[{"role":"user","content":"q"}],"output_config":{"format":{"type":"xml"}}}`, "output_config.format.type"},
	} {
		_, err := messages.Provider{}.Decode(turn.Incoming{Body: []byte(c.body), Path: "messages"})
		var fault *turn.Fault
		require.True(t, errors.As(err, &fault), c.body)
		require.Equal(t, 400, fault.Status, c.body)
		require.Equal(t, c.field, fault.Field, c.body)
		require.Contains(t, fault.Message, c.field, c.body)
	}
}
