package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

func tool(name, schema string) enginetest.Tool {
	return enginetest.Tool{Name: name, Parameters: json.RawMessage(schema)}
}

// Tools as the five harnesses describe them.
var (
	piBash    = tool("bash", `{"properties": {"command": {"type": "string"}, "timeout": {"type": "number"}}, "required": ["command"]}`)
	piEdit    = tool("edit", `{"properties": {"path": {"type": "string"}, "edits": {"type": "array"}}, "required": ["path", "edits"]}`)
	claudeRun = tool("Bash", `{"properties": {"command": {"type": "string"}, "description": {"type": "string"}}, "required": ["command"]}`)
	codexRun  = tool("exec_command", `{"properties": {"cmd": {"type": "string"}, "login": {"type": "boolean"}}, "required": ["cmd"]}`)
	codexSub  = tool("multi_agent_v1__spawn_agent", `{"properties": {"message": {"type": "string"}, "items": {"type": "array"}}}`)
	qwenEdit  = tool("edit", `{"properties": {"file_path": {}, "old_string": {}, "new_string": {}, "replace_all": {}}, "required": ["file_path", "old_string", "new_string"]}`)
	qwenSub   = tool("agent", `{"properties": {"description": {}, "prompt": {}, "subagent_type": {}, "run_in_background": {}}, "required": ["description", "prompt"]}`)
)

func TestArgumentsFollowTheSchema(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tool enginetest.Tool
		role string
		want string
	}{
		{piBash, "shell", `{"command": "x"}`},
		{claudeRun, "shell", `{"command": "x"}`},
		{codexRun, "shell", `{"cmd": "x"}`},
		{codexSub, "spawn", `{"message": "x"}`},
		{qwenSub, "spawn", `{"description": "one step", "prompt": "x", "subagent_type": "general-purpose"}`},
		{piEdit, "edit", `{"edits": [{"oldText": ` + spaced(wrongLine) + `, "newText": ` + spaced(rightLine) + `}], "path": "x"}`},
		{qwenEdit, "edit", `{"file_path": "x", "new_string": ` + spaced(rightLine) + `, "old_string": ` + spaced(wrongLine) + `}`},
	} {
		c := &conversation{&enginetest.Seen{Tools: []enginetest.Tool{test.tool}}}
		require.Equal(t, enginetest.Call{Name: test.tool.Name, Arguments: test.want}, c.call(test.role, "x"))
	}
}

// The agent finds its way by what it is shown, with nothing but a shell.
func TestAgentSolvesTheTask(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "work")
	require.NoError(t, makeTask(t.Context(), dir))
	require.False(t, solved(t.Context(), dir))
	a := &agent{dir: dir}
	seen := &enginetest.Seen{Tools: []enginetest.Tool{piBash}, Messages: []enginetest.Message{{Role: "user", Content: prompt}}}
	for turn := a.turn(seen); len(turn.Calls) > 0; turn = a.turn(seen) {
		seen.Messages = append(seen.Messages, enginetest.Message{Role: "assistant", Content: turn.Text, Calls: turn.Calls})
		for _, call := range turn.Calls {
			var arguments struct{ Command string }
			require.NoError(t, json.Unmarshal([]byte(call.Arguments), &arguments))
			cmd := exec.CommandContext(t.Context(), "sh", "-c", arguments.Command)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s", arguments.Command, out)
			seen.Messages = append(seen.Messages, enginetest.Message{Role: "tool", Content: string(out)})
		}
		require.Less(t, len(seen.Messages), 20)
	}
	require.True(t, solved(t.Context(), dir))
}

// A compaction is told by its demand, and what is known goes into the summary.
func TestAgentSummarises(t *testing.T) {
	t.Parallel()
	a := &agent{}
	seen := &enginetest.Seen{Tools: []enginetest.Tool{claudeRun}, Messages: []enginetest.Message{
		{Role: "user", Content: prompt}, {Role: "tool", Content: failedMark},
		{Role: "user", Content: "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."},
	}}
	turn := a.turn(seen)
	require.Contains(t, turn.Text, failedMark)
	require.Empty(t, turn.Calls)
	require.EqualValues(t, 1, a.summaries.Load())
}
