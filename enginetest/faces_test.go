package enginetest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// task is a request with a tool, whose answer thinks, speaks and calls.
var task = members{"model": "agent", "messages": []any{members{"role": "system", "content": "S"}, user("fix it")}, "tools": []any{bashTool}}

var agent = Script{Turns: []Turn{{Reasoning: "I must look — first.", Text: "Let me see.\n", Calls: []Call{{"bash", `{"command": "ls -la | grep \"é\""}`}}}},
	Sampling: Sampling{Drift: true}}

// asksAll asks a face for all that it can tell.
func asksAll(face string, stream bool) members {
	m := members{"stream": stream, "logprobs": true}
	if stream {
		m["stream_options"] = members{"include_usage": true}
	}
	switch {
	case face == "vllm":
		m["return_token_ids"], m["return_tokens_as_token_ids"] = true, true
	case face == gen0513:
		m["return_prompt_token_ids"], m["return_meta_info"] = true, true
	case face == gen30917 && !stream:
		m["return_token_ids"] = true
	case face == genSglext:
		m["return_input_ids_in_sglext"], m["return_output_ids_in_sglext"] = true, true
	}
	return m
}

func TestEveryFaceSamplesAlike(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{Seed: 7})
	e.Script("agent", agent)
	for _, face := range e.Faces() {
		for _, stream := range []bool{true, false} {
			r := ask(t, url+"/"+face+"/v1/chat/completions", task.with(asksAll(face, stream)))
			require.Equal(t, 200, r.status, "%s: %s", face, r.raw)
			h := r.choices[0]
			require.Equal(t, "\nI must look — first.\n", h.reasoning, face)
			require.Equal(t, "\n\nLet me see.\n", h.text, face)
			require.Equal(t, agent.Turns[0].Calls, h.calls, face)
			require.Equal(t, "tool_calls", h.finish, face)
			require.Equal(t, "assistant", h.role)
		}
	}
	calls := e.Calls()
	prompt := calls[0].PromptIDs
	messages, tools := []Message{{Role: "system", Content: "S"}, {Role: "user", Content: "fix it"}}, seenIn(Decode(prompt)).Tools
	text, err := Template{}.Render(messages, tools, true, true)
	require.NoError(t, err)
	require.Equal(t, Encode(text), prompt)
	for _, c := range calls {
		require.Equal(t, prompt, c.PromptIDs, c.Face)
		require.Equal(t, calls[0].Choices, c.Choices, c.Face)
		require.Equal(t, Logprobs(prompt, c.Choices[0].IDs), c.Choices[0].Logprobs)
		require.Equal(t, len(c.Choices[0].IDs), c.Choices[0].Sent)
		require.Equal(t, "done", c.Ended)
	}
}

// Routes that take ids and no messages are answered with the same ids.
func TestTokenInSamplesAlike(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{Seed: 7})
	e.Script("agent", agent)
	ask(t, url+"/vllm/v1/chat/completions", task)
	first := only(t, e)
	for route, m := range map[string]members{
		"/vllm/v1/completions":               {"prompt": first.PromptIDs},
		"/sglang-30917/v1/completions":       {"prompt": Decode(first.PromptIDs)},
		"/vllm/inference/v1/generate":        {"token_ids": first.PromptIDs, "sampling_params": members{"logprobs": 0}},
		"/sglang-0.5.13/generate":            {"input_ids": first.PromptIDs, "return_logprob": true},
		"/sglang-sglext/v1/chat/completions": task.with(members{"input_ids": first.PromptIDs}),
	} {
		for _, stream := range []bool{true, false} {
			r := ask(t, url+route, m.with(members{"model": "agent", "stream": stream}), "X-Script", "agent")
			require.Equal(t, 200, r.status, "%s: %s", route, r.raw)
			got := last(t, e)
			require.Equal(t, first.PromptIDs, got.PromptIDs, route)
			require.Equal(t, first.Choices[0].IDs, got.Choices[0].IDs, route)
			require.Equal(t, first.Choices[0].Logprobs, got.Choices[0].Logprobs, route)
		}
	}
}

func TestSameSeedSameIDs(t *testing.T) {
	t.Parallel()
	var found [][]Sampled
	for _, seed := range []uint64{1, 1, 2} {
		e, url := server(t, Options{Seed: seed})
		e.Script("agent", agent)
		ask(t, url+"/vllm/v1/chat/completions", task.with(members{"n": 3}))
		found = append(found, only(t, e).Choices)
	}
	require.Equal(t, found[0], found[1])
	require.NotEqual(t, found[0], found[2])
	require.NotEqual(t, found[0][0].IDs, found[0][1].IDs, "choices differ")
}

func TestByAttemptSamplesOtherwise(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{})
	s := agent
	s.Sampling.ByAttempt = true
	e.Script("agent", s)
	for range 2 {
		ask(t, url+"/vllm/v1/chat/completions", task)
	}
	calls := e.Calls()
	require.NotEqual(t, calls[0].Choices[0].IDs, calls[1].Choices[0].IDs)
	require.Equal(t, Decode(calls[0].Choices[0].IDs), Decode(calls[1].Choices[0].IDs))
}

func TestVLLMStreamTellsWhatWasSampled(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{})
	r := ask(t, url+"/vllm/v1/chat/completions", hello.with(members{"stream": true, "max_tokens": 30}))
	entry := only(t, e)
	h := r.choices[0]
	require.Equal(t, entry.PromptIDs, r.prompt)
	require.Equal(t, entry.Choices[0].IDs, h.ids)
	require.Equal(t, entry.Choices[0].Logprobs, plainLogprobs(t, h.logprobs))
	require.Equal(t, Logprobs(r.prompt, h.ids), entry.Choices[0].Logprobs)
	require.True(t, strings.HasPrefix(h.tokens[0], "token_id:"))
	require.Equal(t, "length", h.finish)
	require.Equal(t, &usage{len(entry.PromptIDs), 30}, r.usage)
	require.Equal(t, 1, r.done)
	require.Contains(t, r.events[0], `"prompt_token_ids"`, "with the role")
	for _, event := range r.events[1:] {
		require.NotContains(t, event, "prompt_token_ids")
	}
}

func TestSGLangGenerations(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{})
	chat := "/v1/chat/completions"
	base := members{"model": DefaultModel, "messages": []any{user("hello")}, "max_tokens": 12}

	r := ask(t, url+"/"+gen0513+chat, base.with(asksAll(gen0513, false)))
	entry := last(t, e)
	require.Equal(t, entry.PromptIDs, r.choices[0].prompt)
	m := r.chunks[0].Choices[0].Meta
	require.Len(t, m.Logprobs, 12)
	for i, triple := range m.Logprobs {
		require.Equal(t, float64(entry.Choices[0].IDs[i]), triple[1])
		require.Equal(t, entry.Choices[0].Logprobs[i], float32(triple[0].(float64)))
	}
	require.JSONEq(t, `{"weight_version": "default"}`, string(r.chunks[0].Metadata))
	r = ask(t, url+"/"+gen0513+chat, base.with(members{"stream": true, "return_prompt_token_ids": true, "return_token_ids": true, "return_input_ids_in_sglext": true}))
	require.Equal(t, 200, r.status)
	require.NotContains(t, r.raw, "token_ids")
	require.NotContains(t, r.raw, "sglext")

	r = ask(t, url+"/"+gen30917+chat, base.with(members{"stream": true, "return_token_ids": true}))
	require.Equal(t, 400, r.status)
	require.Contains(t, r.raw, "stream")
	r = ask(t, url+"/"+gen30917+chat, base.with(members{"return_token_ids": true}))
	require.Equal(t, last(t, e).Choices[0].IDs, r.choices[0].ids)
	require.Equal(t, last(t, e).PromptIDs, r.choices[0].prompt)

	r = ask(t, url+"/"+genSglext+chat, base.with(members{"stream": true, "n": 2, "stream_options": members{"include_usage": true}}),
		"X-Sglext-Return-Input-Ids", "1", "X-Sglext-Return-Output-Ids", "1", "X-Sglext-Ids-Framed", "1")
	entry = last(t, e)
	require.Equal(t, &ext{entry.PromptIDs, [][]int32{entry.Choices[0].IDs, entry.Choices[1].IDs}}, r.sglext)
	n := len(r.chunks)
	require.NotNil(t, r.chunks[n-2].Sglext, "after the finish, before usage")
	require.Empty(t, r.chunks[n-2].Choices)
	require.NotNil(t, r.chunks[n-1].Usage)
	require.Contains(t, r.raw, "event: sglext_ids\ndata: ")
	r = ask(t, url+"/"+genSglext+chat, base.with(asksAll(genSglext, false)))
	require.Equal(t, last(t, e).Choices[0].IDs, r.sglext.Output[0])
}

func TestSGLangGenerateStreams(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{})
	e.Script("incremental", Script{Server: Server{Incremental: true}})
	for _, name := range []string{DefaultModel, "incremental"} {
		r := ask(t, url+"/sglang-0.5.13/generate", members{"text": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "stream": true,
			"sampling_params": members{"max_new_tokens": 20}, "return_logprob": true}, "X-Script", name)
		var ids []int32
		var text string
		for _, event := range r.events {
			var piece struct {
				Text string  `json:"text"`
				IDs  []int32 `json:"output_ids"`
			}
			require.NoError(t, json.Unmarshal([]byte(event), &piece))
			if name == DefaultModel {
				require.True(t, strings.HasPrefix(piece.Text, text), "all so far")
				ids, text = piece.IDs, piece.Text
			} else {
				ids, text = append(ids, piece.IDs...), text+piece.Text
			}
		}
		require.Equal(t, last(t, e).Choices[0].IDs, ids)
		require.Equal(t, Decode(ids), text)
		require.Len(t, ids, 20)
	}
}

func TestPlainTellsNoIDs(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{})
	e.Script("strict", Script{Server: Server{RefuseUnknown: true}})
	r := ask(t, url+"/plain/v1/chat/completions", hello)
	require.Equal(t, 200, r.status)
	require.NotContains(t, r.raw, "token_id")
	r = ask(t, url+"/plain/v1/chat/completions", hello.with(members{"model": "strict"}))
	require.Equal(t, 400, r.status)
	require.Contains(t, r.raw, "Unrecognized request argument")
}
