package pass

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/merge"
	"icecore/store"
)

// kept counts the merges of which there are rows.
func kept(t *testing.T, s *store.Store) (n int) {
	t.Helper()
	_, warehouse, _, release := s.Databases()
	defer release()
	require.NoError(t, warehouse.QueryRow(`SELECT count(DISTINCT generation) FROM ice.merged_traces`).Scan(&n))
	return n
}

// grow merges a rollout anew after each of n traces.
func grow(t *testing.T, s *store.Store, r *Runner, n int) []int64 {
	t.Helper()
	var keys []int64
	for i := range n {
		put(t, s, call(fmt.Sprint(i), "r", int64(i), []int32{int32(i)}, []int32{2}))
		keys = []int64{key(t, s, "r")}
		require.NoError(t, r.Ensure(t.Context(), keys, strict))
	}
	return keys
}

// Old merges go by themselves, few as they are and though nothing else happens.
func TestOldMergesGoOnAnIdleServer(t *testing.T) {
	t.Parallel()
	s, r := pair(t, t.TempDir(), Options{Quiet: still, KeepSuperseded: 20 * time.Millisecond})
	grow(t, s, r, 5)
	eventually(t, "only the newest is left", func() bool { return kept(t, s) == 1 })
	require.Len(t, rows(t, s, "r", strict), 5)
	eventually(t, "the runner knows that nothing is left", func() bool {
		r.merging.Lock()
		defer r.merging.Unlock()
		return !r.unswept
	})
}

// What is too young for one sweep is not forgotten: a later one takes it.
func TestYoungMergesStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, r := pair(t, dir, Options{Quiet: still})
	ctx := t.Context()
	keys := grow(t, s, r, 3)
	require.NoError(t, r.sweep(ctx))
	require.Equal(t, 3, kept(t, s))
	require.True(t, r.unswept)

	left, err := s.DropOld(ctx, 0)
	require.NoError(t, err)
	require.False(t, left)
	require.Equal(t, 1, kept(t, s))
	require.NoError(t, r.sweep(ctx))
	require.False(t, r.unswept)
	require.NoError(t, r.Ensure(ctx, keys, merge.Policy{Name: merge.PerRequest}))
	require.True(t, r.unswept)
}

// A dropped policy's rows stay for the statements that read them, while nobody
// new finds them; after a restart they go too, and no number is given out twice.
func TestRowsOfADroppedPolicyStayForAWhile(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), context.Background()
	perRequest := merge.Policy{Name: merge.PerRequest}
	s, err := store.Open(ctx, store.Options{Dir: dir, Log: silent, DiskFloor: -1, Threads: 1, MemoryLimit: 512 << 20})
	require.NoError(t, err)
	r, err := New(ctx, s, Options{Quiet: still, MaxPolicies: 1, Log: silent, Policies: []merge.Policy{perRequest}})
	require.NoError(t, err)
	put(t, s, call("a", "r", 0, []int32{1}, []int32{2}))
	keys := []int64{key(t, s, "r")}
	require.NoError(t, r.Ensure(ctx, keys, perRequest))
	require.NoError(t, s.DropPolicy(ctx, perRequest.String()))
	require.Empty(t, rows(t, s, "r", perRequest))
	names, err := s.MergedPolicies(ctx)
	require.NoError(t, err)
	require.Empty(t, names)
	_, warehouse, _, release := s.Databases()
	var shown int
	err = warehouse.QueryRow(`SELECT count(*) FROM v1.merge_policies`).Scan(&shown)
	release()
	require.NoError(t, err)
	require.Zero(t, shown)
	require.Equal(t, 1, kept(t, s))
	require.NoError(t, r.sweep(ctx))
	require.Equal(t, 1, kept(t, s), "its rows are young")
	r.Close()
	require.NoError(t, s.Close(ctx))

	s, r = pair(t, dir, Options{Quiet: still, KeepSuperseded: time.Hour})
	require.NoError(t, r.Ensure(ctx, keys, perRequest))
	require.Len(t, rows(t, s, "r", perRequest), 1)
	require.Equal(t, 2, kept(t, s), "two merges, two numbers")
	left, err := s.DropOld(ctx, 0)
	require.NoError(t, err)
	require.False(t, left)
	require.Equal(t, 1, kept(t, s))
	require.Len(t, rows(t, s, "r", perRequest), 1, "what was merged since stays")
}
