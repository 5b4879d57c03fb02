package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gated starts one streamed call that stops at a gate.
func gated(t *testing.T, s Script) (e *Engine, gate *Gate, url string, leave context.CancelFunc, done chan *reply) {
	gate = &Gate{}
	s.Time.Gate = gate
	if s.Turns == nil {
		s.Turns = []Turn{{Text: "one two three four"}}
	}
	e, url = server(t, Options{Default: s})
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	done = make(chan *reply, 1)
	go func() {
		done <- post(ctx, t, url+"/vllm/v1/chat/completions", streamed.with(members{"request_id": "r-1"}))
	}()
	return e, gate, url, leave, done
}

// ended waits until no call runs any more.
func ended(t *testing.T, e *Engine) {
	require.Eventually(t, func() bool { return e.Running() == 0 }, 10*time.Second, time.Millisecond)
}

func TestGateHoldsChunks(t *testing.T) {
	t.Parallel()
	e, gate, _, _, done := gated(t, Script{})
	require.NoError(t, gate.Arrived(t.Context(), 1))
	require.Empty(t, only(t, e).Choices[0].IDs)
	gate.Step(3)
	require.NoError(t, gate.Arrived(t.Context(), 4))
	running := only(t, e)
	require.Empty(t, running.Ended)
	require.Len(t, running.Choices[0].IDs, 3)
	require.Equal(t, 3, running.Choices[0].Sent)
	gate.Open()
	r := <-done
	require.Equal(t, "stop", r.choices[0].finish)
	require.Equal(t, "done", only(t, e).Ended)
}

func TestClientLeaves(t *testing.T) {
	t.Parallel()
	e, gate, _, leave, done := gated(t, Script{})
	gate.Step(4)
	require.NoError(t, gate.Arrived(t.Context(), 5))
	leave()
	require.Error(t, (<-done).broken)
	ended(t, e)
	entry := only(t, e)
	require.Equal(t, "client_gone", entry.Ended)
	require.Len(t, entry.Choices[0].IDs, 4)
}

// An engine that does not notice samples on.
func TestDeafEngine(t *testing.T) {
	t.Parallel()
	e, gate, _, leave, done := gated(t, Script{Faults: []Fault{{Kind: "deaf"}}, Turns: []Turn{{Length: 300}}})
	gate.Step(4)
	require.NoError(t, gate.Arrived(t.Context(), 5))
	leave()
	<-done
	gate.Open()
	ended(t, e)
	require.Len(t, only(t, e).Choices[0].IDs, 300)
	require.Equal(t, "client_gone", only(t, e).Ended)
	require.Less(t, only(t, e).Choices[0].Sent, 300)
}

func TestAbortByID(t *testing.T) {
	t.Parallel()
	e, gate, url, _, done := gated(t, Script{})
	gate.Step(4)
	require.NoError(t, gate.Arrived(t.Context(), 5))
	ask(t, url+"/vllm/abort_requests", members{"request_ids": []string{"other"}})
	require.Equal(t, 1, e.Running())
	ask(t, url+"/vllm/abort_requests", members{"request_ids": []string{"r-1"}})
	r := <-done
	require.Equal(t, "abort", r.choices[0].finish)
	require.Len(t, r.choices[0].ids, 4)
	require.Equal(t, 1, r.done)
	require.Equal(t, "aborted", only(t, e).Ended)
	require.Equal(t, "r-1", only(t, e).RequestID)
}

func TestAbortIgnored(t *testing.T) {
	t.Parallel()
	_, gate, url, _, done := gated(t, Script{Faults: []Fault{{Kind: "deaf_abort"}}})
	require.NoError(t, gate.Arrived(t.Context(), 1))
	ask(t, url+"/sglang-30917/abort_request", members{"rid": "r-1"})
	gate.Open()
	require.Equal(t, "stop", (<-done).choices[0].finish)
}

func TestPauseAbort(t *testing.T) {
	t.Parallel()
	e, gate, url, _, done := gated(t, Script{})
	gate.Step(2)
	require.NoError(t, gate.Arrived(t.Context(), 3))
	require.Equal(t, 200, ask(t, url+"/vllm/pause?mode=abort", nil).status)
	require.Equal(t, "abort", (<-done).choices[0].finish)
	_, state := get(t, url+"/vllm/is_paused")
	require.Equal(t, true, state["is_paused"])

	gate.Open()
	waiting := make(chan *reply)
	go func() { waiting <- ask(t, url+"/vllm/v1/chat/completions", streamed) }()
	require.Eventually(t, func() bool { return e.Running() == 1 }, 10*time.Second, time.Millisecond)
	e.SetVersion("8")
	ask(t, url+"/vllm/resume", nil)
	require.Equal(t, "stop", (<-waiting).choices[0].finish)
	require.Equal(t, []VersionAt{{0, "8"}}, last(t, e).Choices[0].Versions, "it waited for the new weights")
}

// A pause that keeps requests lets one answer span two versions.
func TestPauseKeep(t *testing.T) {
	t.Parallel()
	e, gate, url, _, done := gated(t, Script{})
	gate.Step(2)
	require.NoError(t, gate.Arrived(t.Context(), 3))
	ask(t, url+"/vllm/pause?mode=keep", nil)
	gate.Open()
	e.SetVersion("8")
	ask(t, url+"/sglang-30917/continue_generation", members{})
	require.Equal(t, "stop", (<-done).choices[0].finish)
	require.Equal(t, []VersionAt{{0, "default"}, {2, "8"}}, only(t, e).Choices[0].Versions)
}

func TestPauseWaitLetsRunningEnd(t *testing.T) {
	t.Parallel()
	e, gate, _, _, done := gated(t, Script{})
	require.NoError(t, gate.Arrived(t.Context(), 1))
	e.Pause("wait")
	gate.Open()
	require.Equal(t, "stop", (<-done).choices[0].finish)
}

func TestRestart(t *testing.T) {
	t.Parallel()
	e, gate, _, _, done := gated(t, Script{})
	e.SetVersion("8")
	gate.Step(2)
	require.NoError(t, gate.Arrived(t.Context(), 3))
	e.Restart()
	require.Error(t, (<-done).broken)
	require.Equal(t, "restart", only(t, e).Ended)
	require.Equal(t, "default", e.Version())
}

func TestNeverEnds(t *testing.T) {
	t.Parallel()
	e, gate, _, leave, done := gated(t, Script{Time: Time{NeverEnds: true}, Turns: []Turn{{Length: 5}}})
	gate.Open()
	require.NoError(t, gate.Arrived(t.Context(), 5))
	require.Len(t, only(t, e).Choices[0].IDs, 4)
	leave()
	require.Error(t, (<-done).broken)
	ended(t, e)
	require.Equal(t, "client_gone", only(t, e).Ended)
}

func TestHeadersWait(t *testing.T) {
	t.Parallel()
	gate := &Gate{}
	e, url := server(t, Options{Default: Script{Time: Time{Headers: gate}}})
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan *reply, 1)
	go func() { done <- post(ctx, t, url+"/vllm/v1/chat/completions", streamed) }()
	require.NoError(t, gate.Arrived(t.Context(), 1))
	leave()
	require.Zero(t, (<-done).status)
	ended(t, e)
	require.Equal(t, "client_gone", only(t, e).Ended)
	require.Empty(t, only(t, e).Choices[0].IDs)
}

// Delays are at least as long as they say.
func TestDelays(t *testing.T) {
	t.Parallel()
	for _, c := range []Time{{HeadersMS: 30}, {FirstByteMS: 30}, {TokenMS: 10}, {StallAt: 2, StallMS: 30}} {
		_, url := server(t, Options{Default: Script{Turns: []Turn{{Length: 3}}, Time: c}})
		began := time.Now()
		require.Equal(t, "stop", ask(t, url+"/vllm/v1/chat/completions", streamed).choices[0].finish)
		require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
	}
}
