package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/trace"
)

// Statements of users let the drain pass only if it has something to do.
func TestBehind(t *testing.T) {
	t.Parallel()
	s := open(t, Options{DrainInterval: time.Hour})
	require.False(t, s.drainer.behind())
	_, batch, err := s.PutTraces(t.Context(), []*trace.Trace{call("t", "r", []int32{1}, []int32{2})})
	require.NoError(t, err)
	require.True(t, s.drainer.behind())
	require.NoError(t, s.WaitDrained(t.Context(), batch))
	require.False(t, s.drainer.behind())
}

// What spilling may take reaches the engine, and leaves the disk's floor alone.
func TestSpillOptionsReachTheEngine(t *testing.T) {
	t.Parallel()
	o := Options{SpillLimit: 7, DiskFloor: 9}.withDefaults().engine()
	require.EqualValues(t, 7, o.SpillLimit)
	require.EqualValues(t, 9, o.DiskFloor)
}
