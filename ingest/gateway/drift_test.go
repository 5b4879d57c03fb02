package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/settings"
)

// converse has n turns of one conversation and gives the answers.
func converse(t *testing.T, r *rig, n int) {
	t.Helper()
	messages := []map[string]string{{"role": "system", "content": "You are terse."}}
	for i := range n {
		messages = append(messages, map[string]string{"role": "user", "content": fmt.Sprintf("the %d th thing", i)})
		body, err := json.Marshal(map[string]any{"model": "policy", "messages": messages})
		require.NoError(t, err)
		status, text, broke := r.post("r/v1/chat/completions", string(body))
		require.NoError(t, broke)
		require.Equal(t, http.StatusOK, status, text)
		var answer struct {
			Choices []struct {
				Message map[string]string `json:"message"`
			} `json:"choices"`
		}
		_ = json.Unmarshal([]byte(text), &answer) // tool_calls and the like may be null
		messages = append(messages, map[string]string{"role": "assistant", "content": answer.Choices[0].Message["content"]})
	}
}

func labels(t *testing.T, r *rig, n int) (out []string, spliced int) {
	t.Helper()
	for _, one := range r.store.wait(t, n) {
		c, _ := meta(t, one)["continuity"].(map[string]any)
		label, _ := c["label"].(string)
		out = append(out, label)
		if c["spliced"] == true {
			spliced++
		}
	}
	return out, spliced
}

// A canonical sampler extends by itself; one that drifts is labelled, and with
// continuity its ids are kept: what is trained is what was sampled.
func TestContinuity(t *testing.T) {
	t.Parallel()
	for _, face := range []string{"vllm", "sglang-sglext"} {
		for _, mode := range []string{settings.ContinuityOff, settings.ContinuityExactText} {
			t.Run(face+" "+mode, func(t *testing.T) {
				t.Parallel()
				s := enginetest.Script{Turns: []enginetest.Turn{{Text: "the thing in the string is the thin thing"}}}
				s.Sampling.Drift, s.Server.TokenizeMessages = true, true
				r := newRig(t, face, s, func(o *Options, _ *fixed, _ *memory) {
					m := settings.DefaultModel("policy")
					m.Continuity, m.ReasoningParser, m.ToolParser = mode, "think", "hermes"
					o.Settings.Models = []*settings.Model{m}
				})
				converse(t, r, 6)
				got, spliced := labels(t, r, 6)
				require.Equal(t, "first", got[0])
				if mode == settings.ContinuityOff {
					require.Zero(t, spliced)
					require.Contains(t, got, "retokenised")
					return
				}
				require.GreaterOrEqual(t, spliced, 3, "%v %s", got, r.store.all()[4].Metadata)
				for i, one := range r.store.all() {
					entry := r.engine.Calls()[i]
					require.Equal(t, entry.PromptIDs, one.PromptIDs.Flat())
					require.Equal(t, entry.Choices[0].IDs, one.ResponseIDs)
					require.NotContains(t, fmt.Sprint(meta(t, one)["flags"]), "splice_not_honoured")
					if i >= 3 {
						require.Equal(t, "extends", got[i])
						before := r.store.all()[i-1]
						held := append(before.PromptIDs.Flat(), before.ResponseIDs...)
						require.Equal(t, held, one.PromptIDs.Flat()[:len(held)])
					}
				}
			})
		}
	}
}
