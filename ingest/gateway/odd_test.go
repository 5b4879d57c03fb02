package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/settings"
)

// each API's way to ask for a word, and where its answer counts tokens.
var asks = map[string]struct {
	path, streamPath, body string
	stream                 bool // in the body
	counts                 [2]string
}{
	apiChat:      {"r/v1/chat/completions", "", hello + `,"stream_options":{"include_usage":true}}`, true, [2]string{"prompt_tokens", "completion_tokens"}},
	apiResponses: {"r/v1/responses", "", `{"model":"policy","input":"hello"}`, true, [2]string{"input_tokens", "output_tokens"}},
	apiMessages:  {"r/v1/messages", "", hello + `,"max_tokens":100}`, true, [2]string{"input_tokens", "output_tokens"}},
	apiGenerate: {"r/v1beta/models/policy:generateContent", "r/v1beta/models/policy:streamGenerateContent?alt=sse",
		`{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}`, false, [2]string{"promptTokenCount", "candidatesTokenCount"}},
}

// An engine whose usage is missing or cannot be read still gave ids: the harness is told
// how many, and the trace holds no more than the engine said.
func TestUsageOfIDs(t *testing.T) {
	t.Parallel()
	for api, a := range asks {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(api, stream), func(t *testing.T) {
				t.Parallel()
				s := says("a word")
				s.Chunks.Usage = "absent"
				r := newRig(t, "vllm", s)
				path, body := a.path, a.body
				switch {
				case stream && a.stream:
					body = streamed(body)
				case stream:
					path = a.streamPath
				}
				status, text, broke := r.post(path, body)
				require.NoError(t, broke)
				require.Equal(t, http.StatusOK, status, text)
				entry, got := r.ended(1)[0], r.store.wait(t, 1)[0]
				require.Contains(t, text, fmt.Sprintf(`%q:%d`, a.counts[0], len(entry.PromptIDs)))
				require.Contains(t, text, fmt.Sprintf(`%q:%d`, a.counts[1], len(entry.Choices[0].IDs)))
				require.Nil(t, got.Usage, "the engine said nothing")
				require.Contains(t, meta(t, got)["flags"], "usage_missing")
			})
		}
	}
}

// No harness waits for a call that the engine announced and did not make.
func TestToolCallsWithoutACall(t *testing.T) {
	t.Parallel()
	for api, a := range asks {
		r := newRig(t, "vllm", enginetest.Script{Turns: []enginetest.Turn{{Text: "a word", Finish: "tool_calls"}}})
		status, text, broke := r.post(a.path, a.body)
		require.NoError(t, broke)
		require.Equal(t, http.StatusOK, status, text)
		require.NotContains(t, text, `"tool_calls"`, api)
		require.NotContains(t, text, `"tool_use"`, api)
		got := r.store.wait(t, 1)[0]
		require.Equal(t, "tool_calls", got.FinishReason)
		require.Contains(t, meta(t, got)["flags"], "calls_missing")
	}
}

// While an engine that names its own models was never reached, every model may be there:
// harnesses give up at 404, and come again at 503.
func TestEngineThatWasNeverReached(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	unreached := func(o *Options, _ *fixed, _ *memory) {
		o.Settings.Engines = []settings.Engine{{URL: gone.URL, Name: "gpu-0"}}
		o.Settings.DefaultModel, o.Settings.FirstServed = "", true
	}
	r := newRig(t, "vllm", says("x"), unreached)
	for api, a := range asks {
		answer, err := r.call(t.Context(), a.path, a.body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode, api)
		require.NotEmpty(t, answer.Header.Get("Retry-After"), api)
	}
	require.Contains(t, r.log.String(), gone.URL)
	// What the settings name does not hang on engines.
	r = newRig(t, "vllm", says("x"), unreached, func(o *Options, _ *fixed, _ *memory) {
		o.Settings.Models = []*settings.Model{settings.DefaultModel("one"), settings.DefaultModel("two")}
	})
	status, text, _ := r.post("r/v1/chat/completions", hello+"}")
	require.Equal(t, http.StatusNotFound, status, text)
}

// exactText is the model's option by which held ids are used.
func exactText(o *Options, _ *fixed, _ *memory) {
	m := settings.DefaultModel("policy")
	m.Continuity, m.ReasoningParser, m.ToolParser = settings.ContinuityExactText, "think", "hermes"
	o.Settings.Models = []*settings.Model{m}
}

// What one engine has proven says nothing of another with the same model.
func TestTrustIsOfOneEngine(t *testing.T) {
	t.Parallel()
	s := drifting()
	s.Server.TokenizeMessages = true
	other := httptest.NewServer(enginetest.New(enginetest.Options{Seed: 1, Default: s}))
	t.Cleanup(other.Close)
	r := newRig(t, "vllm", s, exactText, func(o *Options, _ *fixed, _ *memory) {
		o.Settings.Engines = append(o.Settings.Engines, settings.Engine{URL: other.URL + "/vllm", Name: "gpu-1"})
	})
	// Calls of one agent stay at one engine; agents are spread.
	more := strings.TrimSuffix(hello, "]") + `,{"role":"assistant","content":"x"},{"role":"user","content":"more"}]`
	proven := map[string]bool{}
	for n := 0; len(proven) < 2; n++ {
		require.Less(t, n, 40, "one engine gets every agent")
		for _, body := range []string{hello + "}", more + "}"} {
			status, text, _ := r.post(fmt.Sprintf("r-%d/v1/chat/completions", n), body)
			require.Equal(t, http.StatusOK, status, text)
		}
		m := meta(t, r.store.wait(t, 2*n+2)[2*n+1])
		name, _ := m["engine"].(string)
		c, _ := m["continuity"].(object)
		require.Equal(t, !proven[name], c["why"] == "not_proven", "a second turn was seen at %v, this one at %s: %v", proven, name, c)
		proven[name] = true
	}
}

// An engine that takes ids for a prompt and says that it read others is found out.
func TestSpliceNotHonoured(t *testing.T) {
	t.Parallel()
	s := says("the thing in the string is the thin thing")
	s.Sampling.Drift, s.Server.TokenizeMessages = true, true
	r := newRig(t, "vllm", s, exactText)
	converse(t, r, 4)
	_, spliced := labels(t, r, 4)
	require.Positive(t, spliced)
	wrong := s
	wrong.IDs.Prompt = "wrong"
	r.engine.Script("policy", wrong)
	before := len(r.store.all())
	converse(t, r, 4)
	found := 0
	for _, one := range r.store.wait(t, before+4)[before:] {
		flags := fmt.Sprint(meta(t, one)["flags"])
		c, _ := meta(t, one)["continuity"].(object)
		require.Equal(t, c["spliced"] == true, strings.Contains(flags, "splice_not_honoured"), flags)
		if c["spliced"] == true {
			found++
			require.Contains(t, flags, "prompt_ids_differ")
		}
	}
	require.Positive(t, found)
}

// Two answers to one call that come mixed keep apart, in the traces and at the harness.
func TestTwoChoicesMix(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		s := enginetest.Script{Turns: []enginetest.Turn{{Text: "one answer of some length", Choices: []enginetest.Turn{{Text: "another", Finish: "length"}}}}}
		s.Chunks.Sizes = []int{1, 3, 2}
		r := newRig(t, "vllm", s)
		body := hello + `,"n":2,"logprobs":true}`
		if stream {
			body = streamed(body)
		}
		status, text, broke := r.post("r/v1/chat/completions", body)
		require.NoError(t, broke)
		require.Equal(t, http.StatusOK, status, text)
		texts, finishes := heardOf(t, text)
		require.Equal(t, map[int]string{0: "one answer of some length", 1: "another"}, texts)
		require.Equal(t, map[int]string{0: "stop", 1: "length"}, finishes)
		entry := r.ended(1)[0]
		for i, got := range r.store.wait(t, 2) {
			require.Equal(t, entry.Choices[i].IDs, got.ResponseIDs)
			require.Equal(t, entry.Choices[i].Logprobs, got.ResponseLogprobs.Values)
			require.Equal(t, finishes[i], got.FinishReason)
			require.Equal(t, int64(i), *got.ChoiceIndex)
			require.False(t, got.IDsIncomplete)
		}
	}
}

// heardOf gives the texts and finish reasons by choice of an answer of Chat Completions.
func heardOf(t *testing.T, answer string) (texts, finishes map[int]string) {
	t.Helper()
	texts, finishes = map[int]string{}, map[int]string{}
	for line := range strings.Lines(answer) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		if line == "" || line == "[DONE]" || line[0] == ':' {
			continue
		}
		var chunk struct {
			Choices []struct {
				Index          int
				Delta, Message struct{ Content string }
				Finish         string `json:"finish_reason"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(line), &chunk), line)
		for _, c := range chunk.Choices {
			texts[c.Index] += c.Delta.Content + c.Message.Content
			finishes[c.Index] += c.Finish
		}
	}
	return texts, finishes
}
