package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A call that is announced can be seen until its trace comes or it is withdrawn; then its
// rollout waits for nothing, and its number is not given again.
func TestAnnouncedAndWithdrawn(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	begin(t, s, "r", "a", "b", "c")
	announced := func(id string) *Announced {
		a, err := s.Announced(t.Context(), id)
		require.NoError(t, err)
		return a
	}
	waitsFor := func() int64 {
		r, err := s.Rollout(t.Context(), "r")
		require.NoError(t, err)
		return r.OpenIntents
	}
	require.Equal(t, &Announced{RolloutID: "r"}, announced("a"))
	require.Nil(t, announced("x"))
	put(t, s, numbered("b", "r", 2))
	require.Nil(t, announced("b"))
	require.Equal(t, int64(2), waitsFor())
	for range 2 { // again: nothing more happens
		require.NoError(t, s.WithdrawCalls(t.Context(), []string{"a", "b", "never"}))
		require.Nil(t, announced("a"))
		require.Equal(t, int64(1), waitsFor(), "c")
	}
	require.Equal(t, []int64{4}, begin(t, s, "r", "d"))
	put(t, s, numbered("c", "r", 3), numbered("d", "r", 4))
	require.Zero(t, waitsFor())
}
