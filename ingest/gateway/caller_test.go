package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

func TestRolloutOfACall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, path string
		headers    []string
		want       string
		status     int
	}{
		{"path", "r-1", nil, "r-1", 200},
		{"path wins over a header", "r-1", []string{"Icecore-Rollout-Id", "r-2"}, "r-1", 200},
		{"path with another's key", "r-1", []string{"Authorization", "Bearer sk-other"}, "r-1", 200},
		{"path with its key", "r-1", []string{"X-Api-Key", "ick_one"}, "r-1", 200},
		{"path with the key of another rollout", "r-2", []string{"X-Api-Key", "ick_one"}, "", 403},
		{"a key that is not known", "r-1", []string{"Authorization", "Bearer ick_gone"}, "", 401},
		{"bearer key", "-", []string{"Authorization", "bearer ick_one"}, "r-1", 200},
		{"google's key", "-", []string{"X-Goog-Api-Key", "ick_one"}, "r-1", 200},
		{"own header", "-", []string{"Icecore-Rollout-Id", "r-3", "X-Claude-Code-Session-Id", "s"}, "r-3", 200},
		{"claude", "-", []string{"X-Claude-Code-Session-Id", "s-1"}, "s-1", 200},
		{"codex", "-", []string{"X-Codex-Turn-Metadata", `{"session_id":"c-1"}`}, "c-1", 200},
		{"codex, session only", "-", []string{"Session-Id", "c-2"}, "c-2", 200},
		{"opencode", "-", []string{"X-Session-Id", "o-1"}, "o-1", 200},
		{"nothing", "-", nil, "", 400},
		{"too long", strings.Repeat("x", 129), nil, "", 400},
		{"escaped slash", "a%2Fb", nil, "a/b", 200},
		{"not printable", "a%00b", nil, "", 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, func(_ *Options, f *fixed, _ *memory) { f.keys["ick_one"] = "r-1" })
			status, text, _ := r.post(c.path+"/v1/chat/completions", hello+`}`, c.headers...)
			require.Equal(t, c.status, status, text)
			if c.want != "" {
				require.Equal(t, c.want, r.store.wait(t, 1)[0].RolloutID)
			} else {
				require.Empty(t, r.store.intents)
				require.Contains(t, text, `"message"`)
			}
		})
	}
}

func TestQueryKey(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, func(_ *Options, f *fixed, _ *memory) { f.keys["ick_one"] = "r-1" })
	status, text, _ := r.post("-/v1beta/models/policy:generateContent?key=ick_one", bodies[3].whole)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, "r-1", r.store.wait(t, 1)[0].RolloutID)
}

func TestWhoMayCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		callers, finished, rollout, key string
		want                            int
	}{
		{settings.CallersAny, settings.FinishedAccept, "new", "", 200},
		{settings.CallersDeclared, settings.FinishedAccept, "new", "", 403},
		{settings.CallersDeclared, settings.FinishedAccept, "known", "", 200},
		{settings.CallersKey, settings.FinishedAccept, "known", "", 401},
		{settings.CallersKey, settings.FinishedAccept, "known", "sk-own", 401},
		{settings.CallersKey, settings.FinishedAccept, "known", "ick_known", 200},
		{settings.CallersAny, settings.FinishedAccept, "over", "", 200},
		{settings.CallersAny, settings.FinishedRefuse, "over", "", 409},
		{settings.CallersAny, settings.FinishedRefuse, "known", "", 200},
	} {
		r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, func(o *Options, f *fixed, _ *memory) {
			o.Settings.Callers, o.Settings.Finished = c.callers, c.finished
			f.known["known"], f.known["over"] = "", ""
			f.finished["over"] = true
			f.keys["ick_known"] = "known"
		})
		for _, b := range bodies {
			path := strings.Replace(paths(b.api, b.path, false), "r/", c.rollout+"/", 1)
			status, text, _ := r.post(path, b.whole, "Authorization", "Bearer "+c.key)
			require.Equal(t, c.want, status, "%+v %s", c, text)
		}
	}
}

func headerOf(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func TestAgentOf(t *testing.T) {
	t.Parallel()
	system := func(text string, tools ...string) *turn.Request {
		r := &turn.Request{Messages: []turn.Message{{Role: turn.RoleSystem, Content: turn.TextOf(text)}, {Role: turn.RoleUser, Content: turn.TextOf("go")}}}
		for _, name := range tools {
			r.Tools = append(r.Tools, turn.Tool{Name: name})
		}
		return r
	}
	of := func(r *turn.Request, pairs ...string) agent {
		a, err := agentOf(headerOf(pairs...), r)
		require.NoError(t, err)
		return a
	}
	claude := of(system("x"), "X-Claude-Code-Session-Id", "s")
	require.Equal(t, "s", claude.session)
	require.Equal(t, "s", claude.thread)
	sub := of(system("x"), "X-Claude-Code-Session-Id", "s", "X-Claude-Code-Agent-Id", "a", "X-Claude-Code-Parent-Agent-Id", "p")
	require.Equal(t, []string{"s", "a", "p"}, []string{sub.session, sub.thread, sub.parent})

	codex := of(system("x"), "X-Codex-Turn-Metadata", `{"session_id":"s","thread_id":"t","parent_thread_id":"p","request_kind":"turn"}`, "X-Openai-Subagent", "collab_spawn")
	require.Equal(t, []string{"s", "t", "p"}, []string{codex.session, codex.thread, codex.parent})
	require.Equal(t, trace.KindAgent, codex.kind)
	compact := of(system("x"), "X-Codex-Turn-Metadata", `{"session_id":"s","request_kind":"compaction"}`)
	require.Equal(t, trace.KindAuxiliary, compact.kind)
	require.Equal(t, trace.KindAuxiliary, of(system("x"), "X-Openai-Subagent", "memory_consolidation").kind)

	// Nothing is told: agents part by system prompt and tools, and by nothing else.
	main, again := of(system("main", "bash")), of(system("main", "bash"))
	require.Equal(t, main.thread, again.thread)
	require.NotEqual(t, main.thread, of(system("helper", "bash")).thread)
	require.NotEqual(t, main.thread, of(system("main")).thread)
	line := "x-anthropic-billing-header: cc_version=1; cch="
	require.Equal(t, of(system(line+"a\nmain")).thread, of(system(line+"b\nmain")).thread)

	own := of(system("x"), "Icecore-Thread", "mine", "Icecore-Kind", "auxiliary", "Icecore-Policy-Version", "7", "Icecore-Harness", "bench/3", "X-Claude-Code-Agent-Id", "a", "X-Stainless-Retry-Count", "2")
	require.Equal(t, "mine", own.thread)
	require.Equal(t, trace.KindAuxiliary, own.kind)
	require.Equal(t, int64(7), *own.policyVersion)
	require.Equal(t, []string{"bench", "3"}, []string{own.harness, own.version})
	require.Equal(t, 2, own.retry)
	require.Equal(t, trace.KindAuxiliary, of(&turn.Request{Kind: trace.KindAuxiliary}).kind)

	for _, wrong := range [][]string{{"Icecore-Kind", "other"}, {"Icecore-Policy-Version", "-1"}, {"Icecore-Policy-Version", "seven"}} {
		_, err := agentOf(headerOf(wrong...), system("x"))
		require.ErrorContains(t, err, wrong[0])
	}
}

func TestHarnessOf(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]string{
		"claude-cli/2.1.197 (external, cli)":                     "claude-code 2.1.197",
		"codex_exec/0.171.0 (Debian 12; x86_64) unknown":         "codex 0.171.0",
		"codex_cli_rs/0.101.0":                                   "codex 0.101.0",
		"QwenCode/0.15.10 (linux; x64)":                          "qwen-code 0.15.10",
		"GeminiCLI/0.61.0/gemini-2.5-pro (linux; x64; terminal)": "gemini-cli 0.61.0",
		"GeminiCLI-tui/0.61.0":                                   "gemini-cli 0.61.0",
		"opencode/1.2.3":                                         "opencode 1.2.3",
		"OpenAI/JS 5.10.1":                                       " ",
		"OpenAI/Python 1.0":                                      " ",
		"Anthropic/Python 0.50":                                  " ",
		"curl/8.5.0":                                             " ",
		"":                                                       " ",
	} {
		name, version := harnessOf(headerOf("User-Agent", agent))
		require.Equal(t, want, name+" "+version, agent)
	}
}

// The harness of a rollout that has none comes from the user agent.
func TestHarnessOfTrace(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, func(_ *Options, f *fixed, _ *memory) {
		f.known["named"], f.known["same"] = "mine", "claude-code"
	})
	for _, rollout := range []string{"named", "bare", "same"} {
		status, _, _ := r.post(rollout+"/v1/messages", hello+`,"max_tokens":9}`, "User-Agent", "claude-cli/2.1.197")
		require.Equal(t, http.StatusOK, status)
	}
	got := r.store.wait(t, 3)
	require.Empty(t, got[0].Attributes.Harness+got[0].Attributes.HarnessVersion)
	for _, one := range got[1:] {
		require.Equal(t, "claude-code", one.Attributes.Harness)
		require.Equal(t, "2.1.197", one.Attributes.HarnessVersion)
	}
	require.Equal(t, "policy", got[1].Attributes.Model)
}

// What headers of our own say is in the trace.
func TestOwnHeaders(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}})
	status, _, _ := r.post("r/v1/chat/completions", hello+`}`, "Icecore-Kind", "auxiliary", "Icecore-Policy-Version", "41", "Icecore-Thread", "planner", "Icecore-Parent-Thread", "root")
	require.Equal(t, http.StatusOK, status)
	got := r.store.wait(t, 1)[0]
	require.Equal(t, trace.KindAuxiliary, got.Kind)
	require.Equal(t, int64(41), *got.PolicyVersion)
	require.Equal(t, "planner", meta(t, got)["agent_thread"])
	require.Equal(t, "root", meta(t, got)["parent_thread"])
	status, text, _ := r.post("r/v1/chat/completions", hello+`}`, "Icecore-Kind", "other")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "Icecore-Kind")
}
