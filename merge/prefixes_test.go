package merge

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/trace"
)

// The tree finds what comparing each sequence with each earlier one finds, however
// the ids are cut into pieces.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "pieces"), 1))
		p := NewPrefixes()
		var before [][]int32
		for range rapid.IntRange(1, 12).Draw(t, "sequences") {
			ids := drawSequence(t, before)
			nearest, shared := p.Add(cutUp(trace.TokensOf(ids), rng))
			wantNearest, wantShared := None, 0
			for i, other := range before {
				n := 0
				for n < min(len(ids), len(other)) && ids[n] == other[n] {
					n++
				}
				if i == 0 || n > wantShared {
					wantNearest, wantShared = i, n
				}
			}
			require.Equal(t, wantNearest, nearest)
			require.Equal(t, wantShared, shared)
			before = append(before, ids)
		}
	})
}

// drawSequence gives one that begins as an earlier one, or as none.
func drawSequence(t *rapid.T, before [][]int32) []int32 {
	ids := drawIDs(t, 6)
	if ids == nil {
		ids = []int32{}
	}
	if len(before) == 0 {
		return ids
	}
	other := rapid.SampledFrom(before).Draw(t, "other")
	k := rapid.IntRange(0, len(other)).Draw(t, "shared")
	return append(append([]int32{}, other[:k]...), ids...)
}
