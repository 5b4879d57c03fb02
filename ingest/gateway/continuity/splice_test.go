package continuity

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

var (
	history = []turn.Message{said(turn.RoleSystem, "be the one"), said(turn.RoleUser, "hello there, in the hall")}
	answer  = thought("think of the thing", "the answer in full", `{"a":  1}`)
	tool    = turn.Message{Role: turn.RoleTool, Content: turn.TextOf("the result"), CallID: "call_1"}
)

// world is a call that was made and the one that follows; a test changes one thing.
type world struct {
	held    *Held
	request []turn.Message
	engine  *engine
	model   string
	tools   string
	params  string
}

func newWorld() *world {
	return &world{
		held:    called("t-1", template{}, history, answer, "<|im_end|>", smallest),
		request: append(append(slices.Clone(history), answer), tool),
		engine:  &engine{},
		model:   "policy", tools: "tools", params: "params",
	}
}

func (w *world) matches() []*Match {
	m := NewMemory(0)
	m.Put("thread", w.held)
	w.engine.messages = w.request
	return m.Candidates("thread", &turn.Request{Messages: w.request}, w.model, w.tools, w.params)
}

func TestSpliceKeepsTheSampledIDs(t *testing.T) {
	t.Parallel()
	w := newWorld()
	plan, err := Best(context.Background(), w.matches(), w.engine)
	require.NoError(t, err)
	require.Empty(t, plan.Why)
	require.Equal(t, "t-1", plan.From)
	require.Equal(t, len(w.held.Tokens), plan.Kept)
	require.Equal(t, w.held.Tokens, plan.PromptIDs[:plan.Kept])
	require.NotEqual(t, plan.Rendered, plan.PromptIDs)
	require.Equal(t, decodeBytes(plan.Rendered), decodeBytes(plan.PromptIDs))
	require.Equal(t, []string{"render", "detokenize", "detokenize", "tokenize"}, w.engine.asked)
}

// One condition fails, everything else holds.
func TestSpliceIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(w *world)
		why    string
		asked  []string
	}{
		"another model":      {func(w *world) { w.model = "other" }, WhyNoMatch, nil},
		"other parameters":   {func(w *world) { w.params = "thinking off" }, WhyNoMatch, nil},
		"other tools":        {func(w *world) { w.tools = "one more" }, WhyNoMatch, nil},
		"a message before":   {func(w *world) { w.request[0] = said(turn.RoleSystem, "be the two") }, WhyNoMatch, nil},
		"a message between":  {func(w *world) { w.request = slices.Insert(w.request, 2, said(turn.RoleUser, "note")) }, WhyNoMatch, nil},
		"answer changed":     {func(w *world) { w.request[2] = thought("think of the thing", "the answer in ful", `{"a":  1}`) }, WhyNoMatch, nil},
		"reasoning dropped":  {func(w *world) { w.request[2] = thought("", "the answer in full", `{"a":  1}`) }, WhyNoMatch, nil},
		"arguments anew":     {func(w *world) { w.request[2] = thought("think of the thing", "the answer in full", `{"a":1}`) }, WhyTextDiffers, []string{"render", "detokenize", "detokenize"}},
		"other arguments":    {func(w *world) { w.request[2] = thought("think of the thing", "the answer in full", `{"a":1.0}`) }, WhyNoMatch, nil},
		"another call's id":  {func(w *world) { w.request[2].Calls = []turn.Call{{ID: "x", Name: "f", Arguments: `{"a":  1}`}} }, WhyNoMatch, nil},
		"answer left away":   {func(w *world) { w.request = slices.Delete(w.request, 2, 4) }, WhyNoMatch, nil},
		"nothing held of it": {func(w *world) { w.held.Tokens, w.held.PromptLen = nil, 0 }, WhyNoMatch, nil},
		"thinking dropped by the template": {
			func(w *world) { w.engine.template.dropThinking = true },
			WhyTextDiffers, []string{"render", "detokenize", "detokenize"},
		},
		"another end token sampled": {
			func(w *world) { w.held = called("t-1", template{}, history, answer, "<|endoftext|>", smallest) },
			WhyTextDiffers, []string{"render", "detokenize", "detokenize"},
		},
		"held longer than the rendering": {
			func(w *world) { w.held.Tokens = append(w.held.Tokens, encode(strings.Repeat("more", 99), nil)...) },
			WhyTextDiffers, []string{"render", "detokenize", "detokenize"},
		},
		"bytes that are no rune": {
			func(w *world) {
				broken := thought("", "caf\xc3", "") // the model stopped within é
				w.held = called("t-1", template{}, history, broken, "", smallest)
				broken.Content = turn.TextOf("caf\uFFFD") // what a harness got, and what is rendered
				w.held.Messages[2] = broken
				w.request[2] = broken
			},
			WhyReplacement, []string{"render", "detokenize"},
		},
		"rest not from a token's beginning": {
			func(w *world) {
				// The template writes two line breaks, which are one token; the model wrote one.
				w.engine.template.end = "\n\n"
				w.held = called("t-1", template{end: "\n\n"}, history, answer, "\n", smallest)
			},
			WhyNotBoundary, []string{"render", "detokenize", "detokenize", "tokenize"},
		},
		"nothing follows": {
			func(w *world) {
				w.held.Tokens = encode(template{}.render(w.request, true), smallest)
			},
			WhyNotBoundary, []string{"render", "detokenize", "detokenize"},
		},
		"nothing follows, same ids": {
			func(w *world) {
				w.held.Tokens = encode(template{}.render(w.request, true), nil)
			},
			WhyNotBoundary, []string{"render"},
		},
		"no rendering":      {func(w *world) { w.engine.err = map[string]error{"render": ErrNone} }, WhyNoRender, []string{"render"}},
		"no detokenisation": {func(w *world) { w.engine.err = map[string]error{"detokenize": ErrNone} }, WhyNoRender, []string{"render", "detokenize"}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			c.change(w)
			plan, err := Best(context.Background(), w.matches(), w.engine)
			require.NoError(t, err)
			require.Nil(t, plan.PromptIDs)
			require.Equal(t, c.why, plan.Why)
			require.Equal(t, c.asked, w.engine.asked)
		})
	}
}

func TestFirstCallOfAThread(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.matches()
	plan, err := Best(context.Background(), NewMemory(0).Candidates("thread", &turn.Request{}, "", "", ""), w.engine)
	require.NoError(t, err)
	require.Equal(t, Plan{Why: WhyFirst}, plan)
	plan, err = Splice(context.Background(), nil, w.engine)
	require.NoError(t, err)
	require.Equal(t, Plan{Why: WhyFirst}, plan)
}

func TestAToolThatFailsIsTold(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"render", "detokenize", "tokenize"} {
		w := newWorld()
		down := errors.New("down")
		w.engine.err = map[string]error{tool: down}
		plan, err := Best(context.Background(), w.matches(), w.engine)
		require.ErrorIs(t, err, down)
		require.Equal(t, WhyError, plan.Why)
		require.Nil(t, plan.PromptIDs)
	}
}

func TestARenderingThatKeepsTheIDsIsThePrompt(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.held = called("t-1", template{}, history, answer, "<|im_end|>", nil)
	plan, err := Best(context.Background(), w.matches(), w.engine)
	require.NoError(t, err)
	require.Equal(t, plan.Rendered, plan.PromptIDs)
	require.Equal(t, len(w.held.Tokens), plan.Kept)
	require.Equal(t, []string{"render"}, w.engine.asked)
}

func TestTheClosingTokenComesFromTheRendering(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.held = called("t-1", template{}, history, answer, "", smallest)
	plan, err := Best(context.Background(), w.matches(), w.engine)
	require.NoError(t, err)
	require.Equal(t, len(w.held.Tokens), plan.Kept)
	require.Equal(t, imEnd, plan.PromptIDs[plan.Kept])
	require.Equal(t, decodeBytes(plan.Rendered), decodeBytes(plan.PromptIDs))
}

func TestHeldTextIsDecodedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld()
	matches := w.matches()
	for range 2 {
		_, err := Best(context.Background(), matches, w.engine)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"render", "detokenize", "detokenize", "tokenize", "render", "detokenize", "tokenize"}, w.engine.asked)
}

func TestAnotherBranchIsTried(t *testing.T) {
	t.Parallel()
	w := newWorld()
	m := NewMemory(0)
	m.Put("thread", w.held)
	m.Put("thread", called("t-2", template{}, history, answer, "<|endoftext|>", smallest))
	w.engine.messages = w.request
	plan, err := Best(context.Background(), m.Candidates("thread", &turn.Request{Messages: w.request}, "policy", "tools", "params"), w.engine)
	require.NoError(t, err)
	require.Equal(t, "t-1", plan.From)
	require.Equal(t, 1, strings.Count(strings.Join(w.engine.asked, " "), "render"))
}
