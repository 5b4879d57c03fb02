package enginebody

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func ptr[T any](v T) *T { return &v }

// TestPlaces: the odd places, and what must not be taken for ids.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body   string
		choice *int64
		want   map[string][]int32 // by source
	}{
		"no ids":            {body: `{"choices":[{"message":{"content":"[1,2]"}}]}`},
		"not JSON":          {body: `<html>502</html>`},
		"empty":             {body: ``},
		"null":              {body: `null`},
		"ids of other kind": {body: `{"choices":[{"token_ids":[1,"2",3]}]}`},
		"negative":          {body: `{"choices":[{"token_ids":[1,-2]}]}`},
		"fraction":          {body: `{"choices":[{"token_ids":[1.5]}]}`},
		"too large":         {body: `{"choices":[{"token_ids":[2147483648]}]}`},
		"empty log-probs":   {body: `{"choices":[{"logprobs":{"content":[]}}]}`},
		"known to be empty": {body: `{"choices":[{"token_ids":[]}]}`, want: map[string][]int32{"choices[0].token_ids": {}}},
		"third choice": {body: `{"choices":[{"index":0,"token_ids":[1]},{"index":2,"token_ids":[3]}]}`, choice: ptr(int64(2)),
			want: map[string][]int32{"choices[2].token_ids": {3}}},
		"the only choice": {body: `{"choices":[{"index":0,"token_ids":[1]}]}`, choice: ptr(int64(2)),
			want: map[string][]int32{"choices[0].token_ids": {1}}},
		"choice that is not there": {body: `{"choices":[{"index":0,"token_ids":[1]},{"index":1,"token_ids":[2]}]}`, choice: ptr(int64(2))},
		"interleaved choices": {body: `[{"choices":[{"index":1,"token_ids":[5]}]},{"choices":[{"index":0,"token_ids":[1]}]},{"choices":[{"index":1,"token_ids":[6]}]}]`,
			choice: ptr(int64(1)), want: map[string][]int32{"choices[1].token_ids": {5, 6}}},
		"sglang choices": {body: `[{"output_ids":[1],"meta_info":{"id":"a"}},{"output_ids":[2],"meta_info":{"id":"b"}}]`, choice: ptr(int64(1)),
			want: map[string][]int32{"output_ids": {2}}},
		"sglang abort repeats": {body: `[{"output_ids":[1,2],"meta_info":{"completion_tokens":2}},{"output_ids":[2],"meta_info":{"completion_tokens":2}}]`,
			want: map[string][]int32{"output_ids": {1, 2}}},
		"sglang attribute name": {body: `{"choices":[{"response_token_ids":[4]}]}`, want: map[string][]int32{"choices[0].response_token_ids": {4}}},
		"own record":            {body: `{"response_token_ids":[4,5],"response_logprobs":[-1,null]}`, want: map[string][]int32{"response_token_ids": {4, 5}}},
		"half told": {body: `{"choices":[{"logprobs":{"content":[{"token":"token_id:7"},{"token":"x"}]}}]}`,
			want: map[string][]int32{"choices[0].logprobs.content": {7, NotTold}}},
		"gemini": {body: `{"candidates":[{"logprobsResult":{"chosenCandidates":[{"tokenId":3,"logProbability":-1}]}}]}`,
			want: map[string][]int32{"candidates[0].logprobsResult.chosenCandidates": {3}}},
		"wrapped": {body: `{"status":200,"body":"{\"choices\":[{\"token_ids\":[8]}]}"}`, want: map[string][]int32{"choices[0].token_ids": {8}}},
	} {
		got := map[string][]int32{}
		for _, r := range ParseResponse([]byte(c.body), c.choice).Response {
			if r.IDs != nil {
				got[r.Source] = r.IDs
			}
		}
		if c.want == nil {
			require.Empty(t, got, name)
			continue
		}
		require.Equal(t, c.want, got, name)
	}
}

func TestPromptPlaces(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]int32{
		`{"prompt":[1,2]}`: {1, 2}, `{"prompt":[[1,2]]}`: {1, 2}, `{"input_ids":[3]}`: {3}, `{"token_ids":[4],"sampling_params":{}}`: {4},
		`{"prompt":"text"}`: nil, `{"prompt":[]}`: nil, `{"prompt":[[1],[2]]}`: nil, `{"messages":[]}`: nil,
	} {
		b := ParseRequest([]byte(body))
		if want == nil {
			require.Empty(t, b.Prompt, body)
			continue
		}
		require.Len(t, b.Prompt, 1, body)
		require.Equal(t, want, b.Prompt[0].IDs, body)
	}
	b := ParseResponse([]byte(`{"choices":[{"token_ids":[1]}],"prompt_logprobs":[null,{"7":{"logprob":-1}},{"8":{},"9":{}}]}`), nil)
	require.Equal(t, []int32{NotTold, 7, NotTold}, b.Prompt[0].IDs)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][2]*int64{
		`{"usage":{"prompt_tokens":3,"completion_tokens":2}}`:                                          {ptr(int64(3)), ptr(int64(2))},
		`{"type":"message","usage":{"input_tokens":3,"cache_read_input_tokens":10,"output_tokens":2}}`: {ptr(int64(13)), ptr(int64(2))},
		`{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"thoughtsTokenCount":5}}`:     {ptr(int64(3)), ptr(int64(7))},
		`{"choices":[{"index":0},{"index":1}],"usage":{"prompt_tokens":3,"completion_tokens":9}}`:      {ptr(int64(3)), nil},
		`{"usage":{"prompt_tokens":-1,"completion_tokens":"2"}}`:                                       {nil, nil},
		`{"prompt_eval_count":4,"eval_count":6,"done":true}`:                                           {ptr(int64(4)), ptr(int64(6))},
		"data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n" +
			"data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":8}}\n\n": {ptr(int64(5)), ptr(int64(8))},
		`[{"type":"response.created","response":{"usage":null}},{"type":"response.completed","response":{"output":[],"usage":{"input_tokens":5,"output_tokens":8}}}]`: {ptr(int64(5)), ptr(int64(8))},
	} {
		b := ParseResponse([]byte(body), nil)
		require.Equal(t, want, [2]*int64{b.Usage.Prompt, b.Usage.Response}, body)
	}
}

// TestResponsesLogprobs: of the Responses API only the last word counts, and it
// speaks of the visible text alone.
func TestResponsesLogprobs(t *testing.T) {
	t.Parallel()
	b := ParseResponse([]byte(`[{"type":"response.output_text.delta","logprobs":[{"token":"a","logprob":-5}]},
		{"type":"response.completed","response":{"output":[{"type":"reasoning"},
			{"type":"message","content":[{"type":"output_text","logprobs":[{"token":"a","logprob":-1}]}]}]}}]`), nil)
	require.True(t, b.Streamed)
	require.Len(t, b.Response, 1)
	require.Equal(t, "output[1].content[0].logprobs", b.Response[0].Source)
	require.True(t, b.Response[0].TextOnly)
	require.Equal(t, []float32{-1}, b.Response[0].Logprobs.Values)
}

// FuzzBody: whatever a body is, reading it ends, and what is read is well
// formed.
func FuzzBody(f *testing.F) {
	s := &sampled{prompt: []int32{1, 2}, response: []int32{3, 4, 5}, logprobs: []float32{-1, -2, -3}}
	for _, sh := range shapes {
		f.Add([]byte(sh.write(s)), int64(0))
		chunks := sh.chunks(s, [][2]int{{0, 1}, {1, 3}})
		f.Add([]byte("["+strings.Join(chunks, ",")+"]"), int64(1))
		f.Add([]byte("data: "+strings.Join(chunks, "\n\ndata: ")), int64(0))
	}
	f.Add([]byte(strings.Repeat("data: [\n", 200)), int64(0))
	f.Add([]byte(`{"choices":[null,{"index":-1,"logprobs":[NaN,-Infinity,{"logprob":1}]}],"meta_info":{"completion_tokens":0}}`), int64(0))
	f.Fuzz(func(t *testing.T, raw []byte, choice int64) {
		for _, b := range []*Body{ParseResponse(raw, &choice), ParseResponse(raw, nil), ParseRequest(raw)} {
			for _, r := range append(b.Prompt, b.Response...) {
				require.NotEmpty(t, r.Source)
				require.True(t, r.IDs != nil || r.Logprobs != nil)
				if r.IDs != nil && r.Logprobs != nil {
					require.Equal(t, len(r.IDs), r.Logprobs.Len(), r.Source)
				}
				for _, id := range r.IDs {
					require.GreaterOrEqual(t, id, NotTold)
				}
			}
		}
	})
}
