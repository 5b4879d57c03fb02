package chat_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

func TestDecode_Choice(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]turn.ToolChoice{
		`null`:       {},
		`"auto"`:     {Mode: "auto"},
		`"none"`:     {Mode: "none"},
		`"required"`: {Mode: "required"},
		`"any"`:      {Mode: "required"},
		`{"type":"function","function":{"name":"b"}}`: {Name: "b"},
		`{"type":"web_search"}`:                       {},
		`{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"b"}}]}}`: {Mode: "required"},
	} {
		r := decode(t, with(someTools+`,"tool_choice":`+choice))
		require.Equal(t, want, r.Choice, choice)
	}
	r := decode(t, with(someTools+`,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"b"}}]}}`))
	require.Len(t, r.Tools, 1, "what is not allowed cannot be called")
	require.Equal(t, "narrowed_tools", r.Rewrites[0].What)
	require.Equal(t, "left out: a", r.Rewrites[0].Detail)

	r = decode(t, with(`"tools":[],"tool_choice":"auto","parallel_tool_calls":true`))
	require.Equal(t, turn.ToolChoice{}, r.Choice, "engines refuse a choice among no tools")
	require.Nil(t, r.Parallel)
}

func TestDecode_ToolsAsTheyCame(t *testing.T) {
	t.Parallel()
	tool := `{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}}},"strict":false,"mine":1}}`
	r := decode(t, with(`"tools":[`+tool+`,{"type":"web_search"}],"parallel_tool_calls":false`))
	got, err := r.Tools[0].JSON()
	require.NoError(t, err)
	require.JSONEq(t, tool, string(got))
	require.Contains(t, string(got), "9007199254740993")
	require.False(t, *r.Parallel)
	require.Equal(t, []turn.Rewrite{{What: "dropped_tool", Where: "tools[1]", Detail: r.Rewrites[0].Detail}}, r.Rewrites)
}

func TestDecode_Parameters(t *testing.T) {
	t.Parallel()
	r := decode(t, with(`"stream":true,"stream_options":{"include_usage":true},"n":3,"max_tokens":5,"max_completion_tokens":7,
		"logprobs":true,"top_logprobs":2,"stop":"x","temperature":0.5,"prompt_cache_key":"k"`))
	require.True(t, r.Stream)
	require.True(t, r.IncludeUsage)
	require.Equal(t, 3, r.Choices())
	require.Equal(t, int64(7), *r.MaxTokens)
	require.True(t, r.Logprobs)
	require.Equal(t, int64(2), r.Top)
	require.Equal(t, "k", r.Session.ID)
	require.Equal(t, map[string]json.RawMessage{"stop": json.RawMessage(`["x"]`), "temperature": json.RawMessage("0.5")}, r.Sampling)
	require.False(t, decode(t, with(`"stream_options":{"include_usage":true}`)).IncludeUsage)
}

// A harness cannot switch off what capture needs.
func TestDecode_KeepsCapture(t *testing.T) {
	t.Parallel()
	r := decode(t, with(`"logprobs":false,"return_token_ids":false,"include_reasoning":false,"return_meta_info":false,
		"return_tokens_as_token_ids":false,"stream_options":{"include_usage":false},"request_id":"mine","prompt_token_ids":[1]`))
	require.Empty(t, r.Sampling)
	require.False(t, r.Logprobs)
	require.True(t, r.Reasoning.Hidden)
	require.Len(t, r.Rewrites, 5)
}

func TestDecode_Thinking(t *testing.T) {
	t.Parallel()
	on, off, budget := true, false, int64(512)
	for member, want := range map[string]turn.Reasoning{
		`"reasoning_effort":"high"`:                                {Effort: "high"},
		`"reasoning":{"effort":"low","exclude":true}`:              {Effort: "low", Hidden: true},
		`"reasoning":{"max_tokens":512,"enabled":true}`:            {Budget: &budget, Enabled: &on},
		`"thinking":{"type":"enabled","budget_tokens":512}`:        {Budget: &budget, Enabled: &on},
		`"thinking":{"type":"disabled"}`:                           {Enabled: &off},
		`"thinking":{"type":"adaptive"}`:                           {},
		`"thinking":false`:                                         {Enabled: &off},
		`"enable_thinking":true,"thinking_budget":512`:             {Budget: &budget, Enabled: &on},
		`"reasoning":null,"thinking":null,"reasoning_effort":null`: {},
	} {
		r := decode(t, with(member))
		require.Equal(t, want, r.Reasoning, member)
		require.Empty(t, r.Rewrites)
		require.Empty(t, r.Sampling, "the model's options say what an engine is told")
	}
}
