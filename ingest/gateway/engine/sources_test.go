package engine_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What an engine says twice must be the same twice; otherwise the trace is kept and not
// trained. What cannot be read costs the harness nothing.
func TestSourcesThatDisagree(t *testing.T) {
	t.Parallel()
	stream := func(events ...string) string {
		return "data: " + strings.Join(append(events, "[DONE]"), "\n\ndata: ") + "\n\n"
	}
	usage := `{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2}}`
	answer := func(choice string) string {
		return `{"choices":[{"index":0,"delta":{"content":"ab"},` + choice + `,"finish_reason":"stop"}]}`
	}
	role := func(prompt string) string {
		return `{"prompt_token_ids":` + prompt + `,"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`
	}
	for name, row := range map[string]struct {
		kind, body string
		prompt     []int32
		ids        []int32
		incomplete bool
		flag       string
	}{
		"all agree":                 {"vllm", stream(role(`[1,2]`), answer(`"token_ids":[5,6]`), usage), []int32{1, 2}, []int32{5, 6}, false, ""},
		"prompt shorter than told":  {"vllm", stream(role(`[1]`), answer(`"token_ids":[5,6]`), usage), []int32{1}, []int32{5, 6}, true, "usage_mismatch_prompt"},
		"prompt longer than told":   {"vllm", stream(role(`[1,2,3]`), answer(`"token_ids":[5,6]`), usage), []int32{1, 2, 3}, []int32{5, 6}, true, "usage_mismatch_prompt"},
		"prompt empty, but counted": {"vllm", stream(role(`[]`), answer(`"token_ids":[5,6]`), usage), nil, []int32{5, 6}, false, ""},
		"more ids than counted":     {"vllm", stream(role(`[1,2]`), answer(`"token_ids":[5,6,6]`), usage), []int32{1, 2}, []int32{5, 6, 6}, true, "usage_mismatch_completion"},
		"an id that is none":        {"vllm", stream(role(`[1,2]`), answer(`"token_ids":[5,-1]`), usage), []int32{1, 2}, nil, false, "ids_missing"},
		"ids that are words":        {"vllm", stream(role(`[1,2]`), answer(`"token_ids":["a","b"]`), usage), []int32{1, 2}, nil, false, "ids_missing"},
		"prompt ids beyond int32":   {"vllm", stream(role(`[1,2147483648]`), answer(`"token_ids":[5,6]`), usage), nil, []int32{5, 6}, false, "prompt_ids_missing"},
		"log-probs name more, no usage": {"vllm", stream(role(`[1,2]`), answer(`"token_ids":[6],"logprobs":{"content":[{"token":"token_id:5","logprob":-1},{"token":"token_id:6","logprob":-1}]}`)),
			[]int32{1, 2}, []int32{6}, true, "ids_disagree"},
		"sglext and choice": {"sglang", `{"choices":[{"index":0,"message":{"content":"ab"},"token_ids":[5,7],"prompt_token_ids":[1,2],"finish_reason":"stop"}],"sglext":{"input_ids":[1,2],"output_ids":[[5,6]]},"usage":{"prompt_tokens":2,"completion_tokens":2}}`,
			[]int32{1, 2}, []int32{5, 6}, true, "ids_disagree"},
		"sglext and meta": {"sglang", `{"choices":[{"index":0,"message":{"content":"ab"},"prompt_token_ids":[1,2],"meta_info":{"output_token_logprobs":[[-0.5,5,null],[-0.25,9,null]],"completion_tokens":2},"finish_reason":"stop"}],"sglext":{"input_ids":[1,2],"output_ids":[[5,6]]},"usage":{"prompt_tokens":2,"completion_tokens":2}}`,
			[]int32{1, 2}, []int32{5, 6}, true, "ids_disagree"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := serve(t, row.kind, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				if strings.HasPrefix(row.body, "data:") {
					w.Header().Set("Content-Type", "text/event-stream")
				}
				_, _ = io.WriteString(w, row.body)
			})
			r := call(t, one(t, pool), ask("hi"))
			require.ErrorIs(t, r.err, io.EOF)
			require.Equal(t, "ab", r.text(0), "the harness has its answer")
			s := r.sampled(0)
			require.Equal(t, row.prompt, s.PromptIDs)
			require.Equal(t, row.ids, s.IDs)
			require.Equal(t, row.incomplete, s.Incomplete, s.Flags)
			if row.flag != "" {
				require.Contains(t, s.Flags, row.flag)
			}
		})
	}
}
