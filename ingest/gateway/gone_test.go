package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/trace"
)

// A harness that leaves after any event leaves a trace, with the ids that were sampled
// until then, which are a beginning of what the engine sampled.
func TestHarnessLeavesAtEveryEvent(t *testing.T) {
	t.Parallel()
	for _, b := range bodies {
		for lines := range 9 {
			t.Run(fmt.Sprintf("%s after line %d", b.api, lines), func(t *testing.T) {
				t.Parallel()
				gate := &enginetest.Gate{}
				s := says("abcdefghijklmnopqrstuvwxyz")
				s.Time.Gate = gate
				gate.Step(5)
				r := newRig(t, "vllm", s)
				ctx, cancel := context.WithCancel(t.Context())
				a, err := r.call(ctx, paths(b.api, b.path, true), b.stream)
				require.NoError(t, err)
				in := bufio.NewScanner(a.Body)
				for range lines {
					in.Scan()
				}
				cancel()
				_ = a.Body.Close() // it breaks off
				got := r.store.wait(t, 1)[0]
				require.Equal(t, trace.StatusClientGone, got.Status)
				entry := r.ended(1)[0]
				require.LessOrEqual(t, len(got.ResponseIDs), len(entry.Choices[0].IDs))
				require.Equal(t, entry.Choices[0].IDs[:len(got.ResponseIDs)], append([]int32{}, got.ResponseIDs...))
				require.Empty(t, got.FinishReason)
				require.NotEmpty(t, got.Error)
			})
		}
	}
}

// ended waits until n calls of the engine have ended.
func (r *rig) ended(n int) []enginetest.Entry {
	r.t.Helper()
	var calls []enginetest.Entry
	require.Eventually(r.t, func() bool {
		calls = r.engine.Calls()
		if len(calls) < n {
			return false
		}
		for _, c := range calls {
			if c.Ended == "" {
				return false
			}
		}
		return true
	}, 20*time.Second, 2*time.Millisecond)
	return calls
}

// One that leaves before the first byte does too (row 32).
func TestHarnessLeavesBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"true", "false"} {
		gate := &enginetest.Gate{}
		s := says("never read")
		s.Time.Headers = gate
		r := newRig(t, "vllm", s)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			a, err := r.call(ctx, "r/v1/chat/completions", hello+`,"stream":`+stream+`}`)
			if err == nil {
				_ = a.Body.Close()
			}
			failed <- err
		}()
		require.NoError(t, gate.Arrived(t.Context(), 1))
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		got := r.store.wait(t, 1)[0]
		require.Equal(t, trace.StatusClientGone, got.Status)
		require.Nil(t, got.ResponseIDs)
		require.Empty(t, got.FinishReason)
	}
}

// The answer was complete when the harness left: the ids are all there (row 31).
func TestHarnessLeavesWhenAllWasSampled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := newFakeRig(t, &fakeEngine{pieces: []string{"who", "le"}, last: func(life context.Context) error {
		cancel()
		<-life.Done() // the gateway has seen that the harness left
		return io.EOF
	}})
	if a, err := r.call(ctx, "r/v1/chat/completions", streamed(hello+`}`)); err == nil {
		_, err := io.ReadAll(a.Body)
		require.Error(t, err)
		require.NoError(t, a.Body.Close())
	}
	got := r.store.wait(t, 1)[0]
	require.Equal(t, trace.StatusClientGone, got.Status)
	require.Equal(t, []int32{0, 1}, got.ResponseIDs)
	require.Equal(t, "stop", got.FinishReason)
}

// An engine that hears neither that its client left nor that it is to abort samples on.
// What came until the harness left is stored at once, under the call's own trace, and
// what the engine makes afterwards is in no other (row 33).
func TestEngineIgnoresTheAbort(t *testing.T) {
	t.Parallel()
	for _, face := range []string{"vllm", "sglang-sglext"} {
		t.Run(face, func(t *testing.T) {
			t.Parallel()
			gate := &enginetest.Gate{}
			s := says("abcdefghijklmnopqrstuvwxyz")
			s.Faults = []enginetest.Fault{{Kind: "deaf", First: 1, After: 1}, {Kind: "deaf_abort", First: 1, After: 1}}
			s.Time.Gate = gate
			s.Server.StreamIDs = true // SGLang tells ids in deltas, so that there are some
			gate.Open()
			r := newRig(t, face, s)
			_, _, broke := r.post("first/v1/chat/completions", streamed(hello+`}`)) // how it tells ids shows
			require.NoError(t, broke)
			gate.Close()
			gate.Step(5)
			ctx, cancel := context.WithCancel(t.Context())
			a, err := r.call(ctx, "r/v1/chat/completions", streamed(hello+`}`))
			require.NoError(t, err)
			in := bufio.NewScanner(a.Body)
			for range 5 {
				in.Scan()
			}
			cancel()
			_ = a.Body.Close() // it breaks off
			gone := r.store.wait(t, 2)[1]
			require.Equal(t, trace.StatusClientGone, gone.Status)
			require.Equal(t, 1, r.engine.Running(), "the engine does not care, and nothing waits for it")
			// The next call of the rollout meets the engine while it still works on the first.
			gate.Open()
			_, _, broke = r.post("r/v1/chat/completions", streamed(hello+`}`))
			require.NoError(t, broke)
			next := r.store.wait(t, 3)[2]
			calls := r.ended(3)
			late, sampled := calls[1].Choices[0], calls[2].Choices[0].IDs
			require.Len(t, late.IDs, len(sampled), "it was sampled to its end")
			require.Equal(t, sampled, next.ResponseIDs)
			require.Less(t, len(gone.ResponseIDs), len(late.IDs))
			require.Equal(t, late.IDs[:len(gone.ResponseIDs)], append([]int32{}, gone.ResponseIDs...))
			require.Len(t, r.store.all(), 3)
			require.EqualValues(t, 0, r.gateway.Status().Engines[0].Open)
		})
	}
}
