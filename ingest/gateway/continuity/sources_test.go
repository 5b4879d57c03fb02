package continuity

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// other is an engine with another tokenizer under the same model name: every id is one
// higher.
type other struct{ *engine }

func (o other) Source() string { return "other" }

func (o other) Render(ctx context.Context) ([]int32, error) {
	ids, err := o.engine.Render(ctx)
	return moved(ids, 1), err
}

func (o other) Tokenize(ctx context.Context, text string) ([]int32, error) {
	ids, err := o.engine.Tokenize(ctx, text)
	return moved(ids, 1), err
}

func (o other) Detokenize(ctx context.Context, ids []int32) (string, error) {
	return o.engine.Detokenize(ctx, moved(ids, -1))
}

func moved(ids []int32, by int32) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = id + by
	}
	return out
}

// What one engine decoded says nothing of what the ids are to another.
func TestATextIsOfOneEngine(t *testing.T) {
	t.Parallel()
	w := newWorld()
	// The prompt drifted early, so both engines' renderings part from it at one place.
	w.held.Tokens = encode(decodeBytes(w.held.Tokens), smallest)
	w.held.PromptLen = len(encode(template{}.render(history, true), smallest))
	match := w.matches()[0]
	here, err := Splice(t.Context(), match, w.engine)
	require.NoError(t, err)
	require.NotNil(t, here.PromptIDs, here.Why)
	there, err := Splice(t.Context(), match, other{w.engine})
	require.NoError(t, err)
	require.Nil(t, there.PromptIDs)
	require.NotEmpty(t, there.Why)
}
