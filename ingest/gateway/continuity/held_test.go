package continuity

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

// Only what follows the first id that differs is decoded, also once a thread has been
// spliced, when a rendering leaves the held ids early in the history.
func TestOnlyTheTailIsDecoded(t *testing.T) {
	t.Parallel()
	w := newWorld()
	long := append(slices.Clone(history), said(turn.RoleUser, strings.Repeat("the long one ", 3_000)))
	m := NewMemory(0)
	e := &engine{}
	messages := long
	held := called("t-0", template{}, messages, answer, "<|im_end|>", smallest)
	for range 4 {
		m.Put("thread", held)
		messages = append(slices.Clone(held.Messages), tool)
		e.messages, e.decoded = messages, 0
		plan, err := Best(context.Background(), m.Candidates("thread", &turn.Request{Messages: messages}, w.model, w.tools, w.params), e)
		require.NoError(t, err)
		require.NotNil(t, plan.PromptIDs)
		require.Equal(t, decodeBytes(plan.Rendered), decodeBytes(plan.PromptIDs))
		require.Less(t, e.decoded, 500)

		next := called("t", template{}, messages, answer, "<|im_end|>", smallest)
		sampled := next.Tokens[next.PromptLen:]
		held = next.like()
		held.TraceID = "t-" + string(rune('0'+len(messages)))
		held.Messages, held.Rendered = next.Messages, plan.Rendered
		held.PromptLen, held.Tokens = len(plan.PromptIDs), append(slices.Clone(plan.PromptIDs), sampled...)
	}
}

func TestWhatIsCertainOfADecodedText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		from int
		want string
	}{
		{"ab", 0, "ab"},
		{"\uFFFDab", 0, ""},
		{"\uFFFDab", 1, "\uFFFDab"},
		{"\uFFFD\uFFFD\uFFFDab", 1, "\uFFFD\uFFFD\uFFFDab"},
		{"\uFFFD\uFFFD\uFFFD\uFFFDab", 1, "\uFFFD\uFFFD\uFFFD"},
		{"ab\uFFFD", 1, "ab"},
		{"", 1, ""},
	} {
		require.Equal(t, c.want, certain(c.text, c.from))
	}
}

// A cut within a rune: 16 ids before the first that differs stands the second byte of é.
func TestACutWithinARuneIsNoDoubt(t *testing.T) {
	t.Parallel()
	w := newWorld()
	short := thought("", "\U0001F600"+strings.Repeat("x", backOff-3)+"the", "")
	prompt := encode(template{}.render(history, true), nil)
	w.held.Tokens = slices.Concat(prompt, encode("\U0001F600"+strings.Repeat("x", backOff-3)+"the", smallest))
	w.held.Messages[2], w.request[2] = short, short
	plan, err := Best(context.Background(), w.matches(), w.engine)
	require.NoError(t, err)
	require.Equal(t, w.held.Tokens, plan.PromptIDs[:plan.Kept])
	text, err := w.held.text(context.Background(), w.engine, common(w.held.Tokens, plan.Rendered)-backOff)
	require.NoError(t, err)
	require.Contains(t, text, "\uFFFD")
}
