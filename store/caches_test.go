package store

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/trace"
)

// Whoever is on call sees the state of a store whose disk hangs: Status does not wait for
// a commit.
func TestStatusDoesNotWaitForACommit(t *testing.T) {
	t.Parallel()
	s := open(t, Options{DrainInterval: time.Hour, CheckpointInterval: time.Hour})
	_, _, err := s.PutTraces(t.Context(), []*trace.Trace{call("t", "r", []int32{1}, []int32{2})})
	require.NoError(t, err)
	in, hang := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := s.committer.submit(t.Context(), itemBytes, func(context.Context, *commit) error {
			close(in)
			<-hang
			return nil
		})
		done <- err
	}()
	<-in
	st, err := s.Status(t.Context())
	close(hang)
	require.NoError(t, err)
	require.Positive(t, st.HeadBytes)
	require.NoError(t, <-done)
}
