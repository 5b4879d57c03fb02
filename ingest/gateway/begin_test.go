package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// open gives how many announced calls have no trace.
func (m *memory) open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.intents)
	for _, i := range m.intents {
		for _, t := range m.traces {
			if t.TraceID == i.TraceID {
				n--
			}
		}
	}
	return n
}

// While the store takes nothing, a call is refused in a bounded time: at once where the
// store says that waiting is of no use, else after limits.begin_timeout, also when the
// store says nothing at all. No engine is asked, and nothing stays announced.
func TestAnnouncingIsBounded(t *testing.T) {
	t.Parallel()
	long, short := time.Hour, 30*time.Millisecond
	for name, c := range map[string]struct {
		limit time.Duration
		begin func(hang chan struct{}) error
		// tries is how often the store is asked at most; 0: as often as there is time.
		tries     int
		withdraws int
	}{
		"the disk is full":      {long, func(chan struct{}) error { return fmt.Errorf("%w: the disk is full", ErrNotNow) }, 1, 0},
		"it fails":              {short, func(chan struct{}) error { return errFull }, 0, 1},
		"it fails, and took it": {short, func(chan struct{}) error { return errTaken }, 0, 1},
		"it hangs":              {short, func(hang chan struct{}) error { <-hang; return nil }, 1, 1},
		"it hangs and fails":    {short, func(hang chan struct{}) error { <-hang; return errFull }, 1, 1},
		"it panics":             {short, func(chan struct{}) error { panic("store") }, 0, 1},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				hang := make(chan struct{})
				tries := 0
				f := &fakeEngine{do: func(context.Context, *engine.Call) error { t.Error("an engine was asked"); return nil }}
				r := newFakeRig(t, f, func(o *Options, _ *fixed, m *memory) {
					o.Settings.Limits.BeginTimeout = c.limit
					o.Settings.Limits.Heartbeat = time.Millisecond // none comes: it would name a trace
					m.beforeBegin = func() error { tries++; return c.begin(hang) }
				})
				body := hello + `}`
				if stream {
					body = streamed(body)
				}
				a, err := r.call(t.Context(), "r/v1/chat/completions", body, "X-Client-Request-Id", "mine-7")
				require.NoError(t, err)
				require.NoError(t, a.Body.Close())
				require.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
				require.NotEmpty(t, a.Header.Get("Retry-After"))
				require.Empty(t, a.Header.Get("Icecore-Trace-Id"), "there is no trace")
				close(hang)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				require.NoError(t, r.gateway.Stop(ctx), "what takes back is waited for")
				require.Zero(t, r.store.open())
				require.Empty(t, r.store.all())
				require.Equal(t, c.withdraws, r.store.withdraws)
				if c.tries > 0 {
					require.Equal(t, c.tries, tries)
				}
				require.Contains(t, r.log.String(), "call refused")
				require.Contains(t, r.log.String(), "request=mine-7")
				require.NotContains(t, r.log.String(), "trace=")
			})
		}
	}
}

// Without a limit a call waits as long as its harness does, and is answered then.
func TestAnnouncingWithoutLimit(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, func(o *Options, _ *fixed, m *memory) {
		o.Settings.Limits.BeginTimeout = 0
		m.beginFails = 3
	})
	status, text, err := r.post("r/v1/chat/completions", hello+`}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
	require.Zero(t, r.store.open())
}

// A harness that leaves is not waited for, also where there is no limit and the store
// says nothing.
func TestHarnessLeavesAStoreThatHangs(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	hang := make(chan struct{})
	r := newFakeRig(t, &fakeEngine{}, func(o *Options, _ *fixed, m *memory) {
		o.Settings.Limits.BeginTimeout = 0
		m.beforeBegin = func() error { leave(); <-hang; return nil }
	})
	_, err := r.call(ctx, "r/v1/chat/completions", hello+`}`)
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() bool { return r.gateway.Status().OpenCalls == 0 && r.gateway.budget.empty() }, 20*time.Second, time.Millisecond)
	close(hang)
	require.NoError(t, r.gateway.Stop(t.Context()))
	require.Zero(t, r.store.open())
	require.Empty(t, r.store.all())
}

// What waits for a store that hangs, to take calls back, does not hold their requests.
//
// It runs alone, ahead of those in parallel: it measures memory.
func TestRefusedCallsHoldNothing(t *testing.T) {
	const calls, size = 16, 4 << 20
	hang := make(chan struct{})
	r := newFakeRig(t, &fakeEngine{}, func(o *Options, _ *fixed, m *memory) {
		o.Settings.Limits.BeginTimeout = time.Millisecond
		m.beforeBegin = func() error { <-hang; return nil }
	})
	body := `{"model":"policy","messages":[{"role":"user","content":"` + strings.Repeat("a", size) + `"}]}`
	before := footprint()
	for range calls {
		status, text, err := r.post("r/v1/chat/completions", body)
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, status, text)
	}
	r.client.CloseIdleConnections()
	require.Less(t, int64(footprint())-int64(before), int64(calls*size/4))
	close(hang)
	require.NoError(t, r.gateway.Stop(t.Context()))
}

// A harness that leaves while the store fails leaves no announcement behind.
func TestHarnessLeavesWhileAnnouncing(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	r := newFakeRig(t, &fakeEngine{}, func(_ *Options, _ *fixed, m *memory) {
		m.beforeBegin = func() error { leave(); return errTaken }
	})
	_, err := r.call(ctx, "r/v1/chat/completions", hello+`}`)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, r.gateway.Stop(t.Context()))
	require.Zero(t, r.store.open())
	require.Equal(t, 1, r.store.withdraws)
}

// A call for which there is no engine leaves no trace, and nothing names one.
func TestNoEngineNamesNoTrace(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &noEngine{})
	a, err := r.call(t.Context(), "r-9/v1/chat/completions", hello+`}`)
	require.NoError(t, err)
	require.NoError(t, a.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
	for _, name := range []string{"Icecore-Trace-Id", "X-Request-Id", "Request-Id"} {
		require.Empty(t, a.Header.Get(name))
	}
	require.NoError(t, r.gateway.Stop(t.Context()))
	require.Empty(t, r.store.intents)
	require.Empty(t, r.store.all())
	require.Contains(t, r.log.String(), "rollout=r-9")
	require.Contains(t, r.log.String(), "code=engine_unreachable")
	require.NotContains(t, r.log.String(), "trace=")
	require.InDelta(t, 1, testutil.ToFloat64(r.gateway.metrics.refusals.WithLabelValues(apiChat, turn.CodeEngineUnreachable)), 0)
}
