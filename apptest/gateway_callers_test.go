package apptest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// says is a script of one answer.
func says(text string) enginetest.Script {
	return enginetest.Script{Turns: []enginetest.Turn{{Text: text}}}
}

// TestRolloutOfACall: path, key and headers name the rollout, in this order; whoever
// names none is told how.
func TestRolloutOfACall(t *testing.T) {
	t.Parallel()
	r := plainRig(t, says("yes"))
	var k gatewayKey
	r.post(path("rollouts", "by-key", "keys"), object{}).is(201).into(&k)
	messages, generate := apis[2], apis[3]
	for _, c := range []struct {
		path    string
		a       api
		headers []string
		rollout string
	}{
		{"in-path/chat/completions", apis[0], []string{"Icecore-Rollout-Id", "in-header"}, "in-path"},
		{"-/chat/completions", apis[0], []string{"Icecore-Rollout-Id", "in-header", "Session-Id", "other"}, "in-header"},
		{"-/v1/responses", apis[1], []string{"Session-Id", "codex-session"}, "codex-session"},
		{"-/v1/responses", apis[1], []string{"X-Codex-Turn-Metadata", `{"session_id": "turn-session", "thread_id": "t-2"}`}, "turn-session"},
		{"-/v1/messages", messages, []string{"X-Claude-Code-Session-Id", "claude-session"}, "claude-session"},
		{"-/v1/messages", messages, []string{"X-Api-Key", k.Key}, "by-key"},
		{"by-key/v1/messages", messages, []string{"Authorization", "Bearer " + k.Key}, "by-key"},
		{"-/v1beta/models/g:generateContent", generate, []string{"X-Goog-Api-Key", k.Key}, "by-key"},
		{"-/v1beta/models/g:generateContent?key=" + k.Key, generate, nil, "by-key"},
		{"-/chat/completions", apis[0], []string{"X-Session-Id", "open-code"}, "open-code"},
		{"ünï%20code/chat/completions", apis[0], nil, "ünï code"},
	} {
		a := r.askGateway(c.path, encode(c.a.turn(nil, false)), c.headers...).is(200)
		require.Equal(t, c.rollout, r.full(a.header.Get("Icecore-Trace-Id")).RolloutID, "%s %v", c.path, c.headers)
	}
	a := r.askGateway("-/v1/messages", encode(messages.turn(nil, false))).is(400)
	require.Equal(t, "invalid_request_error", parse(t, string(a.body))["error"].(object)["type"])
	for _, way := range []string{"/gateway/{rollout_id}/", "key", "Icecore-Rollout-Id"} {
		require.Contains(t, string(a.body), way)
	}
}

// TestWhoCalls: what a harness tells of its sub-agents, kinds and retries is kept.
func TestWhoCalls(t *testing.T) {
	t.Parallel()
	r := plainRig(t, says("yes"))
	ask := func(a api, headers ...string) fullCall {
		t.Helper()
		got := r.askGateway("who/"+a.path(false), encode(a.turn(nil, false)), headers...).is(200)
		return r.full(got.header.Get("Icecore-Trace-Id"))
	}
	c := ask(apis[1], "User-Agent", "codex_exec/0.171.0", "X-Codex-Turn-Metadata", `{"session_id":"s","thread_id":"t","parent_thread_id":"p","request_kind":"turn"}`)
	require.Equal(t, []string{"agent", "s", "t", "p"}, []string{c.Kind, c.Metadata.Gateway.Session, c.Metadata.Gateway.Thread, c.Metadata.Gateway.Parent})
	require.Equal(t, "auxiliary", ask(apis[1], "X-Codex-Turn-Metadata", `{"session_id":"s","thread_id":"t","request_kind":"compaction"}`).Kind)
	c = ask(apis[2], "X-Claude-Code-Session-Id", "s", "X-Claude-Code-Agent-Id", "a", "X-Claude-Code-Parent-Agent-Id", "b")
	require.Equal(t, []string{"agent", "s", "a", "b"}, []string{c.Kind, c.Metadata.Gateway.Session, c.Metadata.Gateway.Thread, c.Metadata.Gateway.Parent})
	before := ask(apis[0])
	require.Empty(t, before.Metadata.Gateway.RetryOf)
	// The same again is another sample, unless it says that it is a retry.
	same := ask(apis[0])
	require.Empty(t, same.Metadata.Gateway.RetryOf)
	c = ask(apis[0], "X-Stainless-Retry-Count", "1")
	require.Equal(t, same.TraceID, c.Metadata.Gateway.RetryOf)
	require.Equal(t, 2, c.Metadata.Gateway.Attempt)
	c = ask(apis[0], "Icecore-Kind", "auxiliary", "Icecore-Policy-Version", "12", "Icecore-Thread", "mine")
	require.Equal(t, []any{"auxiliary", int64(12), "mine"}, []any{c.Kind, *c.PolicyVersion, c.Metadata.Gateway.Thread})
	ro, _ := r.rollout("who")
	require.Equal(t, "codex", *ro.Harness)
	require.Equal(t, "0.171.0", *ro.HarnessVersion)
}

// TestCallersRefused: settings that let few in turn the others away, in each API's shape.
func TestCallersRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, "engines: [{url: ENGINE/vllm}]\nmodels: {policy: {}}\ncallers: declared\nfinished: refuse\n", scripts{"policy": says("yes")})
	// What each API's error has beside its message.
	members := map[string]string{"openai.chat": "code", "openai.responses": "code", "anthropic.messages": "type", "google.generate": "status"}
	for _, a := range apis {
		refused := func(status int, why string) {
			t.Helper()
			for _, stream := range []bool{false, true} {
				got := r.askGateway("r-"+a.name+"/"+a.path(stream), encode(a.turn(nil, stream))).is(status)
				require.Equal(t, typeJSON, got.header.Get("Content-Type"))
				fault := parse(t, string(got.body))["error"].(object)
				require.Contains(t, fault["message"], why)
				require.NotEmpty(t, fault[members[a.name]])
			}
		}
		refused(403, "not declared")
		r.put(path("rollouts", "r-"+a.name), object{"split": "train"}).is(200)
		r.askGateway("r-"+a.name+"/"+a.path(false), encode(a.turn(nil, false))).is(200)
		r.post(path("rollouts", "r-"+a.name, "finish"), object{"status": "succeeded"}).is(200)
		refused(409, "finished")
		require.Len(t, r.keptCalls("r-"+a.name), 1, "a refusal leaves no trace")
	}
	require.Len(t, r.engine.Calls(), len(apis), "and asks no engine")
}

// TestFinishedIsReopened: by default a late call is taken, and shows.
func TestFinishedIsReopened(t *testing.T) {
	t.Parallel()
	r := plainRig(t, says("yes"))
	ask := func() { r.askGateway("late/chat/completions", encode(apis[0].turn(nil, false))).is(200) }
	ask()
	r.post(path("rollouts", "late", "finish"), object{"status": "succeeded"}).is(200)
	ask()
	ro, _ := r.rollout("late")
	require.True(t, ro.Reopened)
	require.Equal(t, 2, ro.Traces)
}

// TestModelNames: aliases reach their models in the order of the file, the lists of
// models are in each API's shape, and a name without a model is not found.
func TestModelNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, `engines: [{url: ENGINE/vllm}]
models:
  policy: {aliases: ["gpt-5", "claude-*"]}
  judge: {aliases: ["*-judge", "claude-haiku"], max_tokens: 3, sampling: {temperature: 0}}
`, scripts{"policy": says("policy speaks"), "judge": says("judge speaks at length")})
	for name, want := range map[string]string{"policy": "policy", "gpt-5": "policy", "claude-haiku": "policy", "claude-opus": "policy", "x-judge": "judge", "judge": "judge"} {
		a := r.askGateway("names/chat/completions", encode(object{"model": name, "temperature": 1, "max_tokens": 500, "messages": []any{object{"role": "user", "content": "hi"}}})).is(200)
		require.Equal(t, name, parse(t, string(a.body))["model"], "the harness sees the name that it gave")
		c := r.full(a.header.Get("Icecore-Trace-Id"))
		require.Equal(t, want, c.Model)
		require.Equal(t, name, c.Metadata.Gateway.RequestedModel)
		if want == "judge" {
			require.Len(t, c.Response, 3)
			require.Equal(t, "length", *c.FinishReason)
			require.Equal(t, 0, num(c.Sampling["temperature"]))
			require.NotEmpty(t, c.Metadata.Gateway.Rewrites)
		}
	}
	a := r.askGateway("names/v1/messages", encode(object{"model": "gpt-4", "max_tokens": 5, "messages": []any{object{"role": "user", "content": "hi"}}})).is(404)
	require.Equal(t, "not_found_error", parse(t, string(a.body))["error"].(object)["type"])
	list := parse(t, string(r.get("/gateway/names/v1/models").is(200).body))
	require.Equal(t, "list", list["object"])
	var names []string
	for _, m := range list["data"].([]any) {
		names = append(names, str(m.(object)["id"]))
	}
	require.Subset(t, names, []string{"policy", "judge", "gpt-5"})
	list = parse(t, string(r.get("/gateway/names/v1/models", "Anthropic-Version", "2023-06-01").is(200).body))
	require.Equal(t, false, list["has_more"])
	require.Equal(t, "model", list["data"].([]any)[0].(object)["type"])
	list = parse(t, string(r.get("/gateway/names/v1beta/models").is(200).body))
	require.Contains(t, str(list["models"].([]any)[0].(object)["name"]), "models/")
	require.Equal(t, "gpt-5", parse(t, string(r.get("/gateway/names/v1/models/gpt-5").is(200).body))["id"])
	r.get("/gateway/names/v1/models/gpt-4").is(404)
}
