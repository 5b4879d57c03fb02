package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// bodyTree makes n bodies, each of which builds on an earlier one or on none.
func bodyTree(t *rapid.T, n int) (*bodyChains, map[int64][]byte) {
	c := &bodyChains{all: map[int64]*storedBody{}, unpacked: map[int64][]byte{}}
	bodies := map[int64][]byte{0: nil}
	for key := int64(1); key <= int64(n); key++ {
		base := rapid.Int64Range(0, key-1).Draw(t, "base")
		bodies[key] = append(append([]byte(nil), bodies[base]...), fmt.Sprintf(`{"message": %d}`, key)...)
		data, err := encoders{}.compress(bodies[key], bodies[base])
		require.NoError(t, err)
		c.all[key] = &storedBody{base: base, size: len(bodies[key]), data: data}
	}
	return c, bodies
}

// Whatever is wanted comes out, once or more often, and nothing stays in memory.
func TestChainsOfBodies(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "bodies")
		c, bodies := bodyTree(t, n)
		keys := rapid.SliceOf(rapid.Int64Range(1, int64(n)+1)).Draw(t, "keys") // the last has none
		wanted, needed, err := c.plan(keys)
		require.NoError(t, err)
		require.Subset(t, needed, wanted)
		if rapid.Bool().Draw(t, "in another order") { // nothing hangs on the order of the keys
			rand.Shuffle(len(wanted), func(i, j int) { wanted[i], wanted[j] = wanted[j], wanted[i] })
		}
		for _, key := range wanted {
			got, err := c.unpack(key)
			require.NoError(t, err)
			require.Equal(t, string(bodies[key]), string(got))
		}
		for _, key := range keys {
			require.True(t, c.all[key] == nil || c.all[key].uses == 0)
		}
		require.Empty(t, c.unpacked)
	})
}

// A long chain holds two bodies at a time, and what was read of it is let go.
func TestALongChainHoldsLittle(t *testing.T) {
	t.Parallel()
	c := &bodyChains{all: map[int64]*storedBody{}, unpacked: map[int64][]byte{}}
	var base []byte
	for key := int64(1); key <= 50; key++ {
		body := append(append([]byte(nil), base...), byte(key))
		data, err := encoders{}.compress(body, base)
		require.NoError(t, err)
		c.all[key] = &storedBody{base: key - 1, size: len(body), data: data}
		base = body
	}
	wanted, needed, err := c.plan([]int64{20, 50})
	require.NoError(t, err)
	require.Equal(t, []int64{20, 50}, wanted)
	require.Len(t, needed, 50)
	_, err = c.unpack(20)
	require.NoError(t, err)
	require.Len(t, c.unpacked, 1, "20, on which 21 builds")
	require.Contains(t, c.unpacked, int64(20))
	_, err = c.unpack(50)
	require.NoError(t, err)
	require.Empty(t, c.unpacked)
}

// The bound counts all that is unpacked: bases that nobody asked for, and rows
// that come twice. One row is always given.
func TestBoundOfBodiesCountsTheirBases(t *testing.T) {
	t.Parallel()
	chains := func(size int) *bodyChains {
		return &bodyChains{all: map[int64]*storedBody{1: {size: size}, 2: {base: 1, size: size}, 3: {base: 2, size: size}, 4: {size: 1}}}
	}
	const third = maxVectorBodies / 3
	for _, c := range []struct {
		size int
		keys []int64
		ok   bool
	}{
		{third - 1, []int64{3, 4}, true},
		{third + 1, []int64{3, 4}, false},
		{third + 1, []int64{3, 3}, false},
		{third + 1, []int64{1, 2}, true},
		{third + 1, []int64{1, 1, 1, 1}, false},
		{third + 1, []int64{3}, true},
		{maxVectorBodies, []int64{3}, true},
		{maxVectorBodies, []int64{3, 9}, true}, // 9 has no body
	} {
		_, _, err := chains(c.size).plan(c.keys)
		if c.ok {
			require.NoError(t, err, c)
		} else {
			require.ErrorContains(t, err, "with those on which they build", c)
		}
	}
}
