package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/trace"
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

// A rollout that was finished before its announced call was withdrawn is complete from
// then on, and its group does not wait for the call any more.
func TestWithdrawnAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	begin(t, s, "r", "a", "b")
	put(t, s, numbered("b", "r", 2))
	finished, _, _, err := s.FinishRollout(t.Context(), "r", &trace.Finish{Status: "succeeded"})
	require.NoError(t, err)
	require.False(t, finished.Complete())
	waits := func() int64 {
		list, held, err := s.Candidates(t.Context(), "learner")
		require.NoError(t, err)
		require.Zero(t, held)
		require.Len(t, list, 1)
		return list[0].IncompleteAt
	}
	require.NotZero(t, waits())
	require.NoError(t, s.WithdrawCalls(t.Context(), []string{"a"}))
	r, err := s.Rollout(t.Context(), "r")
	require.NoError(t, err)
	require.True(t, r.Complete())
	require.Equal(t, "succeeded", r.Status)
	require.False(t, r.Reopened)
	require.Zero(t, waits())
}
