package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// Whatever panics, wherever: a trace follows, the engine's answer is closed, and the
// harness gets no clean end.
func TestPanics(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"whole", "stream", "start", "delta", "end", "fail", "engine", "next"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			f := &fakeEngine{pieces: []string{"a", "b"}}
			switch at {
			case "engine":
				f.do = func(context.Context, *engine.Call) error { panic("engine") }
			case "next":
				f.last = func(context.Context) error { panic("next") }
			}
			r := newFakeRig(t, f)
			r.gateway.providers[apiChat] = panicking{r.gateway.providers[apiChat], at}
			body := streamed(hello + `}`)
			if at == "whole" {
				body = hello + `}`
			}
			status, text, broke := r.post("r/v1/chat/completions", body)
			require.True(t, broke != nil || status == http.StatusInternalServerError, "%d %s", status, text)
			require.NotContains(t, text, "[DONE]")
			require.NotContains(t, text, "goroutine", "no stack for harnesses")
			got := r.store.wait(t, 1)[0]
			require.Equal(t, trace.StatusUpstreamError, got.Status)
			require.NotEmpty(t, got.Error)
			if at != "engine" {
				require.Equal(t, []int32{0, 1}, got.ResponseIDs[:min(2, len(got.ResponseIDs))])
				require.Equal(t, 1, f.closed)
			}
			require.Contains(t, r.log.String(), "panicked")
		})
	}
}

// A body that makes a provider panic is a fault, and no call.
func TestPanicInDecode(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"decode", "fault"} {
		r := newFakeRig(t, &fakeEngine{})
		r.gateway.providers[apiChat] = panicking{r.gateway.providers[apiChat], at}
		status, text, broke := r.post("r/v1/chat/completions", `{"model":1}`)
		require.NoError(t, broke)
		require.Contains(t, []int{400, 500}, status)
		require.Contains(t, text, "message")
		require.Empty(t, r.store.intents)
	}
}

// An engine that breaks after any token: the harness gets the error event of its API
// and a broken body, never a clean end; the trace has the ids so far.
func TestEngineBreaksAtEveryToken(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"cut_clean", "cut_broken", "error_event", "abort", "no_finish"} {
		for _, b := range bodies {
			for at := range 4 {
				t.Run(fmt.Sprintf("%s %s at %d", kind, b.api, at), func(t *testing.T) {
					t.Parallel()
					s := says("abcdef")
					s.Faults = []enginetest.Fault{{Kind: kind, At: at}}
					r := newRig(t, "vllm", s)
					status, text, broke := r.post(paths(b.api, b.path, true), b.stream)
					require.True(t, broke != nil || status >= 400, "%d %s", status, text)
					for _, ending := range []string{"[DONE]", `"finish_reason":"stop"`, "message_stop", "response.completed", `"finishReason":"STOP"`} {
						require.NotContains(t, text, ending)
					}
					if status == http.StatusOK {
						require.Contains(t, text, "error")
					}
					got := r.store.wait(t, 1)[0]
					want := trace.StatusUpstreamError
					if kind == "abort" || kind == "no_finish" {
						want = trace.StatusAborted // rows 4 and 5
					}
					entry := r.ended(1)[0]
					require.NotEqual(t, "stop", got.FinishReason)
					require.Equal(t, entry.Choices[0].IDs[:len(got.ResponseIDs)], append([]int32{}, got.ResponseIDs...))
					if kind == "cut_clean" {
						require.Contains(t, []trace.Status{trace.StatusAborted, trace.StatusUpstreamError}, got.Status)
						return
					}
					require.Equal(t, want, got.Status, got.Error)
				})
			}
		}
	}
}

// What an engine refuses before it accepts is a status of the provider's, and a trace.
func TestEngineRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		retry  string
		want   []int
	}{
		{400, "", []int{400}}, {401, "", []int{502}}, {429, "7", []int{503}}, {500, "", []int{502, 503}}, {503, "", []int{503}},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(c.status, stream), func(t *testing.T) {
				t.Parallel()
				s := says("never")
				s.Faults = []enginetest.Fault{{Kind: "status", Status: c.status, RetryAfter: c.retry, Message: "no such luck"}}
				r := newRig(t, "vllm", s)
				body := hello + `}`
				if stream {
					body = streamed(body)
				}
				a, err := r.call(t.Context(), "r/v1/chat/completions", body)
				require.NoError(t, err)
				require.NoError(t, a.Body.Close())
				require.Contains(t, c.want, a.StatusCode)
				if c.retry != "" {
					require.Equal(t, c.retry, a.Header.Get("Retry-After"))
				}
				got := r.store.wait(t, 1)[0]
				require.Equal(t, trace.StatusUpstreamError, got.Status)
				require.Nil(t, got.ResponseIDs)
				require.NotContains(t, []any{nil}, meta(t, got)["fault"])
			})
		}
	}
}

// An engine that cannot be reached is passed over; the trace says so.
func TestAnotherEngine(t *testing.T) {
	t.Parallel()
	dead := httptest.NewServer(http.NotFoundHandler())
	deadURL := dead.URL
	r := newRig(t, "vllm", says("from the living"), func(o *Options, _ *fixed, _ *memory) {
		o.Settings.Engines = append([]settings.Engine{{URL: deadURL, Name: "dead", Kind: "vllm", Models: []string{"policy"}}}, o.Settings.Engines...)
	})
	dead.Close()
	for i := range 8 { // affinity prefers each of them for some rollout
		status, text, broke := r.post(fmt.Sprintf("r-%d/v1/chat/completions", i), hello+`}`)
		require.NoError(t, broke)
		require.Equal(t, http.StatusOK, status, text)
	}
	for _, got := range r.store.wait(t, 8) {
		require.Equal(t, trace.StatusOK, got.Status)
		require.Equal(t, "gpu-0", meta(t, got)["engine"])
	}
}

// A fault of an engine that cannot be reached has one another try, and no more.
func TestUnreachableOnly(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{do: func(context.Context, *engine.Call) error {
		return &turn.Fault{Status: 503, Code: turn.CodeEngineUnreachable, Message: "overloaded: the engine is away"}
	}})
	status, text, _ := r.post("r/v1/chat/completions", hello+`}`)
	require.Equal(t, http.StatusServiceUnavailable, status, text)
	require.Equal(t, trace.StatusUpstreamError, r.store.wait(t, 1)[0].Status)
}
