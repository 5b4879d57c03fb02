package gateway

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/trace"
)

// bodies are one call in each API, streamed and not.
var bodies = []struct{ api, path, whole, stream string }{
	{apiChat, "r/v1/chat/completions", hello + `}`, hello + `,"stream":true}`},
	{apiResponses, "r/v1/responses", `{"model":"policy","input":"hello"}`, `{"model":"policy","input":"hello","stream":true}`},
	{apiMessages, "r/v1/messages", hello + `,"max_tokens":100}`, hello + `,"max_tokens":100,"stream":true}`},
	{apiGenerate, "r/v1beta/models/policy:", `{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}`, `{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}`},
}

func paths(api, path string, stream bool) string {
	switch {
	case api != apiGenerate:
		return path
	case stream:
		return path + "streamGenerateContent?alt=sse"
	}
	return path + "generateContent"
}

// Every API, streamed and not: the trace holds what the ledger says, id for id.
func TestTracesAreTheLedger(t *testing.T) {
	t.Parallel()
	for _, face := range []string{"vllm", "sglang-0.5.13", "sglang-30917", "sglang-sglext"} {
		for _, b := range bodies {
			for _, stream := range []bool{false, true} {
				name := face + " " + b.api
				body := b.whole
				if stream {
					name, body = name+" streamed", b.stream
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r := newRig(t, face, says("Ice keeps what fell."))
					status, text, broke := r.post(paths(b.api, b.path, stream), body)
					require.NoError(t, broke, text)
					require.Equal(t, http.StatusOK, status, text)
					if !stream {
						require.Contains(t, text, "fell")
					}
					sameAsLedger(t, r, r.store.wait(t, 1)[0])
					require.Equal(t, text, string(r.store.all()[0].ResponseBody))
				})
			}
		}
	}
}

func sameAsLedger(t *testing.T, r *rig, got *trace.Trace) {
	t.Helper()
	var entry *enginetest.Entry
	for _, e := range r.engine.Calls() {
		if e.Ended != "refused" {
			entry = &e
		}
	}
	require.NotNil(t, entry, "the engine was not called")
	require.Equal(t, trace.StatusOK, got.Status)
	require.Equal(t, entry.PromptIDs, got.PromptIDs.Flat())
	require.Equal(t, entry.Choices[0].IDs, got.ResponseIDs)
	require.NotNil(t, got.ResponseLogprobs)
	require.Equal(t, entry.Choices[0].Logprobs, got.ResponseLogprobs.Values)
	require.False(t, got.IDsIncomplete)
	require.Equal(t, "stop", got.FinishReason)
	require.Equal(t, int64(1), *got.Seq)
	require.NotNil(t, got.StartedAt)
	require.NotNil(t, got.FirstTokenAt)
	require.NotNil(t, got.FinishedAt)
	require.True(t, json.Valid(got.Metadata))
	require.True(t, json.Valid(got.Usage))
	require.Equal(t, "gpu-0", meta(t, got)["engine"])
}
