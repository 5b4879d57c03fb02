package gateway

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/continuity/template"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/settings"
)

// drifting is an engine whose samples are not canonical, and which renders for nobody
// unless it is told to.
func drifting() enginetest.Script {
	var s enginetest.Script
	s.Sampling.Drift = true
	return s
}

// templated has the model's messages rendered by the test engine's template in Jinja,
// with eot as what ends a turn.
func templated(t *testing.T, eot string, form template.Form) change {
	t.Helper()
	source, err := os.ReadFile("testdata/enginetest.jinja")
	require.NoError(t, err)
	parsed, err := template.New(string(source))
	require.NoError(t, err)
	raw, err := json.Marshal(eot)
	require.NoError(t, err)
	return func(o *Options, _ *fixed, _ *memory) {
		m := settings.DefaultModel("policy")
		m.Continuity, m.ReasoningParser, m.ToolParser = settings.ContinuityExactText, "think", "hermes"
		m.ChatTemplate, m.ChatTemplateTools, m.ChatTemplateParams = parsed, form, settings.Members{"eot": raw}
		o.Settings.Models = []*settings.Model{m}
	}
}

// whys counts the traces that are spliced, and gives why the others are not.
func whys(t *testing.T, r *rig, from int) (spliced int, why map[string]int) {
	t.Helper()
	why = map[string]int{}
	for _, one := range r.store.all()[from:] {
		c, _ := meta(t, one)["continuity"].(object)
		if c["spliced"] == true {
			spliced++
			continue
		}
		word, _ := c["why"].(string)
		why[word]++
	}
	return spliced, why
}

// An SGLang whose /tokenize takes no messages is spliced by the settings' template, once
// that was seen to say what the engine reads: which form of tools it is, shows too.
func TestChatTemplateSplices(t *testing.T) {
	t.Parallel()
	for api := range loops {
		for _, form := range []template.Form{"", template.AsSent} {
			t.Run(api+" "+string(form), func(t *testing.T) {
				t.Parallel()
				s := drifting()
				s.Think = "Let me think this through."
				r := newRig(t, "sglang-sglext", s, templated(t, "<|im_end|>\n", form))
				first := runAgent(t, r, api)
				runAgent(t, r, api)
				for i, one := range r.store.all() {
					entry := r.engine.Calls()[i]
					require.Equal(t, entry.PromptIDs, one.PromptIDs.Flat())
					require.Equal(t, entry.Choices[0].IDs, one.ResponseIDs)
					if i > len(first) {
						c, _ := meta(t, one)["continuity"].(object)
						require.Equal(t, true, c["spliced"], "call %d: %v", i, c)
						require.Equal(t, "extends", c["label"])
					}
				}
			})
		}
	}
}

// A template that says anything else than the engine reads is never used, whatever the
// form of tools; nor is one whose form is not the engine's.
func TestChatTemplateThatDisagrees(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]change{
		"no newline": templated(t, "<|im_end|>", ""), "an end of its own": templated(t, "<|im_end|>\n\n", template.AsSent),
		"another form": templated(t, "<|im_end|>\n", template.Filled),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "sglang-sglext", drifting(), with)
			for range 3 {
				runAgent(t, r, apiChat)
			}
			spliced, why := whys(t, r, 0)
			require.Zero(t, spliced)
			require.Equal(t, map[string]int{"first": 1, "disagrees": len(r.store.all()) - 1}, why)
		})
	}
}

// Without a template such an engine is not spliced; an engine that renders is asked
// before any template, so a wrong one does no harm.
func TestTheEngineRendersFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, "sglang-sglext", drifting(), func(o *Options, _ *fixed, _ *memory) {
		m := settings.DefaultModel("policy")
		m.Continuity = settings.ContinuityExactText
		o.Settings.Models = []*settings.Model{m}
	})
	runAgent(t, r, apiChat)
	spliced, why := whys(t, r, 0)
	require.Zero(t, spliced)
	require.Equal(t, map[string]int{"no_render": len(r.store.all())}, why)

	s := drifting()
	s.Server.TokenizeMessages = true
	r = newRig(t, "sglang-sglext", s, templated(t, "wrong", ""))
	first := runAgent(t, r, apiChat)
	runAgent(t, r, apiChat)
	_, why = whys(t, r, len(first))
	require.Equal(t, map[string]int{"no_match": 1}, why, "of a conversation begun anew")
}

// What is proven holds for the template's variables that it was proven with.
func TestProofHoldsForItsParameters(t *testing.T) {
	t.Parallel()
	r := newRig(t, "sglang-sglext", enginetest.Script{Turns: []enginetest.Turn{{Text: "the thing in the string"}}, Sampling: enginetest.Sampling{Drift: true}},
		templated(t, "<|im_end|>\n", ""))
	ask := func(more string) {
		t.Helper()
		status, text, _ := r.post("r/v1/chat/completions", hello+`,"tools":[{"type":"function","function":{"name":"bash","parameters":{}}}]`+more+`}`)
		require.Equal(t, 200, status, text)
	}
	last := func() string {
		all := r.store.all()
		c, _ := meta(t, all[len(all)-1])["continuity"].(object)
		word, _ := c["why"].(string)
		return word
	}
	ask(`,"tool_choice":"none"`)
	require.Equal(t, "no_render", last(), "some engines show no tools then, and others do")
	ask("")
	require.Equal(t, "not_proven", last())
	ask("")
	require.Equal(t, "no_match", last(), "it is proven: only that nothing goes on from there")
	for _, more := range []string{`,"chat_template_kwargs":{"enable_thinking":false}`, `,"chat_template_kwargs":{"enable_thinking":true}`} {
		ask(more)
		require.Equal(t, "not_proven", last(), more)
		ask(more)
		require.Equal(t, "no_match", last(), more)
	}
}

// An engine that disagreed and was down since may be another: it is proven anew.
func TestTrustAfterARestart(t *testing.T) {
	t.Parallel()
	wrong := drifting()
	wrong.Server.TokenizeMessages = true
	right := wrong
	wrong.IDs.Prompt = "wrong"
	r := newRig(t, "vllm", wrong, func(o *Options, _ *fixed, _ *memory) {
		m := settings.DefaultModel("policy")
		m.Continuity, m.ReasoningParser, m.ToolParser = settings.ContinuityExactText, "think", "hermes"
		o.Settings.Models = []*settings.Model{m}
		o.Settings.Limits.HealthEvery = 10 * time.Millisecond
	})
	runAgent(t, r, apiChat)
	r.engine.Script("policy", right)
	before := len(r.store.all())
	runAgent(t, r, apiChat)
	spliced, why := whys(t, r, before)
	require.Zero(t, spliced)
	require.Equal(t, map[string]int{"disagrees": len(r.store.all()) - before}, why)

	status := func() engine.Status { return r.gateway.Status().Engines[0] }
	r.engine.Healthy(false)
	require.Eventually(t, func() bool { return status().Downs == 1 }, 20*time.Second, time.Millisecond)
	r.engine.Healthy(true)
	require.Eventually(t, func() bool { return status().Healthy }, 20*time.Second, time.Millisecond)
	runAgent(t, r, apiChat) // proves
	before = len(r.store.all())
	runAgent(t, r, apiChat)
	spliced, _ = whys(t, r, before)
	require.Positive(t, spliced)
}
