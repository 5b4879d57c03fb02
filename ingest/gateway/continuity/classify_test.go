package continuity

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(w *world)
		kind   string // with token tools
		blind  string // without
		texts  int    // how often a text is asked for
	}{
		"extends":                {func(w *world) { w.held = called("t-1", template{}, history, answer, "<|im_end|>", nil) }, Extends, Extends, 0},
		"extends, no end token":  {func(w *world) { w.held = called("t-1", template{}, history, answer, "", nil) }, Extends, Extends, 0},
		"another end token":      {func(w *world) { w.held = called("t-1", template{}, history, answer, "<|endoftext|>", nil) }, TemplateGap, TemplateGap, 0},
		"a line break too many":  {func(w *world) { w.held = called("t-1", template{}, history, answer, " <|im_end|>", nil) }, TemplateGap, Unknown, 2},
		"retokenised":            {func(*world) {}, Retokenised, Unknown, 2},
		"retokenised at the end": {func(w *world) { w.held.Tokens = retokenised(history, thought("", "ab", ""), 2); w.short() }, Retokenised, Unknown, 2},
		"thinking dropped":       {func(w *world) { w.engine.template.dropThinking = true }, Rewritten, Unknown, 2},
		"answer changed":         {func(w *world) { w.request[2] = thought("think of the thing", "the answer", "") }, Rewritten, Rewritten, 2},
		"call's id changed":      {func(w *world) { w.request[2].Calls = []turn.Call{{ID: "x", Name: "f", Arguments: `{"a":  1}`}} }, Retokenised, Rewritten, 2},
		"other tools":            {func(w *world) { w.tools = "one more" }, Retokenised, Rewritten, 2},
		"earlier message":        {func(w *world) { w.request[1] = said(turn.RoleUser, "bye") }, Rewritten, Rewritten, 0},
		"system message":         {func(w *world) { w.request[0] = said(turn.RoleSystem, "cch=1") }, Rewritten, Rewritten, 0},
		"another conversation": {
			func(w *world) {
				w.request = []turn.Message{said(turn.RoleSystem, "you are another"), said(turn.RoleUser, "x")}
			},
			First, First, 0,
		},
		"the same call again": {func(w *world) { w.request = slices.Clone(history) }, First, First, 0},
		"a doubtful rune": {
			func(w *world) {
				w.held = called("t-1", template{}, history, thought("", "caf\xc3", ""), "", smallest)
				w.held.Messages[2], w.request[2] = thought("", "caf\uFFFD", ""), thought("", "caf\uFFFD", "")
			},
			Unknown, Unknown, 2,
		},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			c.change(w)
			matches := w.matches()
			prompt := encode(w.engine.template.render(w.request, true), nil)
			got := Classify(context.Background(), prompt, matches, w.engine)
			require.Equal(t, c.kind, got.Kind)
			require.Len(t, w.engine.asked, c.texts)
			if c.kind != First {
				require.Equal(t, Label{Kind: c.kind, From: "t-1", Shared: common(prompt, w.held.Tokens), Of: len(w.held.Tokens)}, got)
			}
			require.Equal(t, c.blind, Classify(context.Background(), prompt, matches, nil).Kind)
			again := newWorld()
			c.change(again)
			again.engine.err = map[string]error{"detokenize": ErrNone}
			require.Equal(t, c.blind, Classify(context.Background(), prompt, again.matches(), again.engine).Kind)
		})
	}
}

// short makes the world's answer the two letters of retokenised.
func (w *world) short() {
	short := thought("", "ab", "")
	w.held.Messages[2], w.request[2] = short, short
}

// retokenised is a call whose last n letters were sampled one by one.
func retokenised(history []turn.Message, answer turn.Message, n int) []int32 {
	ids := called("t-1", template{}, history, answer, "", nil).Tokens
	text := pieces[ids[len(ids)-1]]
	if len(text) != n {
		panic(text)
	}
	return append(append(ids[:len(ids)-1], encode(text, smallest)...), imEnd)
}

func TestALaterFaultOfTheEngineIsNoGuess(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.engine.err = map[string]error{"detokenize": errors.New("down")}
	prompt := encode(template{}.render(w.request, true), nil)
	require.Equal(t, Unknown, Classify(context.Background(), prompt, w.matches(), w.engine).Kind)
}

// A retry of the second call goes on from the first, not from its own first attempt.
func TestARetryIsSetAgainstTheCallBefore(t *testing.T) {
	t.Parallel()
	m := NewMemory(0)
	first := called("t-1", template{}, history, answer, "<|im_end|>", nil)
	m.Put("thread", first)
	request := append(slices.Clone(first.Messages), tool)
	m.Put("thread", called("t-2", template{}, request, answer, "<|im_end|>", nil))
	prompt := encode(template{}.render(request, true), nil)
	matches := m.Candidates("thread", &turn.Request{Messages: request}, "policy", "tools", "params")
	require.Equal(t, Label{Kind: Extends, From: "t-1", Shared: len(first.Tokens), Of: len(first.Tokens)},
		Classify(context.Background(), prompt, matches, nil))
}
