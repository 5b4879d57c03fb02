package store

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"icecore/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a store that the test closes.
func open(t testing.TB, opts Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), quiet(t, opts))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}

func quiet(t testing.TB, opts Options) Options {
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	opts.DiskFloor = -1
	opts.Threads = 1
	opts.MemoryLimit = 512 * mib
	return opts
}

func call(id, rollout string, prompt, response []int32) *trace.Trace {
	return &trace.Trace{TraceID: id, RolloutID: rollout, PromptIDs: trace.TokensOf(prompt), ResponseIDs: response,
		Status: trace.StatusOK, Kind: trace.KindAgent}
}

func put(t testing.TB, s *Store, ts ...*trace.Trace) []Outcome {
	t.Helper()
	out, batch, err := s.PutTraces(context.Background(), ts)
	require.NoError(t, err)
	require.NoError(t, s.WaitDrained(context.Background(), batch))
	return out
}

func ptr[T any](v T) *T { return &v }
