package enginetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// converse plays a harness that sends back what it was told until no call comes, and
// counts how many prompts extend the sequence before.
func converse(t *testing.T, s Script) (calls, extends int) {
	s.Chunks.Sizes = []int{40}
	e, url := server(t, Options{Default: s})
	history := []any{user("fix the sum")}
	for {
		r := ask(t, url+"/vllm/v1/chat/completions", hello.with(members{"messages": history, "tools": []any{bashTool}, "stream": true}))
		require.Equal(t, 200, r.status, r.raw)
		h := r.choices[0]
		if len(h.calls) == 0 {
			break
		}
		toolCalls := []any{}
		for i, c := range h.calls {
			toolCalls = append(toolCalls, members{"id": h.callIDs[i], "type": "function", "function": c})
		}
		history = append(history, members{"role": "assistant", "content": h.text, "reasoning": h.reasoning, "tool_calls": toolCalls},
			members{"role": "tool", "tool_call_id": h.callIDs[0], "content": "done"})
	}
	entries := e.Calls()
	for i := 1; i < len(entries); i++ {
		before := slices.Concat(entries[i-1].PromptIDs, entries[i-1].Choices[0].IDs)
		if now := entries[i].PromptIDs; len(now) > len(before) && slices.Equal(now[:len(before)], before) {
			extends++
		}
	}
	return len(entries), extends
}

func TestConversations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script Script
		all    bool
	}{
		"canonical":    {Script{}, true},
		"thinking":     {Script{Think: "What now?"}, true},
		"drifting":     {Script{Sampling: Sampling{Drift: true}}, false},
		"no end token": {Script{Sampling: Sampling{End: "none"}}, true}, // the template supplies it
		"second end":   {Script{Sampling: Sampling{End: "second"}}, false},
		"sorted":       {Script{Template: Template{SortKeys: true}}, true},                         // they were
		"dropped":      {Script{Think: "What now?", Template: Template{DropThinking: true}}, true}, // one question only
		"spelled":      {Script{Agent: spelled}, false},
	} {
		calls, extends := converse(t, c.script)
		require.Equal(t, c.all, extends == calls-1, "%s: %d calls, %d extend", name, calls, extends)
		require.GreaterOrEqual(t, calls, 2, name)
		if name == "canonical" {
			require.Equal(t, len(defaultCommands)+1, calls)
		}
	}
}

// spelled calls once, with marks that are no special tokens.
func spelled(s *Seen) Turn {
	if s.Assistant > 0 {
		return Turn{Text: "done"}
	}
	return Turn{Raw: callText(Call{"bash", `{"command": "ls"}`}), Spelled: true}
}
