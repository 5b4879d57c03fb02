package store

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// An encoder that packed other bodies before packs this one as well as a new one does.
func TestEncodersAreUsedAgain(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	text := func(n int) []byte {
		out := make([]byte, n)
		for i := range out {
			out[i] = "abcdefgh"[random.IntN(1+i%8)]
		}
		return out
	}
	es := encoders{}
	sizes := []int{0, 1, 900, 5_000, 140_000, 600_000}
	for _, old := range sizes {
		for _, add := range sizes {
			base := text(old)
			body := append(bytes.Clone(base), text(add)...)
			kind := encoderKind{bodyWindow(len(body) + len(base)), len(base) > 0}
			had := es[kind]
			data, err := es.compress(body, base)
			require.NoError(t, err)
			require.NotNil(t, es[kind])
			if had != nil {
				require.Same(t, had, es[kind])
			}
			alone, err := encoders{}.compress(body, base)
			require.NoError(t, err)
			require.Len(t, data, len(alone))
			back, err := decompress(data, base, len(body))
			require.NoError(t, err)
			require.True(t, bytes.Equal(body, back))
		}
	}
	require.Len(t, es, 3)
	_, err := es.compress(make([]byte, maxKeptWindow+1), nil)
	require.NoError(t, err)
	require.Len(t, es, 3, "it holds buffers as large as its window")
}
