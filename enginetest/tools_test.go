package enginetest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// get fetches JSON.
func get(t testing.TB, url string) (status int, body map[string]any) {
	r, err := http.Get(url) //nolint:gosec // of this test
	require.NoError(t, err)
	defer r.Body.Close() //nolint:errcheck // it was only read
	raw, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	_ = json.Unmarshal(raw, &body)
	return r.StatusCode, body
}

func tokens(t testing.TB, r *reply) []int32 {
	var b struct {
		Tokens []int32 `json:"tokens"`
		Count  int     `json:"count"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.raw), &b), r.raw)
	require.Len(t, b.Tokens, b.Count)
	return b.Tokens
}

func TestTokenize(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{})
	ask(t, url+"/vllm/v1/chat/completions", task.with(members{"model": DefaultModel}))
	prompt := only(t, e).PromptIDs
	require.Equal(t, prompt, tokens(t, ask(t, url+"/vllm/tokenize", task.with(members{"model": DefaultModel}))))
	require.Equal(t, Encode("the <think>"), tokens(t, ask(t, url+"/vllm/tokenize", members{"model": DefaultModel, "prompt": "the <think>"})))
	require.Equal(t, prompt, tokens(t, ask(t, url+"/sglang-30917/tokenize", members{"prompt": Decode(prompt)})))
	require.Equal(t, 400, ask(t, url+"/sglang-30917/tokenize", task.with(members{"model": DefaultModel})).status, "text only")

	body, err := json.Marshal(members{"prompt": Decode(prompt)})
	require.NoError(t, err)
	require.JSONEq(t, string(body), ask(t, url+"/vllm/detokenize", members{"tokens": prompt}).raw)
	require.JSONEq(t, `{"text": "a<think>"}`, ask(t, url+"/sglang-30917/detokenize", members{"tokens": []int32{'a', ImEnd, ThinkStart}}).raw)
	require.JSONEq(t, `{"text": "a<|im_end|>"}`, ask(t, url+"/sglang-30917/detokenize", members{"tokens": []int32{'a', ImEnd}, "skip_special_tokens": false}).raw)
	require.Equal(t, 400, ask(t, url+"/vllm/detokenize", members{"tokens": []int32{100000}}).status)

	e.Script(DefaultModel, Script{Server: Server{NoTokenize: true}})
	require.Equal(t, 404, ask(t, url+"/vllm/tokenize", members{"prompt": "x"}).status)
	e.Script(DefaultModel, Script{Server: Server{TokenizeMessages: true}})
	require.Equal(t, prompt, tokens(t, ask(t, url+"/sglang-30917/tokenize", task.with(members{"model": DefaultModel}))))
}

func TestInformation(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{})
	e.Script("other", Script{Server: Server{MaxLen: 500}})
	_, models := get(t, url+"/vllm/v1/models")
	data := models["data"].([]any)
	require.Len(t, data, 2)
	require.Equal(t, "other", data[1].(map[string]any)["id"])
	require.Equal(t, 500.0, data[1].(map[string]any)["max_model_len"])
	status, _ := get(t, url+"/sglang-30917/health")
	require.Equal(t, 200, status)
	e.Healthy(false)
	status, _ = get(t, url+"/vllm/health")
	require.Equal(t, 503, status)
	status, _ = get(t, url+"/nonsense/v1/models")
	require.Equal(t, 404, status)
}

func TestKey(t *testing.T) {
	t.Parallel()
	_, url := server(t, Options{Key: "k"})
	require.Equal(t, 401, ask(t, url+"/vllm/v1/chat/completions", hello).status)
	require.Equal(t, 200, ask(t, url+"/vllm/v1/chat/completions", hello, "Authorization", "Bearer k").status)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{})
	e.Script("short", Script{Server: Server{MaxLen: 40, NoToolParser: true}})
	for want, body := range map[string]any{
		"does not exist":         hello.with(members{"model": "none"}),
		"maximum context length": hello.with(members{"model": "short", "max_tokens": 40}),
		"auto":                   hello.with(members{"model": "short", "tools": []any{bashTool}}),
		"at least one":           hello.with(members{"messages": []any{}}),
		"messages[0]":            hello.with(members{"messages": []any{members{"content": "x"}}}),
		"tools[0].function.name": hello.with(members{"tools": []any{members{"type": "function"}}}),
		"max_tokens":             hello.with(members{"max_tokens": 0}),
		"read body":              "text",
	} {
		r := ask(t, url+"/vllm/v1/chat/completions", body)
		require.GreaterOrEqual(t, r.status, 400)
		require.Contains(t, r.raw, want)
		require.NotEmpty(t, r.chunks[0].Error)
	}
	for _, c := range e.Ledger() {
		require.Equal(t, "refused", c.Ended)
	}
}

func TestCoderUsesShells(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ parameters, want string }{
		"bash":                       {`{"properties": {"command": {"type": "string"}}, "required": ["command"]}`, `{"command": "pwd"}`},
		"shell":                      {`{"properties": {"command": {"type": "array"}, "timeout_ms": {"type": "number"}}, "required": ["command"]}`, `{"command": ["bash", "-lc", "pwd"]}`},
		"ns.exec_command":            {`{"properties": {"cmd": {"type": "string"}}}`, `{"cmd": "pwd"}`},
		"run_shell_command":          {`{"properties": {"command": {"type": "string"}, "is_background": {"type": "boolean"}}, "required": ["command", "is_background"]}`, `{"command": "pwd", "is_background": false}`},
		"run_terminal_cmd":           {`{"properties": {"command": {}, "why": {"type": "string"}, "how": {"enum": ["a"]}}, "required": ["why", "how"]}`, `{"command": "pwd", "why": "run a command", "how": "a"}`},
		"mcp__machine__execute_bash": {`{"properties": {"o": {"type": "object", "properties": {"n": {"type": ["integer", "null"], "minimum": 3}}, "required": ["n"]}}, "required": ["o"]}`, `{"o": {"n": 3}}`},
	} {
		s := &Script{}
		seen := &Seen{Tools: []Tool{{Name: "read", Parameters: json.RawMessage(`{}`)}, {Name: name, Parameters: json.RawMessage(c.parameters)}}}
		turn := s.turn(seen)
		require.Equal(t, []Call{{name, c.want}}, turn.Calls)
		for range len(defaultCommands) {
			seen.Messages = append(seen.Messages, Message{Role: "assistant", Calls: turn.Calls}, Message{Role: "tool"})
		}
		require.Equal(t, defaultAnswer, s.turn(seen).Text)
		seen.ToolChoice = "required"
		require.NotEmpty(t, s.turn(seen).Calls)
		seen.ToolChoice = "none"
		seen.Messages = nil
		require.Empty(t, s.turn(seen).Calls)
	}
	require.Equal(t, "x", (&Script{Builtin: "echo"}).turn(&Seen{Messages: []Message{{Content: "x"}}}).Text)
	require.Equal(t, `{"title": "run a command"}`, (&Script{}).turn(&Seen{Format: json.RawMessage(`{"properties": {"title": {"type": "string"}}, "required": ["title"]}`)}).Text)
	require.True(t, strings.HasPrefix((&Script{}).turn(&Seen{}).Text, "I looked"))
}
