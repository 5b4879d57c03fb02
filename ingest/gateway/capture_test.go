package gateway

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/settings"
	"icecore/trace"
)

// A store that fails slows the answer and changes nothing of it.
func TestStoreFailsForAWhile(t *testing.T) {
	t.Parallel()
	for _, b := range bodies {
		r := newRig(t, "vllm", says("patience"), func(_ *Options, _ *fixed, m *memory) { m.beginFails, m.putFails = 3, 3 })
		status, text, broke := r.post(paths(b.api, b.path, true), b.stream)
		require.NoError(t, broke)
		require.Equal(t, http.StatusOK, status, text)
		got := r.store.wait(t, 1)[0]
		require.Equal(t, trace.StatusOK, got.Status)
		require.Len(t, r.store.all(), 1)
		require.InDelta(t, 3, testutil.ToFloat64(r.gateway.metrics.failures.WithLabelValues("put")), 0)
		require.InDelta(t, 3, testutil.ToFloat64(r.gateway.metrics.failures.WithLabelValues("begin")), 0)
	}
}

// While the store fails the harness is shown that its answer goes on.
func TestHeartbeatsWhileStoring(t *testing.T) {
	t.Parallel()
	r := newRig(t, "vllm", says("ab"), func(o *Options, _ *fixed, m *memory) {
		o.Settings.Limits.Heartbeat = 5 * time.Millisecond
		m.putFails = 1 << 30
	})
	a, err := r.call(t.Context(), "r/v1/chat/completions", streamed(hello+`}`))
	require.NoError(t, err)
	lines := bufio.NewScanner(a.Body)
	for beats := 0; beats < 3 && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), ": storing") {
			beats++
		}
	}
	r.store.mu.Lock()
	r.store.putFails = 0
	r.store.mu.Unlock()
	done := false
	for lines.Scan() {
		done = done || strings.Contains(lines.Text(), "[DONE]")
	}
	require.NoError(t, lines.Err())
	require.True(t, done)
	require.NoError(t, a.Body.Close())
	require.NotContains(t, string(r.store.wait(t, 1)[0].ResponseBody), "storing")
}

// When the store is known to be in trouble the heartbeats of the time of storing are the
// API's own: comments do not count with every harness.
func TestHeartbeatsOfATroubledStore(t *testing.T) {
	t.Parallel()
	r := newRig(t, "vllm", says("ab"), func(o *Options, _ *fixed, m *memory) {
		o.Settings.Limits.Heartbeat = 5 * time.Millisecond
		m.putFails = 1 << 30
	})
	r.gateway.struggling.Add(1)
	a, err := r.call(t.Context(), "r/v1/messages", hello+`,"max_tokens":9,"stream":true}`)
	require.NoError(t, err)
	in := bufio.NewScanner(a.Body)
	text := ""
	for strings.Count(text, "event: ping") < 4 && in.Scan() {
		text += in.Text() + "\n"
	}
	require.NotContains(t, text, "message_stop")
	r.store.mu.Lock()
	r.store.putFails = 0
	r.store.mu.Unlock()
	for in.Scan() {
		text += in.Text() + "\n"
	}
	require.NoError(t, in.Err())
	require.Contains(t, text, "message_stop")
	require.NoError(t, a.Body.Close())
}

// A store that never comes back: a stop gives up, and says what it lost.
func TestStopGivesUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, "vllm", says("ab"), func(o *Options, _ *fixed, m *memory) {
		o.StopGrace = 20 * time.Millisecond
		m.putFails = 1 << 30
	})
	broke := make(chan error, 1)
	go func() {
		_, _, err := r.post("r/v1/chat/completions", streamed(hello+`}`))
		broke <- err
	}()
	require.Eventually(t, func() bool { return r.gateway.struggling.Load() > 0 }, 20*time.Second, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, r.gateway.Stop(ctx))
	require.Error(t, <-broke, "not durable, so not whole")
	require.Contains(t, r.log.String(), "TRACE LOST")
}

// A harness that does not wait for the store does not cost the trace.
func TestHarnessLeavesWhileStoring(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := newRig(t, "vllm", says("kept"), func(_ *Options, _ *fixed, m *memory) {
		m.putFails = 2
		m.before = func([]*trace.Trace) { cancel() }
	})
	_, err := r.call(ctx, "r/v1/chat/completions", hello+`}`)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, r.store.wait(t, 1)[0].ResponseIDs, 5)
}

// A trace that is refused is stored without its bodies; the answer is as it was.
func TestRefusedTrace(t *testing.T) {
	t.Parallel()
	r := newRig(t, "vllm", says("light"), func(_ *Options, _ *fixed, m *memory) { m.refuseBodies = true })
	status, text, broke := r.post("r/v1/chat/completions", hello+`,"n":2}`)
	require.NoError(t, broke)
	require.Equal(t, http.StatusOK, status, text)
	got := r.store.wait(t, 2)
	require.Nil(t, got[0].RequestBody)
	require.Contains(t, meta(t, got[0])["flags"], "bodies_left_out")
	require.Nil(t, got[0].ResponseBody)
	require.NotNil(t, got[0].ResponseIDs)

	r.store.mu.Lock()
	r.store.refuse = true
	r.store.mu.Unlock()
	status, text, broke = r.post("r/v1/chat/completions", streamed(hello+`}`))
	require.NoError(t, broke, "a capture fault never changes the answer")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "[DONE]")
	require.Contains(t, r.log.String(), "TRACE LOST")
	require.InDelta(t, 1, testutil.ToFloat64(r.gateway.metrics.failures.WithLabelValues("refused")), 0)
}

// A store that takes too long ends the answer badly; the trace follows all the same.
func TestCaptureWait(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		r := newRig(t, "vllm", says("late"), func(o *Options, _ *fixed, m *memory) {
			o.Settings.Limits.CaptureWait = 10 * time.Millisecond
			m.putFails = 4
		})
		body := hello + `}`
		if stream {
			body = streamed(body)
		}
		status, text, broke := r.post("r/v1/chat/completions", body)
		require.NotContains(t, text, "[DONE]")
		require.True(t, broke != nil || status == http.StatusServiceUnavailable, "%d %s", status, text)
		require.Equal(t, trace.StatusOK, r.store.wait(t, 1)[0].Status)
	}
}

// An intent that cannot become durable is waited for no longer than the harness stays, and then
// nothing was begun.
func TestBeginNeverDurable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := newRig(t, "vllm", says("never"), func(_ *Options, _ *fixed, m *memory) { m.beginFails = 1 << 30 })
	failed := make(chan error, 1)
	go func() {
		_, err := r.call(ctx, "r/v1/chat/completions", hello+`}`)
		failed <- err
	}()
	require.Eventually(t, func() bool {
		return testutil.ToFloat64(r.gateway.metrics.failures.WithLabelValues("begin")) >= 2
	}, 20*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.Eventually(t, func() bool { return r.gateway.Status().OpenCalls == 0 }, 20*time.Second, time.Millisecond)
	require.Empty(t, r.engine.Calls(), "the engine was asked without an intent")
	require.Empty(t, r.store.all())
}

// Whose bodies are kept is a setting.
func TestBodies(t *testing.T) {
	t.Parallel()
	for _, whose := range []string{settings.BodiesHarness, settings.BodiesEngine, settings.BodiesNone} {
		r := newRig(t, "vllm", says("body"), func(o *Options, _ *fixed, _ *memory) { o.Settings.Bodies = whose })
		_, text, _ := r.post("r/v1/messages", hello+`,"max_tokens":100}`)
		got := r.store.wait(t, 1)[0]
		switch whose {
		case settings.BodiesHarness:
			require.Equal(t, hello+`,"max_tokens":100}`, string(got.RequestBody))
			require.Equal(t, text, string(got.ResponseBody))
		case settings.BodiesEngine:
			require.Contains(t, string(got.RequestBody), "return_token_ids")
			require.Contains(t, string(got.ResponseBody), "token_ids")
		case settings.BodiesNone:
			require.Nil(t, got.RequestBody)
			require.Nil(t, got.ResponseBody)
		}
	}
}

// A store without room for an answer of any length: what is too long is left out, and
// said to be.
func TestRecordIsBounded(t *testing.T) {
	t.Parallel()
	o := newOut(nil, 0, "t", true)
	o.keep(make([]byte, maxRecord))
	require.Len(t, o.sent, maxRecord)
	o.keep([]byte{1})
	require.True(t, o.over)
	require.Nil(t, o.sent)
	o.keep([]byte{1})
	require.Nil(t, o.sent, "half an answer would look like one")
}
