package engine_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

var shell = turn.Tool{Name: "bash", Description: "Run a command.",
	Parameters: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`)}

func TestVLLMTellsWhatItSampled(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "vllm", enginetest.Script{Turns: []enginetest.Turn{{Reasoning: "hm ☃", Text: "Hello \"there\"",
		Calls: []enginetest.Call{{Name: "bash", Arguments: `{"command":"ls"}`}, {Name: "bash", Arguments: `{"command": 1}`}}}}})
	e := one(t, rig.pool)
	require.Equal(t, engine.KindVLLM, e.Kind())
	r := well(t, call(t, e, ask("hi", func(c *engine.Call) { c.Request.Tools = []turn.Tool{shell} })))
	exact(t, rig.last(), 0, r.sampled(0))
	m := r.gather.Message(0)
	require.Equal(t, "hm ☃", trim(*m.Reasoning))
	require.Equal(t, "Hello \"there\"", trim(m.Text()))
	require.Len(t, m.Calls, 2)
	require.Equal(t, `{"command":"ls"}`, m.Calls[0].Arguments)
	require.NotEmpty(t, m.Calls[0].ID)
	require.Equal(t, []turn.End{{Finish: "tool_calls"}}, r.ends)
	require.Equal(t, "tool_calls", r.sampled(0).Finish)
	u := r.stream.Usage()
	require.Equal(t, int64(len(r.sampled(0).IDs)), *u.Completion)
	require.Equal(t, []int64{*u.Prompt}, r.prompt, "told once")
	require.False(t, r.stream.FirstToken().IsZero())
	require.Equal(t, "t-0", rig.last().RequestID)
}

func TestSeveralChoices(t *testing.T) {
	t.Parallel()
	for _, face := range []string{"vllm", "sglang-sglext", "sglang-0.5.13", "sglang-30917"} {
		t.Run(face, func(t *testing.T) {
			t.Parallel()
			rig := setUp(t, face, enginetest.Script{Turns: []enginetest.Turn{{Text: "one thing",
				Choices: []enginetest.Turn{{Text: "another, longer thing"}, {Text: "x"}}}}})
			for range 3 { // the ways that SGLang is asked in differ
				r := well(t, call(t, one(t, rig.pool), ask("hi", func(c *engine.Call) { c.Request.N = 3 })))
				for i := range 3 {
					exact(t, rig.last(), i, r.sampled(i))
				}
				require.Equal(t, "another, longer thing", r.text(1))
				require.Len(t, r.ends, 3)
			}
		})
	}
}

// What the harness and the model's options say cannot take out what capture needs.
func TestCaptureCannotBeSwitchedOff(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "vllm", enginetest.Script{})
	off := map[string]json.RawMessage{"include_reasoning": json.RawMessage("false"), "logprobs": json.RawMessage("false"),
		"return_token_ids": json.RawMessage("false"), "stream": json.RawMessage("false"), "stream_options": json.RawMessage("null"),
		"n": json.RawMessage("4"), "temperature": json.RawMessage("0.5")}
	r := well(t, call(t, one(t, rig.pool), ask("hi", func(c *engine.Call) {
		c.Request.Sampling, c.Params = off, off
		c.Params = map[string]json.RawMessage{"include_reasoning": json.RawMessage("false"), "temperature": json.RawMessage("0.7")}
		most := int64(5)
		c.Request.MaxTokens = &most
	})))
	exact(t, rig.last(), 0, r.sampled(0))
	require.Equal(t, "length", r.sampled(0).Finish)
	var body map[string]any
	request, response := r.stream.Raw()
	require.Empty(t, response, "kept only when asked for")
	require.Empty(t, request, "kept only when asked for")
	require.NoError(t, json.Unmarshal(rig.last().Body, &body))
	require.InDelta(t, 0.7, body["temperature"], 0, "the model's options win")
	require.NotContains(t, body, "include_reasoning")
}

func TestHarnessAsksForLogprobs(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "vllm", enginetest.Script{Turns: []enginetest.Turn{{Text: "abc"}}, Logprobs: enginetest.Logs{Fault: "nan", At: []int{1}}})
	r := well(t, call(t, one(t, rig.pool), ask("hi", func(c *engine.Call) { c.Request.Logprobs, c.Request.Top, c.KeepRaw = true, 2, true })))
	require.True(t, json.Valid(r.gather.Logprobs(0)), "NaN does not reach the harness")
	var told struct {
		Content []struct {
			Token       string
			Logprob     *float64
			TopLogprobs []any `json:"top_logprobs"`
		}
	}
	require.NoError(t, json.Unmarshal(r.gather.Logprobs(0), &told))
	require.Len(t, told.Content, 4)
	require.Equal(t, "a", told.Content[0].Token, "texts, not token_id:N")
	require.Len(t, told.Content[0].TopLogprobs, 2)
	require.Nil(t, told.Content[1].Logprob)
	_, raw := r.stream.Raw()
	require.Contains(t, string(raw), "data: [DONE]")
}
