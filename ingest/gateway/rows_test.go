package gateway

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/settings"
	"icecore/trace"
)

// Public faults of engines (section 5 of the facts): what the trace says of each. The
// number is the row's.
func TestFaultsOfEngines(t *testing.T) {
	t.Parallel()
	text := "abcdefghij"
	with := func(change func(*enginetest.Script)) enginetest.Script {
		s := says(text)
		change(&s)
		return s
	}
	for _, c := range []struct {
		name   string
		script enginetest.Script
		check  func(t *testing.T, got *trace.Trace, e enginetest.Entry)
	}{
		{"1 a tail of ids", with(func(s *enginetest.Script) { s.IDs.Answer, s.IDs.Tail = "tail", 3 }), func(t *testing.T, got *trace.Trace, _ enginetest.Entry) {
			require.True(t, got.IDsIncomplete)
			require.Contains(t, meta(t, got)["flags"], "ids_incomplete")
			require.Equal(t, trace.StatusOK, got.Status)
		}},
		{"3 ids behind a stop", with(func(s *enginetest.Script) { s.Sampling.PastStop = 2 }), func(t *testing.T, got *trace.Trace, e enginetest.Entry) {
			require.Equal(t, e.Choices[0].IDs, got.ResponseIDs)
		}},
		{"8 log-probs too many", with(func(s *enginetest.Script) { s.Logprobs.Fault, s.Logprobs.NoTokenIDs = "long", true }), func(t *testing.T, got *trace.Trace, e enginetest.Entry) {
			require.Equal(t, e.Choices[0].IDs, got.ResponseIDs)
			require.Nil(t, got.ResponseLogprobs, "never zipped")
			require.NotEmpty(t, meta(t, got)["flags"])
		}},
		{"9 no prompt ids", with(func(s *enginetest.Script) { s.IDs.Prompt = "absent" }), func(t *testing.T, got *trace.Trace, e enginetest.Entry) {
			require.Nil(t, got.PromptIDs, "not known is not empty")
			require.Equal(t, e.Choices[0].IDs, got.ResponseIDs)
		}},
		{"10 and 34 null and floor", with(func(s *enginetest.Script) { s.Logprobs.Fault, s.Logprobs.At = "floor", []int{3} }), func(t *testing.T, got *trace.Trace, e enginetest.Entry) {
			require.NotNil(t, got.ResponseLogprobs)
			for i, want := range e.Choices[0].Logprobs {
				v, known := got.ResponseLogprobs.At(i)
				require.Equal(t, i != 3, known, i)
				if known {
					require.InDelta(t, want, v, 0, "neighbours do not move")
				}
			}
		}},
		{"10 NaN", with(func(s *enginetest.Script) { s.Logprobs.Fault, s.Logprobs.At = "nan", []int{2} }), func(t *testing.T, got *trace.Trace, e enginetest.Entry) {
			require.NotNil(t, got.ResponseLogprobs)
			v, known := got.ResponseLogprobs.At(2)
			require.True(t, !known || math.IsNaN(float64(v)))
			v, known = got.ResponseLogprobs.At(3)
			require.True(t, known)
			require.InDelta(t, e.Choices[0].Logprobs[3], v, 0)
		}},
		{"15 empty tool_calls", with(func(s *enginetest.Script) { s.Chunks.EmptyCalls = true }), func(t *testing.T, got *trace.Trace, e enginetest.Entry) {
			require.Equal(t, e.Choices[0].IDs, got.ResponseIDs)
		}},
		{"DONE twice", with(func(s *enginetest.Script) { s.Faults = []enginetest.Fault{{Kind: "done_twice"}} }), func(t *testing.T, got *trace.Trace, _ enginetest.Entry) {
			require.Equal(t, "stop", got.FinishReason)
		}},
		{"an empty answer", enginetest.Script{Turns: []enginetest.Turn{{}}}, func(t *testing.T, got *trace.Trace, e enginetest.Entry) {
			require.Equal(t, e.Choices[0].IDs, got.ResponseIDs)
		}},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, "vllm", c.script)
				body := hello + `}`
				if stream {
					body = streamed(body)
				}
				status, text, broke := r.post("r/v1/chat/completions", body)
				require.NoError(t, broke)
				require.Equal(t, http.StatusOK, status, text)
				c.check(t, r.store.wait(t, 1)[0], r.ended(1)[0])
			})
		}
	}
}

// n answers are n traces of one group, each with its own ids.
func TestChoices(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		r := newRig(t, "vllm", enginetest.Script{Turns: []enginetest.Turn{{Text: "one", Choices: []enginetest.Turn{{Text: "another"}, {Text: "a third"}}}}})
		body := hello + `,"n":3}`
		if stream {
			body = streamed(body)
		}
		status, text, broke := r.post("r/v1/chat/completions", body)
		require.NoError(t, broke)
		require.Equal(t, http.StatusOK, status, text)
		entry := r.ended(1)[0]
		for i, got := range r.store.wait(t, 3) {
			require.Equal(t, r.store.all()[0].TraceID, got.ChoiceGroup)
			require.Equal(t, int64(i), *got.ChoiceIndex)
			require.Equal(t, int64(i+1), *got.Seq)
			require.Equal(t, entry.Choices[i].IDs, got.ResponseIDs)
			require.Equal(t, entry.PromptIDs, got.PromptIDs.Flat())
		}
	}
}

// Sampling is stored as it was asked for, with the mode of log-probs (row 12), and what
// the options change is a rewrite.
func TestOptionsAreRewrites(t *testing.T) {
	t.Parallel()
	r := newRig(t, "vllm", says("x"), func(o *Options, _ *fixed, _ *memory) {
		m := settings.DefaultModel("policy")
		m.LogprobsMode, m.MaxTokens = "raw_logprobs", 50
		m.Sampling = settings.Members{"top_p": json.RawMessage(`0.9`)}
		m.Params = settings.Members{"chat_template_kwargs": json.RawMessage(`{"b":1,"a":2}`)}
		o.Settings.Models = []*settings.Model{m}
	})
	status, text, _ := r.post("r/v1/messages", hello+`,"max_tokens":64000,"temperature":0.6}`)
	require.Equal(t, http.StatusOK, status, text)
	got := r.store.wait(t, 1)[0]
	require.JSONEq(t, `{"temperature":0.6,"top_p":0.9,"max_tokens":50,"logprobs_mode":"raw_logprobs","chat_template_kwargs":{"a":2,"b":1}}`, string(got.Sampling))
	require.NotContains(t, string(got.Sampling), " ")
	rewrites, err := json.Marshal(meta(t, got)["rewrites"])
	require.NoError(t, err)
	require.Contains(t, string(rewrites), "clamped_max_tokens")
	require.Contains(t, string(rewrites), "set_sampling")
	var sent map[string]any
	require.NoError(t, json.Unmarshal(r.engine.Calls()[0].Body, &sent))
	require.InDelta(t, 50, sent["max_tokens"], 0)
	require.InDelta(t, 0.9, sent["top_p"], 0)
}

// A billing line that changes is counted, and kept unless the option says otherwise
// (row 19).
func TestBillingLine(t *testing.T) {
	t.Parallel()
	body := func(cch string) string {
		return `{"model":"policy","max_tokens":9,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=` + cch + `;"},{"type":"text","text":"You help."}],"messages":[{"role":"user","content":"hi"}]}`
	}
	for _, strip := range []bool{false, true} {
		r := newRig(t, "vllm", says("x"), func(o *Options, _ *fixed, _ *memory) {
			m := settings.DefaultModel("policy")
			m.StripBillingLine = strip
			o.Settings.Models = []*settings.Model{m}
		})
		for _, cch := range []string{"aaa", "bbb"} {
			status, text, _ := r.post("r/v1/messages", body(cch))
			require.Equal(t, http.StatusOK, status, text)
		}
		got := r.store.wait(t, 2)
		same := slices.Equal(got[0].PromptIDs.Flat(), got[1].PromptIDs.Flat())
		require.Equal(t, strip, same)
		want := 1.0
		if strip {
			want = 0
			require.NotContains(t, string(r.engine.Calls()[0].Body), "billing")
			require.Contains(t, string(mustJSON(t, meta(t, got[0])["rewrites"])), "stripped_billing_line")
		}
		require.InDelta(t, want, testutil.ToFloat64(r.gateway.metrics.unstable), 0)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

// An engine that was aborted from outside (rows 4 and 6), and one that goes on when it
// is told to stop (row 33): one trace each.
func TestAborts(t *testing.T) {
	t.Parallel()
	gate := &enginetest.Gate{}
	s := says("abcdefgh")
	s.Time.Gate = gate
	r := newRig(t, "vllm", s)
	ended := make(chan error, 1)
	go func() {
		_, text, broke := r.post("r/v1/chat/completions", streamed(hello+`}`))
		if strings.Contains(text, "[DONE]") {
			broke = nil
		}
		ended <- broke
	}()
	require.NoError(t, gate.Arrived(t.Context(), 1))
	require.Equal(t, 1, r.engine.Abort())
	require.Error(t, <-ended)
	got := r.store.wait(t, 1)[0]
	require.Equal(t, trace.StatusAborted, got.Status)
	require.Equal(t, "abort", got.FinishReason)
	require.NotNil(t, got.ResponseIDs)
	require.Empty(t, got.ResponseIDs, "none were sampled, and that is known")
}

// Harnesses that can only stream, and engines that cannot give ids so, meet (rows 7, 35).
func TestStreamsWhereTheEngineCannot(t *testing.T) {
	t.Parallel()
	r := newRig(t, "sglang-30917", says("played"))
	for range 2 {
		_, text, broke := r.post("r/v1/responses", bodies[1].stream)
		require.NoError(t, broke, text)
		require.Contains(t, text, "response.completed")
	}
	for _, got := range r.store.wait(t, 2) {
		require.NotNil(t, got.ResponseIDs)
	}
	refused := 0
	for _, e := range r.engine.Ledger() {
		if e.Status == http.StatusBadRequest {
			refused++
		}
	}
	require.LessOrEqual(t, refused, 1, "what an engine cannot do is remembered")
}
