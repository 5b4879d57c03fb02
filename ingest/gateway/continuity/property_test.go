package continuity

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/turn"
)

// drawText is text with many tokenisations, with runes of several bytes, marks and
// U+FFFD itself.
func drawText(t *rapid.T, label string) string {
	words := []string{"the", "th", " a", "abc", "\n", "\n\n", "é", "€", "\U0001F600", "x", "\":", "<think>", "\uFFFD", "in", "<|im_end|>", " "}
	weights := rapid.Custom(func(t *rapid.T) string { return words[min(rapid.IntRange(0, 40).Draw(t, "word"), len(words)-1)] })
	return strings.Join(rapid.SliceOfN(weights, 0, 12).Draw(t, label), "")
}

func drawAnswer(t *rapid.T) turn.Message {
	arguments := rapid.SampledFrom([]string{"", `{"a": 1}`, `{"th":"in"}`}).Draw(t, "arguments")
	return thought(drawText(t, "thinking"), drawText(t, "answer"), arguments)
}

// A thread of calls: each answer is drawn in any tokenisation, templates and harnesses
// do as they like. What is spliced has the text that was asked for and begins with the
// held ids; where the text differs, nothing is spliced.
func TestASpliceIsAnotherTokenisationOfTheSameText(t *testing.T) {
	t.Parallel()
	spliced := 0
	rapid.Check(t, func(t *rapid.T) {
		m := NewMemory(0)
		messages := []turn.Message{said("system", drawText(t, "system")), said("user", drawText(t, "user"))}
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
		p := template{
			dropThinking: rapid.IntRange(0, 3).Draw(t, "drop") == 0,
			end:          rapid.SampledFrom([]string{"", "", "\n", "\n\n", "<|im_end|>", "<|im_end|>\n\n"}).Draw(t, "end"),
		}
		var plan Plan
		for call := range rapid.IntRange(2, 5).Draw(t, "calls") {
			answer := drawAnswer(t)
			end := rapid.SampledFrom([]string{"<|im_end|>", "<|im_end|>", "", "<|endoftext|>", "\n"}).Draw(t, "sampled end")
			h := called(string(rune('a'+call)), p, messages, answer, end, pick)
			if plan.PromptIDs != nil {
				sampled := h.Tokens[h.PromptLen:]
				h.Tokens, h.PromptLen = append(slices.Clone(plan.PromptIDs), sampled...), len(plan.PromptIDs)
				h.Rendered = plan.Rendered
			}
			if cut := rapid.IntRange(0, 9).Draw(t, "cut"); cut == 0 { // the answer stops anywhere, also within a rune
				h.Tokens = h.Tokens[:rapid.IntRange(h.PromptLen, len(h.Tokens)).Draw(t, "at")]
				h.Ended = false
			}
			m.Put("x", h)
			messages = append(slices.Clone(h.Messages), said("tool", drawText(t, "result")))
			if rapid.IntRange(0, 9).Draw(t, "rewrite") == 0 {
				messages[rapid.IntRange(0, len(messages)-1).Draw(t, "which")] = said("user", drawText(t, "other"))
			}

			e := &engine{template: p, messages: messages}
			matches := m.Candidates("x", &turn.Request{Messages: messages}, "policy", "tools", "params")
			var err error
			plan, err = Best(context.Background(), matches, e)
			require.NoError(t, err)
			require.LessOrEqual(t, len(e.asked), 1+3*tries)
			want := p.render(messages, true)
			if plan.PromptIDs != nil {
				spliced++
				require.Empty(t, plan.Why)
				require.Equal(t, want, decodeBytes(plan.PromptIDs))
				from := matches[slices.IndexFunc(matches, func(m *Match) bool { return m.Held.TraceID == plan.From })]
				require.Equal(t, from.Held.Tokens, plan.PromptIDs[:plan.Kept])
				require.True(t, from.MessagesEqual)
			} else {
				require.NotEmpty(t, plan.Why)
			}

			prompt := encode(want, nil)
			for _, tools := range []Tokens{e, nil} {
				l := Classify(context.Background(), prompt, matches, tools)
				if l.Kind == First {
					continue
				}
				match := matches[slices.IndexFunc(matches, func(m *Match) bool { return m.Held.TraceID == l.From })]
				held := match.Held
				same := strings.HasPrefix(want, decodeBytes(held.Tokens))
				switch l.Kind {
				case Extends:
					require.Equal(t, held.Tokens, prompt[:len(held.Tokens)])
				case Retokenised:
					require.True(t, same)
				case TemplateGap:
					require.True(t, !same || l.Of-l.Shared == 1) // the template may merge what ended the turn
					require.LessOrEqual(t, l.Of-l.Shared, gap)
				case Rewritten:
					require.False(t, same && match.MessagesEqual)
				case Unknown:
					require.True(t, tools == nil || strings.ContainsRune(string([]rune(decodeBytes(held.Tokens))), 0xFFFD))
				}
				require.Equal(t, common(held.Tokens, prompt), l.Shared)
			}
		}
	})
	require.Positive(t, spliced)
}
