package responses_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/responses"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

func TestDecode_Tools(t *testing.T) {
	t.Parallel()
	r := decode(t, with(`"parallel_tool_calls":true,"tools":[
		{"type":"function","name":"shell","description":"d","parameters":{"type":"object"},"strict":false},
		{"type":"custom","name":"apply_patch","description":"Patches.","format":{"type":"grammar","syntax":"lark","definition":"start: x"}},
		{"type":"namespace","name":"team","description":"A team.","tools":[{"type":"function","name":"spawn","description":"Spawns."},{"type":"function","name":"wait"}]},
		{"type":"namespace","name":"mcp__x__","tools":[{"type":"function","name":"shell"}]},
		{"type":"web_search"},{"type":"local_shell"}]`))
	var names []string
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	require.Equal(t, []string{"shell", "apply_patch", "team__spawn", "team__wait", "mcp__x__shell"}, names)
	require.False(t, *r.Tools[0].Strict)
	require.Equal(t, "Patches.\n\nThe argument input is free text by this lark grammar:\nstart: x", r.Tools[1].Description)
	require.JSONEq(t, `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}`, string(r.Tools[1].Parameters))
	require.Equal(t, "A team.\n\nSpawns.", r.Tools[2].Description)
	require.Empty(t, r.Tools[3].Description)
	require.True(t, *r.Parallel)
	require.Equal(t, turn.Names{
		"apply_patch":   {Name: "apply_patch", Custom: true},
		"team__spawn":   {Name: "spawn", Namespace: "team"},
		"team__wait":    {Name: "wait", Namespace: "team"},
		"mcp__x__shell": {Name: "shell", Namespace: "mcp__x__"},
	}, r.Names)
	var what []string
	for _, w := range r.Rewrites {
		what = append(what, w.What+" "+w.Where)
	}
	require.Equal(t, []string{"flattened_namespace tools[2]", "flattened_namespace tools[3]", "dropped_tool tools[4]", "dropped_tool tools[5]"}, what)
}

// Two tools never have one name at the engine, and history and choice use the same.
func TestDecode_NamesThatMeet(t *testing.T) {
	t.Parallel()
	r := decode(t, `{"model":"m","input":[
		{"type":"function_call","call_id":"1","name":"b","namespace":"a","arguments":""},{"type":"function_call","call_id":"2","name":"a__b","arguments":""}],
		"tools":[{"type":"function","name":"a__b"},{"type":"namespace","name":"a","tools":[{"type":"function","name":"b"}]}],
		"tool_choice":{"type":"function","name":"b","namespace":"a"}}`)
	require.Equal(t, "a__b", r.Tools[0].Name)
	require.Equal(t, "a__b_2", r.Tools[1].Name)
	require.Equal(t, turn.ToolName{Name: "b", Namespace: "a"}, r.Names.Of("a__b_2"))
	require.Equal(t, "a__b_2", r.Messages[0].Calls[0].Name)
	require.Equal(t, "a__b", r.Messages[0].Calls[1].Name)
	require.Equal(t, turn.ToolChoice{Name: "a__b_2"}, r.Choice)
}

func TestDecode_Choice(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]turn.ToolChoice{
		`"auto"`: {Mode: "auto"}, `"none"`: {Mode: "none"}, `"required"`: {Mode: "required"},
		`{"type":"function","name":"shell"}`:                    {Name: "shell"},
		`{"type":"custom","name":"apply_patch"}`:                {Name: "apply_patch"},
		`{"type":"function","name":"spawn","namespace":"team"}`: {Name: "team__spawn"},
		`{"type":"web_search_preview"}`:                         {},
		`{"type":"allowed_tools","mode":"required","tools":[{"type":"custom","name":"apply_patch"},{"type":"mcp"}]}`: {Mode: "required"},
	} {
		r := decode(t, with(`"tools":`+oneOfEach+`,"tool_choice":`+choice))
		require.Equal(t, want, r.Choice, choice)
	}
}

// Row 24: a trigger is answered by one compaction item, which then stands for the history.
func TestCompaction(t *testing.T) {
	t.Parallel()
	r := decode(t, `{"model":"m","input":[{"role":"user","content":"a"},{"type":"compaction_trigger"}],"tools":`+oneOfEach+`,"tool_choice":"required"}`)
	require.Equal(t, trace.KindAuxiliary, r.Kind)
	require.Equal(t, turn.ToolChoice{Mode: "none"}, r.Choice)
	require.Contains(t, r.Messages[1].Text(), "Summarise the conversation")

	text, _ := stream(r, []turn.Delta{{Reasoning: "hm"}, {Text: "we did "}, {Text: "a"}}, turn.FinishStop)
	a := hear(t, text)
	done := a.items(t)
	require.Len(t, done, 1)
	require.Equal(t, "compaction", done[0].Type)
	whole, err := responses.Provider{}.Whole(r, &turn.Answer{Head: head, Usage: usage(), Choices: []turn.Choice{
		{Message: turn.Message{Content: turn.TextOf("we did a")}, End: turn.End{Finish: turn.FinishStop}}}})
	require.NoError(t, err)
	require.Contains(t, string(whole), string(a.done[0]))

	back := decode(t, items(string(a.done[0])+`,{"role":"user","content":"go on"}`))
	require.Equal(t, "Summary of the conversation so far:\n\nwe did a", back.Messages[0].Text())
	require.Equal(t, turn.RoleUser, back.Messages[0].Role)
}

// A few bytes of anchors cannot become gigabytes.
func TestDecode_BoundsWhatAnchorsHold(t *testing.T) {
	t.Parallel()
	one := `{"type":"reasoning","summary":[],"encrypted_content":"` + sealed("t1", strings.Repeat("a", 15<<20)) + `"},`
	_, err := responses.Provider{}.Decode(turn.Incoming{Body: []byte(items(strings.Repeat(one, 5) + `{"role":"user","content":"a"}`))})
	var f *turn.Fault
	require.ErrorAs(t, err, &f)
	require.Equal(t, 413, f.Status)
	require.Equal(t, "input[4].encrypted_content", f.Field)
}
