package store

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"icecore/trace"
)

// Requests wait behind a commit that prunes, so a checkpoint's worth of journal goes in
// many small ones.
func TestPruneInSmallCommits(t *testing.T) {
	t.Parallel()
	s := open(t, Options{DrainInterval: time.Hour, CheckpointInterval: time.Hour})
	const each, n = 300 << 10, 40
	var batch int64
	for i := range int64(n) {
		c := call("t"+string(rune('a'+i)), "r", []int32{1}, []int32{2})
		c.RequestBody = make([]byte, each)
		var err error
		_, batch, err = s.PutTraces(t.Context(), []*trace.Trace{c})
		require.NoError(t, err)
	}
	require.NoError(t, s.WaitDrained(t.Context(), batch))
	_, later, err := s.PutTraces(t.Context(), []*trace.Trace{call("later", "r", []int32{1}, []int32{2})})
	require.NoError(t, err)

	cuts, err := s.drainer.pruneCuts(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, batch, cuts[len(cuts)-1])
	before := batch - n
	for _, cut := range cuts {
		require.LessOrEqual(t, (cut-before)*each, int64(pruneBytes))
		before = cut
	}
	commits := func() float64 { return testutil.ToFloat64(s.metrics.commits.WithLabelValues("ok")) }
	began := commits()
	require.NoError(t, s.drainer.prune(t.Context(), batch))
	require.GreaterOrEqual(t, commits()-began, float64(n*each/pruneBytes))
	var first int64
	require.NoError(t, s.control.read.QueryRowContext(t.Context(), `SELECT min(batch) FROM journal`).Scan(&first))
	require.Equal(t, later, first, "what came meanwhile stays")
}

// The control database gives room back by little pieces, and all of it in the end.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	s := open(t, Options{DrainInterval: time.Hour, CheckpointInterval: time.Hour})
	c := call("t", "r", []int32{1}, []int32{2})
	c.RequestBody = make([]byte, 4*mib)
	_, batch, err := s.PutTraces(t.Context(), []*trace.Trace{c})
	require.NoError(t, err)
	require.NoError(t, s.WaitDrained(t.Context(), batch))
	require.NoError(t, s.drainer.prune(t.Context(), batch))
	free := func() (n int64) {
		require.NoError(t, s.control.read.QueryRowContext(t.Context(), `PRAGMA freelist_count`).Scan(&n))
		return n
	}
	had := free()
	require.Greater(t, had, int64(4*mib/pageSize)) // kept for the next
	s.committer.stop()
	more, err := giveBack(t.Context(), s.committer.conn, had-100, 64)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, had-64, free())
	more, err = giveBack(t.Context(), s.committer.conn, had-100, 64)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, had-100, free())
	require.NoError(t, s.drainer.prune(t.Context(), batch)) // while closing
	require.Zero(t, free())
}
