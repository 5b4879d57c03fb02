package enginetest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServerSwitches(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{})
	chat := "/v1/chat/completions"
	set := func(s Server) { e.Script(DefaultModel, Script{Server: s}) }
	base := members{"model": DefaultModel, "messages": []any{user("hello")}, "max_tokens": 12}

	set(Server{StreamIDs: true})
	r := ask(t, url+"/"+genSglext+chat, base.with(members{"stream": true, "return_token_ids": true}))
	require.Equal(t, last(t, e).Choices[0].IDs, r.choices[0].ids, "in the chunks")
	set(Server{SglextAlways: true})
	r = ask(t, url+"/"+genSglext+chat, base.with(members{"stream": true}))
	require.Equal(t, last(t, e).PromptIDs, r.sglext.Input)

	given := members{"input_ids": []int32{ImStart, 'u', ImEnd}}
	set(Server{})
	ask(t, url+"/"+gen0513+chat, base.with(given))
	require.Equal(t, given["input_ids"], last(t, e).PromptIDs)
	ask(t, url+"/vllm"+chat, base.with(given))
	require.NotEqual(t, given["input_ids"], last(t, e).PromptIDs, "vLLM knows no input_ids beside messages")
	set(Server{NoTokenIn: true})
	ask(t, url+"/"+gen0513+chat, base.with(given))
	require.NotEqual(t, given["input_ids"], last(t, e).PromptIDs)

	r = ask(t, url+"/vllm/v1/chat/completions/render", base)
	var rendered struct {
		IDs []int32 `json:"token_ids"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.raw), &rendered))
	require.Equal(t, last(t, e).PromptIDs, rendered.IDs)
	require.Equal(t, 400, ask(t, url+"/vllm/v1/completions", members{"prompt": []int{1, 2}}).status)

	e.Script(DefaultModel, Script{IDs: IDs{Answer: "misplaced"}})
	r = ask(t, url+"/"+gen30917+chat, base.with(members{"return_token_ids": true}))
	require.Contains(t, r.raw, `"response_token_ids":[`)
}

func TestCompletionsTellIDsInChoices(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{Default: Script{Turns: []Turn{{Text: "<think>\nso\n</think>\n\nyes"}}}})
	for _, stream := range []bool{true, false} {
		r := ask(t, url+"/vllm/v1/completions", members{"prompt": []int32{ImStart, 'q', ImEnd}, "n": 2, "stream": stream, "logprobs": 0,
			"return_token_ids": true, "return_tokens_as_token_ids": true, "stream_options": members{"include_usage": true}})
		entry := last(t, e)
		for i := range 2 {
			require.Equal(t, entry.PromptIDs, r.choices[i].prompt)
			require.Equal(t, entry.Choices[i].IDs, r.choices[i].ids)
			require.Equal(t, entry.Choices[i].Logprobs, plainLogprobs(t, r.choices[i].logprobs))
		}
		require.Nil(t, r.prompt)
		require.Equal(t, "<think>\nso\n</think>\n\nyes", r.choices[0].text, "nothing is parsed")
		require.Equal(t, 3, r.usage.Prompt)

		r = ask(t, url+"/vllm/inference/v1/generate", members{"token_ids": []int32{ImStart, 'q', ImEnd}, "stream": stream, "sampling_params": members{"logprobs": 0, "max_tokens": 5}})
		require.Equal(t, last(t, e).Choices[0].IDs, r.choices[0].ids)
		require.Len(t, r.choices[0].ids, 5)
		require.NotContains(t, r.raw, "prompt_token_ids")
		require.NotContains(t, r.raw, `"text"`)
	}
}

// No body makes the engine itself fail.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{})
	for _, face := range e.Faces() {
		for _, route := range []string{"/v1/chat/completions", "/v1/completions", "/inference/v1/generate", "/generate", "/tokenize", "/detokenize", "/abort_requests"} {
			for _, body := range []string{``, `null`, `[]`, `{`, `{}`, `{"messages":[null]}`, `{"messages":[{"role":"user","content":{}}]}`, `{"messages":[{"role":"user","content":[{"type":"audio"}]}]}`,
				`{"prompt":[]}`, `{"prompt":[[1],[2]]}`, `{"prompt":""}`, `{"prompt":[-1]}`, `{"token_ids":[999999]}`, `{"input_ids":[],"text":""}`, `{"n":1000}`, `{"tokens":[-5]}`,
				`{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"x"}}]}],"tool_choice":7,"stop":7,"logprobs":"x"}`} {
				r := send(t.Context(), t, url+"/"+face+route, body)
				require.NoError(t, r.broken, "%s%s %s", face, route, body)
				require.Less(t, r.status, 500, "%s%s %s: %s", face, route, body, r.raw)
			}
		}
	}
}
