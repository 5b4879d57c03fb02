package apptest

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// engines runs the test engine for one test.
func engines(t *testing.T) (*enginetest.Engine, string) {
	t.Helper()
	e := enginetest.New(enginetest.Options{Seed: 1})
	srv := httptest.NewServer(e)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return e, srv.URL
}

// keptCall is a trace as it is read back.
type keptCall struct {
	TraceID       string     `json:"trace_id"`
	RolloutID     string     `json:"rollout_id"`
	Seq           *int64     `json:"seq"`
	Status        string     `json:"status"`
	FinishReason  *string    `json:"finish_reason"`
	PolicyVersion *int64     `json:"policy_version"`
	Prompt        []int32    `json:"prompt_token_ids"`
	Response      []int32    `json:"response_token_ids"`
	Logprobs      []*float32 `json:"response_logprobs"`
	Model         string     `json:"model"`
	API           string     `json:"api"`
}

func (s *server) keptCalls(rollout string) []keptCall {
	s.t.Helper()
	var page struct {
		Traces []keptCall `json:"traces"`
	}
	s.get(path("rollouts", rollout, "traces")).is(200).into(&page)
	for i := range page.Traces { // the list has no tokens
		s.get(path("traces", page.Traces[i].TraceID)).is(200).into(&page.Traces[i])
	}
	return page.Traces
}

func chat(stream bool) object {
	return object{"model": "gpt-5", "stream": stream, "messages": []object{{"role": "user", "content": "say something"}}}
}

// TestCallIsCaptured: what the engine read and sampled is what is stored, numbered in
// the order of the calls, over a restart too, with the version that was announced.
func TestCallIsCaptured(t *testing.T) {
	t.Parallel()
	e, at := engines(t)
	e.Script("policy", enginetest.Script{Server: enginetest.Server{NoDev: true}})
	s := start(t, "--engine="+at+"/vllm")
	s.put("/v1/policy_version", object{"policy_version": 7}).is(200)
	s.post("/gateway/r-1/v1/chat/completions", chat(false)).is(200)
	a := s.post("/gateway/r-1/chat/completions", chat(true)).is(200)
	require.Contains(t, string(a.body), "data: [DONE]")
	s.stop()
	s = startOn(t, s.dir, nil, "--engine="+at+"/vllm")
	s.post("/gateway/r-1/chat/completions", chat(false)).is(200)
	traces := s.keptCalls("r-1")
	require.Len(t, traces, 3)
	sampled := map[string]enginetest.Entry{}
	for _, entry := range e.Ledger() {
		if len(entry.Choices) > 0 {
			sampled[entry.RequestID] = entry
		}
	}
	require.Len(t, sampled, 3)
	for i, tr := range traces {
		truth, ok := sampled[tr.TraceID]
		require.True(t, ok, "the engine knows the call by its trace_id")
		require.Equal(t, int64(i+1), *tr.Seq)
		require.Equal(t, "ok", tr.Status)
		require.Equal(t, "openai.chat", tr.API)
		require.Equal(t, "policy", tr.Model)
		require.Equal(t, int64(7), *tr.PolicyVersion)
		require.Equal(t, truth.PromptIDs, tr.Prompt)
		require.Equal(t, truth.Choices[0].IDs, tr.Response)
		require.Len(t, tr.Logprobs, len(tr.Response))
		for j, p := range tr.Logprobs {
			require.InDelta(t, truth.Choices[0].Logprobs[j], *p, 1e-6)
		}
	}
	r, _ := s.rollout("r-1")
	require.Zero(t, r.OpenIntents)
}

// TestCallersWithKeys: where keys are asked for, a key says which rollout a call is of,
// and stops doing so when it is revoked.
func TestCallersWithKeys(t *testing.T) {
	t.Parallel()
	_, at := engines(t)
	file := tempFile(t, []byte("callers: key\nmodels: {policy: {}}\n"))
	s := start(t, "--gateway="+file, "--engine="+at+"/vllm")
	var k gatewayKey
	s.post(path("rollouts", "mine", "keys"), object{}).is(201).into(&k)
	call := func(rollout, key string) int {
		t.Helper()
		return s.send("POST", "/gateway/"+rollout+"/chat/completions", encode(chat(false)), "Content-Type", typeJSON, "Authorization", "Bearer "+key).status
	}
	require.Equal(t, 200, call("-", k.Key))
	require.Equal(t, 200, call("mine", k.Key))
	require.Equal(t, 403, call("other", k.Key))
	require.Equal(t, 401, call("mine", "sk-something"))
	require.Equal(t, 401, call("-", k.Key+"0"))
	s.send("DELETE", path("rollouts", "mine", "keys", k.KeyID), nil).is(200)
	require.Equal(t, 401, call("mine", k.Key))
	require.Len(t, s.keptCalls("mine"), 2)
}

// halfAnswer begins a streamed call whose engine stops after two tokens, and comes back
// when the first has arrived.
func halfAnswer(t *testing.T, s *server, e *enginetest.Engine) (rest *bufio.Reader, gate *enginetest.Gate) {
	t.Helper()
	gate = &enginetest.Gate{}
	e.Script("policy", enginetest.Script{Builtin: "echo", Time: enginetest.Time{Gate: gate}})
	gate.Step(2)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/gateway/half/chat/completions", bytes.NewReader(encode(chat(true))))
	require.NoError(t, err)
	resp, err := newHTTP().Do(req)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	t.Cleanup(func() { _ = resp.Body.Close() })
	rest = bufio.NewReader(resp.Body)
	for seen := false; !seen; {
		line, err := rest.ReadString('\n')
		require.NoError(t, err)
		seen = strings.Contains(line, `"content":"s`)
	}
	return rest, gate
}

// TestStopBreaksCallsOff: a stop waits for calls as long as it may. Then they are broken
// off, and what was sampled of them is stored.
func TestStopBreaksCallsOff(t *testing.T) {
	t.Parallel()
	e, at := engines(t)
	s := start(t, "--engine="+at+"/vllm", "--stop-timeout=300ms")
	rest, _ := halfAnswer(t, s, e)
	s.stop()
	text, err := io.ReadAll(rest)
	require.Error(t, err, "a broken stream must not end like a whole one")
	require.NotContains(t, string(text), "[DONE]")
	s = startOn(t, s.dir, nil)
	traces := s.keptCalls("half")
	require.Len(t, traces, 1)
	require.Equal(t, "aborted", traces[0].Status)
	require.NotEmpty(t, traces[0].Response)
	r, _ := s.rollout("half")
	require.Zero(t, r.OpenIntents)
}

// TestStopWaitsForCalls: a call that ends in time ends well.
func TestStopWaitsForCalls(t *testing.T) {
	t.Parallel()
	e, at := engines(t)
	s := start(t, "--engine="+at+"/vllm")
	rest, gate := halfAnswer(t, s, e)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	eventually(t, "new connections are refused", func() bool {
		_, err := s.try(http.MethodGet, "/healthz", nil)
		return err != nil
	})
	require.True(t, s.running())
	gate.Open()
	text, err := io.ReadAll(rest)
	require.NoError(t, err)
	require.Contains(t, string(text), "[DONE]")
	<-s.exited
	require.NoError(t, s.err)
	s = startOn(t, s.dir, nil)
	require.Equal(t, "ok", s.keptCalls("half")[0].Status)
}

// TestKillLeavesTheAnnouncement: a call that was begun when the process was killed shows
// as missing, and its number is not given again.
func TestKillLeavesTheAnnouncement(t *testing.T) {
	t.Parallel()
	e, at := engines(t)
	s := start(t, "--engine="+at+"/vllm")
	rest, gate := halfAnswer(t, s, e)
	s.kill()
	_, err := io.ReadAll(rest)
	require.Error(t, err)
	gate.Open()
	s = startOn(t, s.dir, nil, "--engine="+at+"/vllm")
	r, _ := s.rollout("half")
	require.Equal(t, 1, r.OpenIntents)
	s.post("/gateway/half/chat/completions", chat(false)).is(200)
	traces := s.keptCalls("half")
	require.Len(t, traces, 1)
	require.Equal(t, int64(2), *traces[0].Seq)
}
