package gateway

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/settings"
	"icecore/trace"
)

type object = map[string]any

func get(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			o, ok := v.(object)
			require.True(t, ok, "%v in %v", p, v)
			v = o[p]
		case int:
			a, ok := v.([]any)
			require.True(t, ok && len(a) > p, "%v in %v", p, v)
			v = a[p]
		}
	}
	return v
}

// loops are the smallest agents of each API: they send what came back as it came, and
// the result of each call. done: the model called nothing.
var loops = map[string]struct {
	path   string
	body   func(history []any) object
	user   any
	follow func(t *testing.T, answer object) (add []any, done bool)
}{
	apiChat: {"r/v1/chat/completions", func(history []any) object {
		return object{"messages": history, "tools": []any{object{"type": "function", "function": bashTool("parameters")}}}
	}, object{"role": "user", "content": "fix the thing"}, func(t *testing.T, a object) (add []any, done bool) {
		m := get(t, a, "choices", 0, "message").(object)
		add = append(add, m)
		calls, _ := m["tool_calls"].([]any)
		for _, c := range calls {
			add = append(add, object{"role": "tool", "tool_call_id": get(t, c, "id"), "content": "some output"})
		}
		return add, len(calls) == 0
	}},
	apiResponses: {"r/v1/responses", func(history []any) object {
		tool := bashTool("parameters")
		tool["type"] = "function"
		return object{"input": history, "tools": []any{tool}, "store": false, "include": []string{"reasoning.encrypted_content"}}
	}, object{"role": "user", "content": "fix the thing"}, func(t *testing.T, a object) (add []any, done bool) {
		done = true
		add = append(add, get(t, a, "output").([]any)...)
		for _, item := range add {
			if get(t, item, "type") == "function_call" {
				done = false
				add = append(add, object{"type": "function_call_output", "call_id": get(t, item, "call_id"), "output": "some output"})
			}
		}
		return add, done
	}},
	apiMessages: {"r/v1/messages", func(history []any) object {
		return object{"messages": history, "max_tokens": 500, "tools": []any{bashTool("input_schema")}}
	}, object{"role": "user", "content": "fix the thing"}, func(t *testing.T, a object) (add []any, done bool) {
		content := get(t, a, "content").([]any)
		var results []any
		for _, block := range content {
			if get(t, block, "type") == "tool_use" {
				results = append(results, object{"type": "tool_result", "tool_use_id": get(t, block, "id"), "content": "some output"})
			}
		}
		add = append(add, object{"role": "assistant", "content": content})
		if results == nil {
			return add, true
		}
		return append(add, object{"role": "user", "content": results}), false
	}},
	apiGenerate: {"r/v1beta/models/policy:generateContent", func(history []any) object {
		return object{"contents": history, "tools": []any{object{"functionDeclarations": []any{bashTool("parametersJsonSchema")}}}}
	}, object{"role": "user", "parts": []any{object{"text": "fix the thing"}}}, func(t *testing.T, a object) (add []any, done bool) {
		content := get(t, a, "candidates", 0, "content").(object)
		var results []any
		for _, part := range get(t, content, "parts").([]any) {
			if call, ok := part.(object)["functionCall"].(object); ok {
				results = append(results, object{"functionResponse": object{"name": call["name"], "id": call["id"], "response": object{"output": "some output"}}})
			}
		}
		add = append(add, content)
		if results == nil {
			return add, true
		}
		return append(add, object{"role": "user", "parts": results}), false
	}},
}

func bashTool(schema string) object {
	return object{"name": "bash", "description": "Run a command.", schema: object{"type": "object", "properties": object{"command": object{"type": "string"}}, "required": []string{"command"}}}
}

// runAgent lets the loop of an API work with the coder until it calls nothing more.
func runAgent(t *testing.T, r *rig, api string) []*trace.Trace {
	t.Helper()
	loop := loops[api]
	history := []any{loop.user}
	for n := 1; ; n++ {
		body := loop.body(history)
		body["model"] = "policy"
		raw, err := json.Marshal(body)
		require.NoError(t, err)
		status, text, broke := r.post(loop.path, string(raw))
		require.NoError(t, broke)
		require.Equal(t, http.StatusOK, status, text)
		var answer object
		require.NoError(t, json.Unmarshal([]byte(text), &answer))
		add, done := loop.follow(t, answer)
		history = append(history, add...)
		if done || n == 10 {
			require.True(t, done, "the coder does not end")
			return r.store.wait(t, n)
		}
	}
}

// An agent of each API, with thinking and tools: with continuity and a template that
// keeps what was said, prompts extend what was sampled, though sampling drifts.
func TestAgents(t *testing.T) {
	t.Parallel()
	for api := range loops {
		for _, face := range []string{"vllm", "sglang-sglext"} {
			for _, think := range []string{"", "Let me think this through."} {
				t.Run(api+" "+face+" "+think, func(t *testing.T) {
					t.Parallel()
					s := enginetest.Script{Think: think}
					s.Sampling.Drift, s.Server.TokenizeMessages = true, true
					r := newRig(t, face, s, func(o *Options, _ *fixed, _ *memory) {
						m := settings.DefaultModel("policy")
						m.Continuity, m.ReasoningParser, m.ToolParser = settings.ContinuityExactText, "think", "hermes"
						o.Settings.Models = []*settings.Model{m}
					})
					first := runAgent(t, r, api)
					require.Greater(t, len(first), 2)
					runAgent(t, r, api) // the renderings are proven now
					for i, one := range r.store.all()[len(first)+1:] {
						c, _ := meta(t, one)["continuity"].(object)
						require.Equal(t, "extends", c["label"], "call %d: %v", i+2, c)
						require.Equal(t, true, c["spliced"], "call %d: %v", i+2, c)
					}
				})
			}
		}
	}
}
