package enginetest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// failing makes an engine with one fault and gives the URL of vLLM's chat.
func failing(t testing.TB, f Fault) (*Engine, string) {
	e, url := server(t, Options{Default: Script{Turns: []Turn{{Text: "one two three four"}}, Faults: []Fault{f}}})
	return e, url + "/vllm/v1/chat/completions"
}

var streamed = hello.with(members{"stream": true})

func TestStatusFaults(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 429, 500, 503, 529} {
		e, url := failing(t, Fault{Kind: "status", Status: status, First: 2, RetryAfter: "7", Message: "so it is"})
		for range 2 {
			r := ask(t, url, streamed)
			require.Equal(t, status, r.status)
			require.Equal(t, "7", r.header.Get("Retry-After"))
			require.Contains(t, string(r.chunks[0].Error), "so it is")
			require.Equal(t, "status", last(t, e).Ended)
			require.Equal(t, status, last(t, e).Status)
			require.Empty(t, last(t, e).Choices)
		}
		require.Equal(t, 200, ask(t, url, streamed).status, "the third attempt")
		require.Equal(t, 2, last(t, e).Attempt)
	}
}

func TestFaultsChooseTheirRequests(t *testing.T) {
	t.Parallel()
	_, url := failing(t, Fault{Kind: "html", Status: 502, After: 1, First: 1})
	require.Equal(t, 200, ask(t, url, hello).status)
	r := ask(t, url, hello)
	require.Equal(t, 502, r.status)
	require.True(t, strings.HasPrefix(r.raw, "<html>"))
	require.Equal(t, 200, ask(t, url, hello).status)
	_, url = failing(t, Fault{Kind: "status", Only: "stream"})
	require.Equal(t, 200, ask(t, url, hello).status)
	require.Equal(t, 500, ask(t, url, streamed).status)
}

func TestDroppedConnection(t *testing.T) {
	t.Parallel()
	e, url := failing(t, Fault{Kind: "drop"})
	r := ask(t, url, streamed)
	require.Error(t, r.broken)
	require.Zero(t, r.status)
	require.Equal(t, "drop", last(t, e).Ended)
}

func TestCuts(t *testing.T) {
	t.Parallel()
	e, url := failing(t, Fault{Kind: "cut_clean", At: 3})
	r := ask(t, url, streamed)
	require.NoError(t, r.broken)
	require.Zero(t, r.done)
	require.Empty(t, r.choices[0].finish)
	require.Equal(t, r.choices[0].ids, last(t, e).Choices[0].IDs)
	require.Len(t, r.choices[0].ids, 3)
	require.Equal(t, 3, last(t, e).Choices[0].Sent)
	r = ask(t, url, hello)
	require.NoError(t, r.broken)
	require.Empty(t, r.chunks, "half a body")

	e, url = failing(t, Fault{Kind: "cut_broken", At: 3})
	r = ask(t, url, streamed)
	require.Error(t, r.broken)
	require.Len(t, r.choices[0].ids, 3)
	require.Equal(t, "cut_broken", last(t, e).Ended)
	require.Error(t, ask(t, url, hello).broken)

	_, url = failing(t, Fault{Kind: "cut_broken", At: 10_000})
	r = ask(t, url, streamed)
	require.Error(t, r.broken, "after the last id")
	require.Equal(t, "stop", r.choices[0].finish)
	require.Zero(t, r.done)
}

func TestErrorEvent(t *testing.T) {
	t.Parallel()
	_, url := failing(t, Fault{Kind: "error_event", At: 2, Status: 503, Message: "out of memory"})
	r := ask(t, url, streamed)
	require.Equal(t, 200, r.status)
	require.Contains(t, string(r.chunks[len(r.chunks)-1].Error), "out of memory")
	require.Len(t, r.choices[0].ids, 2)
	require.Equal(t, 1, r.done)
	require.Equal(t, 503, ask(t, url, hello).status)
}

func TestAbortFault(t *testing.T) {
	t.Parallel()
	for _, at := range []int{0, 4} {
		e, url := failing(t, Fault{Kind: "abort", At: at})
		for _, body := range []members{streamed, hello} {
			r := ask(t, url, body)
			require.Equal(t, 200, r.status)
			require.Equal(t, "abort", r.choices[0].finish)
			require.Len(t, r.choices[0].ids, at)
			require.Equal(t, "aborted", last(t, e).Ended)
			require.Len(t, last(t, e).Choices[0].IDs, at)
			require.Equal(t, at, r.usage.Completion)
		}
	}
	// /inference/v1/generate loses the abort's last chunk, and SGLang's repeats an id.
	e, url := server(t, Options{Default: Script{Faults: []Fault{{Kind: "abort", At: 4}, {Kind: "repeat_last"}}}})
	r := ask(t, url+"/vllm/inference/v1/generate", members{"token_ids": []int{'a'}, "stream": true})
	require.Empty(t, r.choices[0].finish)
	require.Equal(t, 1, r.done)
	r = ask(t, url+"/sglang-30917/generate", members{"input_ids": []int{'a'}, "stream": true})
	ids := last(t, e).Choices[0].IDs
	require.Contains(t, r.events[len(r.events)-1], string(appendIDs(nil, append(ids[:4:4], ids[3]))))
	require.Contains(t, r.events[len(r.events)-1], `"type":"abort"`)
}

func TestOddEnds(t *testing.T) {
	t.Parallel()
	_, url := failing(t, Fault{Kind: "no_finish"})
	r := ask(t, url, streamed)
	require.Empty(t, r.choices[0].finish)
	require.Equal(t, 1, r.done)
	require.Equal(t, "one two three four", r.choices[0].text)
	_, url = failing(t, Fault{Kind: "done_twice"})
	require.Equal(t, 2, ask(t, url, streamed).done)
	_, url = failing(t, Fault{Kind: "no_done"})
	r = ask(t, url, streamed)
	require.Zero(t, r.done)
	require.Equal(t, "stop", r.choices[0].finish)
}

func TestVersionHeader(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{Default: Script{Weights: Weights{Header: "X-Policy"}}})
	e.SetVersion("12")
	require.Equal(t, "12", ask(t, url+"/vllm/v1/chat/completions", streamed).header.Get("X-Policy"))
}

func TestVersionBump(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{Default: Script{Turns: []Turn{{Length: 20}}, Chunks: Chunks{Sizes: []int{8}},
		Weights: Weights{BumpAt: 5, BumpTo: "8", Spans: true}}})
	require.Equal(t, 200, ask(t, url+"/vllm/finish_weight_update", members{"weight_version": "7"}).status)
	require.Equal(t, 200, ask(t, url+"/vllm/update_weight_version", members{"new_version": "7"}).status)
	require.Equal(t, 400, ask(t, url+"/vllm/update_weight_version", members{"weight_version": "6"}).status)
	r := ask(t, url+"/sglang-30917/v1/chat/completions", hello)
	require.Equal(t, []VersionAt{{0, "7"}, {5, "8"}}, last(t, e).Choices[0].Versions)
	require.JSONEq(t, `{"weight_version": "8", "weight_versions": [{"version": "7", "start": 0, "end": 5}, {"version": "8", "start": 5, "end": 20}]}`,
		string(r.chunks[0].Metadata))
	_, info := get(t, url+"/vllm/weight_info")
	require.Equal(t, "8", info["weight_version"])
	_, info = get(t, url+"/sglang-30917/get_model_info")
	require.Equal(t, "8", info["weight_version"])
	ask(t, url+"/sglang-30917/update_weights_from_disk", members{"weight_version": "9"})
	ask(t, url+"/vllm/v1/chat/completions", hello)
	require.Equal(t, []VersionAt{{0, "9"}}, last(t, e).Choices[0].Versions, "only once")
	e.Script(DefaultModel, Script{Server: Server{NoDev: true}})
	status, _ := get(t, url+"/vllm/weight_info")
	require.Equal(t, http.StatusNotFound, status)
}
