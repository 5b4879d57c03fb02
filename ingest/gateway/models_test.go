package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/settings"
)

func (r *rig) get(path string, headers ...string) (int, map[string]any) {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+"/gateway/"+path, nil)
	require.NoError(r.t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	a, err := r.client.Do(q)
	require.NoError(r.t, err)
	raw, err := io.ReadAll(a.Body)
	require.NoError(r.t, err)
	require.NoError(r.t, a.Body.Close())
	var out map[string]any
	require.NoError(r.t, json.Unmarshal(raw, &out), "%s", raw)
	return a.StatusCode, out
}

func withAlias(o *Options, _ *fixed, _ *memory) {
	m := settings.DefaultModel("policy")
	m.Aliases = []string{"gpt-5", "claude-*"}
	o.Settings.Models = []*settings.Model{m}
}

func TestModels(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{}, withAlias)
	names := func(list any, member string) (out []any) {
		for _, m := range list.([]any) {
			out = append(out, m.(map[string]any)[member])
		}
		return out
	}
	_, openai := r.get("r/v1/models")
	require.Equal(t, []any{"policy", "gpt-5"}, names(openai["data"], "id"))
	_, anthropic := r.get("r/v1/models", "Anthropic-Version", "2023-06-01")
	require.Equal(t, []any{"policy", "gpt-5"}, names(anthropic["data"], "id"))
	require.Equal(t, false, anthropic["has_more"])
	_, google := r.get("r/v1beta/models")
	require.Equal(t, []any{"models/policy", "models/gpt-5"}, names(google["models"], "name"))
	status, one := r.get("r/v1/models/claude-opus", "Anthropic-Version", "2023-06-01")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "model", one["type"])
}

// A harness asks for its vendor's model and gets the policy; the answer has the name
// that it knows, the trace both.
func TestAlias(t *testing.T) {
	t.Parallel()
	r := newRig(t, "vllm", says("as you wish"), withAlias)
	_, text, _ := r.post("r/v1/messages", `{"model":"claude-opus-4-5","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`)
	require.Contains(t, text, `"model":"claude-opus-4-5"`)
	got := r.store.wait(t, 1)[0]
	require.Equal(t, "policy", got.Attributes.Model)
	require.Equal(t, "claude-opus-4-5", meta(t, got)["requested_model"])
}

func TestUnknownModel(t *testing.T) {
	t.Parallel()
	r := newRig(t, "vllm", says("x"), func(o *Options, _ *fixed, _ *memory) {
		o.Settings.DefaultModel = ""
		o.Settings.Models = []*settings.Model{settings.DefaultModel("policy"), settings.DefaultModel("other")}
	})
	for _, b := range bodies[:3] {
		body := `{"model":"gpt-9","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"input":"hi"}`
		status, text, _ := r.post(b.path, body)
		require.Equal(t, http.StatusNotFound, status, text)
	}
	require.Empty(t, r.store.intents)
}

// Tokens are counted by the engine's own template; where it has none to ask that is
// said. Nothing is sampled or stored.
func TestCountTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t, "vllm", says("counted"))
	status, text, _ := r.post("r/v1/messages/count_tokens", hello+`}`)
	require.Equal(t, http.StatusOK, status, text)
	_, _, _ = r.post("r/v1/messages", hello+`,"max_tokens":9}`)
	got := r.store.wait(t, 1)[0]
	var count struct {
		InputTokens int `json:"input_tokens"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &count))
	require.Equal(t, got.PromptIDs.Len(), count.InputTokens)
	status, text, _ = r.post("r/v1beta/models/policy:countTokens", bodies[3].whole)
	require.Equal(t, http.StatusOK, status, text)
	require.Contains(t, text, "totalTokens")
	require.Len(t, r.store.intents, 1)

	bare := newRig(t, "plain", enginetest.Script{Server: enginetest.Server{NoTokenize: true}})
	status, text, _ = bare.post("r/v1/messages/count_tokens", hello+`}`)
	require.Equal(t, http.StatusNotImplemented, status, text)
	require.Contains(t, text, `"error"`)
}

// A list of models needs no rollout; where only keys open the gateway it needs one.
func TestModelsNeedNoRollout(t *testing.T) {
	t.Parallel()
	open := newFakeRig(t, &fakeEngine{})
	status, _ := open.get("-/v1/models")
	require.Equal(t, http.StatusOK, status)
	closed := newFakeRig(t, &fakeEngine{}, func(o *Options, f *fixed, _ *memory) {
		o.Settings.Callers = settings.CallersKey
		f.keys["ick_1"] = "r"
	})
	status, _ = closed.get("-/v1/models")
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = closed.get("-/v1/models", "Authorization", "Bearer ick_1")
	require.Equal(t, http.StatusOK, status)
}
