package apptest

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// ends are what a whole stream of an API has at its end, and no broken one may have.
var ends = map[string]string{"openai.chat": "[DONE]", "openai.responses": "response.completed", "anthropic.messages": "message_stop", "google.generate": "finishReason"}

// TestEngineBreaks: however an engine breaks, no harness can take what it got for a whole
// answer, in any API; and what the engine had sampled until then is kept.
func TestEngineBreaks(t *testing.T) {
	t.Parallel()
	const at = 4
	faults := map[string]struct {
		fault  enginetest.Fault
		status string
		ids    int // that are kept; -1: all
	}{
		"cut-broken":  {enginetest.Fault{Kind: "cut_broken", At: at}, "upstream_error", at},
		"cut-clean":   {enginetest.Fault{Kind: "cut_clean", At: at}, "upstream_error", at},
		"error-event": {enginetest.Fault{Kind: "error_event", At: at}, "upstream_error", at},
		"abort":       {enginetest.Fault{Kind: "abort", At: at}, "aborted", at},
		"abort-first": {enginetest.Fault{Kind: "abort", At: 0}, "aborted", 0},
		"no-finish":   {enginetest.Fault{Kind: "no_finish"}, "aborted", -1},
		"drop":        {enginetest.Fault{Kind: "drop"}, "upstream_error", 0},
		"html":        {enginetest.Fault{Kind: "html", Status: 502}, "upstream_error", 0},
		"status":      {enginetest.Fault{Kind: "status", Status: 500}, "upstream_error", 0},
	}
	models, file := scripts{}, "engines: [{url: ENGINE/vllm, kind: vllm}]\nmodels:\n"
	for name, f := range faults {
		models[name] = enginetest.Script{Turns: says("A whole answer.").Turns, Faults: []enginetest.Fault{f.fault}}
		file += "  " + name + ": {}\n"
	}
	r := newRig(t, file, models)
	r.faulty = true
	for name, f := range faults {
		for _, a := range apis {
			for _, stream := range []bool{false, true} {
				rollout := name + "-" + a.name + map[bool]string{true: "-stream"}[stream]
				body, where := a.turn(nil, stream), strings.Replace(a.path(stream), "gemini-x", name, 1)
				if body["model"] != nil {
					body["model"] = name
				}
				got, err := r.try(http.MethodPost, "/gateway/"+rollout+"/"+where, bytes.NewReader(encode(body)), "Content-Type", typeJSON)
				switch {
				case got != nil && got.status == http.StatusOK:
					require.True(t, stream, rollout)
					require.ErrorContains(t, err, "unexpected EOF", rollout)
					require.NotContains(t, string(got.body), ends[a.name], rollout)
				case got != nil:
					require.NoError(t, err)
					require.GreaterOrEqual(t, got.status, 500, "%s: %s", rollout, got.body)
					require.NotEmpty(t, parse(t, string(got.body))["error"], rollout)
				default:
					t.Fatalf("%s: %v", rollout, err)
				}
				traces := r.fullOf(rollout)
				require.Len(t, traces, 1, rollout)
				c := traces[0]
				require.Equal(t, f.status, c.Status, "%s: %s", rollout, c.Error)
				require.NotEmpty(t, c.Error)
				if f.ids == 0 {
					require.Empty(t, c.Response, rollout)
				} else {
					entry := entryOf(t, c.TraceID, r.engine)
					require.Equal(t, entry.Choices[0].IDs, c.Response, rollout)
					require.Equal(t, entry.PromptIDs, c.Prompt, rollout)
					require.True(t, f.ids < 0 || len(c.Response) == f.ids, rollout)
				}
				ro, _ := r.rollout(rollout)
				require.Zero(t, ro.OpenIntents, rollout)
			}
		}
	}
}
