package gateway

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// A silent engine: the harness gets heartbeats in its API's form, before and after the
// engine has accepted, and then the answer (row 27).
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	marks := map[string]string{apiChat: ":", apiResponses: "response.in_progress", apiMessages: "event: ping", apiGenerate: ":"}
	for _, where := range []string{"before headers", "before a token"} {
		for _, b := range bodies {
			t.Run(where+" "+b.api, func(t *testing.T) {
				t.Parallel()
				gate := &enginetest.Gate{}
				s := says("late")
				if where == "before headers" {
					s.Time.Headers = gate
				} else {
					s.Time.Gate = gate
				}
				r := newRig(t, "vllm", s, func(o *Options, _ *fixed, _ *memory) { o.Settings.Limits.Heartbeat = 5 * time.Millisecond })
				a, err := r.call(t.Context(), paths(b.api, b.path, true), b.stream)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, a.StatusCode)
				in := bufio.NewScanner(a.Body)
				text := ""
				for strings.Count(text, marks[b.api]) < 4 && in.Scan() {
					text += in.Text() + "\n"
				}
				gate.Open()
				for in.Scan() {
					text += in.Text() + "\n"
				}
				require.NoError(t, in.Err())
				require.NoError(t, a.Body.Close())
				require.LessOrEqual(t, strings.Count(text, "event: message_start"), 1) // row 14
				require.LessOrEqual(t, strings.Count(text, "event: response.created"), 1)
				require.Equal(t, trace.StatusOK, r.store.wait(t, 1)[0].Status)
				require.Len(t, r.engine.Calls(), 1, "heartbeats ask for nothing again")
			})
		}
	}
}

// Once heartbeats went out, a fault is an event and a broken body.
func TestFaultAfterHeartbeat(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	r := newFakeRig(t, &fakeEngine{do: func(context.Context, *engine.Call) error {
		<-gone
		return &turn.Fault{Status: 503, Code: turn.CodeOverloaded, Message: "overloaded: no room"}
	}}, func(o *Options, _ *fixed, _ *memory) { o.Settings.Limits.Heartbeat = time.Millisecond })
	a, err := r.call(t.Context(), "r/v1/messages", hello+`,"max_tokens":9,"stream":true}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.StatusCode)
	close(gone)
	raw, err := io.ReadAll(a.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NoError(t, a.Body.Close())
	require.Contains(t, string(raw), "event: error")
	require.Equal(t, trace.StatusUpstreamError, r.store.wait(t, 1)[0].Status)
}

// Limits of time: the engine does not begin, or the call takes too long.
func TestTimeLimits(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]change{
		"first byte": func(o *Options, _ *fixed, _ *memory) { o.Settings.Limits.FirstByte = 10 * time.Millisecond },
		"call":       func(o *Options, _ *fixed, _ *memory) { o.Settings.Limits.Call = 10 * time.Millisecond },
	} {
		for _, stream := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := says("never")
				s.Time.Gate = &enginetest.Gate{}
				s.Chunks.NoRole = true
				r := newRig(t, "vllm", s, limit)
				body := hello + `}`
				if stream {
					body = streamed(body)
				}
				status, text, broke := r.post("r/v1/chat/completions", body)
				require.True(t, broke != nil || status == http.StatusGatewayTimeout, "%d %s", status, text)
				got := r.store.wait(t, 1)[0]
				require.Equal(t, trace.StatusUpstreamError, got.Status)
				require.Equal(t, turn.CodeTimeout, meta(t, got)["fault"])
			})
		}
	}
}

// A harness that takes nothing for too long has left: the memory of its call is freed.
func TestHarnessThatTakesNothing(t *testing.T) {
	t.Parallel()
	piece := strings.Repeat("x", 64<<10)
	f := &fakeEngine{}
	for range 2000 {
		f.pieces = append(f.pieces, piece)
	}
	r := newFakeRig(t, f, func(o *Options, _ *fixed, _ *memory) { o.Settings.Limits.Patience = 50 * time.Millisecond })
	a, err := r.call(t.Context(), "r/v1/chat/completions", streamed(hello+`}`))
	require.NoError(t, err)
	got := r.store.wait(t, 1)[0] // nothing of the body was read
	require.Equal(t, trace.StatusClientGone, got.Status)
	require.Less(t, len(got.ResponseIDs), 2000, "the engine is read no faster than the harness takes, but for a bounded rest")
	require.NoError(t, a.Body.Close())
}

// Stop lets calls end that end in time, and aborts the others; all are stored.
func TestStop(t *testing.T) {
	t.Parallel()
	gate := &enginetest.Gate{}
	s := says("abcdef")
	s.Time.Gate = gate
	r := newRig(t, "vllm", s)
	a, err := r.call(t.Context(), "r/v1/chat/completions", streamed(hello+`}`))
	require.NoError(t, err)
	gate.Step(2)
	in := bufio.NewScanner(a.Body)
	for in.Scan() && !strings.Contains(in.Text(), `"b"`) {
		continue
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- r.gateway.Stop(ctx) }()
	require.Eventually(t, func() bool {
		status, _, _ := r.post("r/v1/chat/completions", hello+`}`)
		return status == http.StatusServiceUnavailable
	}, 20*time.Second, time.Millisecond, "new calls are refused")
	require.Empty(t, r.store.all(), "the call may still end")
	cancel()
	require.NoError(t, <-stopped)
	got := r.store.all()[0]
	require.Equal(t, trace.StatusAborted, got.Status)
	require.Len(t, got.ResponseIDs, 2)
	for in.Scan() {
		require.NotContains(t, in.Text(), "[DONE]")
	}
	require.Error(t, in.Err())
	require.NoError(t, a.Body.Close())
}

func TestStopWaits(t *testing.T) {
	t.Parallel()
	gate := &enginetest.Gate{}
	s := says("abcdef")
	s.Time.Gate = gate
	r := newRig(t, "vllm", s)
	a, err := r.call(t.Context(), "r/v1/chat/completions", streamed(hello+`}`))
	require.NoError(t, err)
	require.NoError(t, gate.Arrived(t.Context(), 1))
	stopped := make(chan error, 1)
	go func() { stopped <- r.gateway.Stop(t.Context()) }()
	gate.Open()
	raw, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	require.Contains(t, string(raw), "[DONE]")
	require.NoError(t, a.Body.Close())
	require.NoError(t, <-stopped)
	require.Equal(t, trace.StatusOK, r.store.all()[0].Status)
}

func TestLimitsOfOpenCalls(t *testing.T) {
	t.Parallel()
	gate := &enginetest.Gate{}
	s := says("held")
	s.Time.Gate = gate
	r := newRig(t, "vllm", s, func(o *Options, _ *fixed, _ *memory) {
		o.Settings.Limits.MaxOpen, o.Settings.Limits.MaxOpenPerRollout = 2, 1
	})
	var open []*http.Response
	for _, rollout := range []string{"a", "b"} {
		a, err := r.call(t.Context(), rollout+"/v1/chat/completions", streamed(hello+`}`))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, a.StatusCode)
		open = append(open, a)
		full, err := r.call(t.Context(), rollout+"/v1/chat/completions", hello+`}`)
		require.NoError(t, err)
		raw, err := io.ReadAll(full.Body)
		require.NoError(t, err)
		require.NoError(t, full.Body.Close())
		require.Equal(t, http.StatusServiceUnavailable, full.StatusCode)
		require.NotEmpty(t, full.Header.Get("Retry-After"))
		require.Contains(t, string(raw), "overloaded")
	}
	require.Equal(t, 2, r.gateway.Status().OpenCalls)
	gate.Open()
	for _, a := range open {
		_, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		require.NoError(t, a.Body.Close())
	}
	for range 20 { // a place is free before the answer's end is there
		status, text, _ := r.post("a/v1/chat/completions", hello+`}`)
		require.Equal(t, http.StatusOK, status, text)
	}
	require.Zero(t, r.gateway.Status().OpenCalls)
	r.gateway.gate.mu.Lock()
	defer r.gateway.gate.mu.Unlock()
	require.Empty(t, r.gateway.gate.of)
}
