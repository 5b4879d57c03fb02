package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/trace"
)

// Whatever an engine says of its weights, the trace is stored.
func TestAVersionThatIsNoneCostsNoTrace(t *testing.T) {
	t.Parallel()
	f := &fakeEngine{pieces: []string{"a", "b"}, version: func() (*int64, string) { v := int64(-1); return &v, "-1" }}
	r := newFakeRig(t, f)
	status, text, err := r.post("r/v1/chat/completions", hello+`}`)
	require.NoError(t, err)
	require.Equal(t, 200, status, text)
	got := r.store.wait(t, 1)[0]
	require.Equal(t, trace.StatusOK, got.Status)
	require.Contains(t, meta(t, got)["flags"], "trace_cut", "what the store refuses is left out, the rest is kept")
	require.Nil(t, got.PolicyVersion)
}

// A version that was named before the first token is not that of the last one when the
// trainer announced others meanwhile.
func TestAVersionToldAtTheBeginning(t *testing.T) {
	t.Parallel()
	early := &engine.Sampled{Told: "8", ToldFirst: true}
	require.Nil(t, resolveVersion(early, nil, moment{pushed: n(8)}, moment{pushed: n(9)}).version)
	require.Equal(t, n(8), resolveVersion(early, nil, moment{pushed: n(8)}, moment{pushed: n(8)}).version)
	require.Equal(t, n(8), resolveVersion(early, nil, moment{}, moment{}).version)
	require.Equal(t, n(8), resolveVersion(&engine.Sampled{Told: "8"}, nil, moment{pushed: n(8)}, moment{pushed: n(9)}).version)
}

// A retry is of a call of its own thread: two agents that say the same are two.
func TestARetryEndsNoOtherThreadsCall(t *testing.T) {
	t.Parallel()
	gate := &enginetest.Gate{}
	script := says("abc")
	script.Time.Gate = gate
	r := newRig(t, "vllm", script)
	ended := make(chan error, 2)
	ask := func(headers ...string) {
		_, _, broke := r.post("r/v1/chat/completions", streamed(hello+`}`), headers...)
		ended <- broke
	}
	go ask("Icecore-Thread", "one")
	require.NoError(t, gate.Arrived(t.Context(), 1))
	go ask("Icecore-Thread", "two", "X-Stainless-Retry-Count", "1")
	require.NoError(t, gate.Arrived(t.Context(), 2))
	gate.Open()
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	for _, got := range r.store.wait(t, 2) {
		require.Equal(t, trace.StatusOK, got.Status)
		require.Nil(t, meta(t, got)["retry_of"])
	}
}

// A prompt of which ids are missing is not trained.
func TestAShortPromptIsNotTrained(t *testing.T) {
	t.Parallel()
	script := says("abc")
	script.IDs.Prompt = "short"
	r := newRig(t, "vllm", script)
	_, _, err := r.post("r/v1/chat/completions", hello+`}`)
	require.NoError(t, err)
	require.True(t, r.store.wait(t, 1)[0].IDsIncomplete)
}

// A harness that leaves while its trace is being stored has no answer; what it sends then
// is that call again.
func TestAnAnswerNobodyHasIsNoGoodEnd(t *testing.T) {
	t.Parallel()
	begun := &outcome{begun: true}
	require.Equal(t, fateOK, fateFor(begun, trace.StatusOK, false))
	require.Equal(t, fateBroke, fateFor(begun, trace.StatusOK, true))
	require.Equal(t, fateBroke, fateFor(begun, trace.StatusClientGone, false))
	require.Equal(t, fateNever, fateFor(&outcome{}, trace.StatusOK, false))
}

// What one rollout holds is no history of another, though their agents are alike.
func TestHeldOfOneRolloutAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, "vllm", says("kept"))
	onward := `{"model":"policy","messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"kept"},{"role":"user","content":"go on"}]}`
	for _, rollout := range []string{"one", "two"} {
		path := rollout + "/v1/chat/completions"
		if rollout == "one" {
			_, _, err := r.post(path, hello+`}`)
			require.NoError(t, err)
		}
		_, _, err := r.post(path, onward)
		require.NoError(t, err)
	}
	labels := map[string]any{}
	for _, got := range r.store.wait(t, 3) {
		labels[got.RolloutID] = meta(t, got)["continuity"].(map[string]any)["label"] // the last of each
	}
	require.Equal(t, map[string]any{"one": "extends", "two": "first"}, labels)
}
