package gateway

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/settings"
	"icecore/trace"
)

// The same bytes after a good end, unmarked, are another sample (row 28).
func TestSameBytesTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, "vllm", says("twice"))
	for range 2 {
		status, _, _ := r.post("r/v1/chat/completions", hello+`}`)
		require.Equal(t, http.StatusOK, status)
	}
	got := r.store.wait(t, 2)
	require.Len(t, r.engine.Calls(), 2, "nothing is replayed")
	for _, one := range got {
		require.Nil(t, meta(t, one)["retry_of"])
		require.InDelta(t, 1, meta(t, one)["attempt"], 0)
	}
	require.Equal(t, meta(t, got[0])["request_hash"], meta(t, got[1])["request_hash"])
}

// After a stream that broke Claude Code asks again without stream (row 30), and again:
// all are one group.
func TestFallbackIsLinked(t *testing.T) {
	t.Parallel()
	s := says("at last")
	s.Faults = []enginetest.Fault{{Kind: "cut_broken", At: 2, First: 2}}
	r := newRig(t, "vllm", s)
	_, _, broke := r.post("r/v1/messages", `{"max_tokens":9,"stream":true,"model":"policy","messages":[{"role":"user","content":"hello"}]}`)
	require.Error(t, broke)
	status, _, _ := r.post("r/v1/messages", hello+`,"max_tokens":9}`)
	require.GreaterOrEqual(t, status, 500)
	status, _, _ = r.post("r/v1/messages", hello+`,"max_tokens":9}`)
	require.Equal(t, http.StatusOK, status)
	got := r.store.wait(t, 3)
	require.Equal(t, got[0].TraceID, meta(t, got[1])["retry_of"])
	require.Equal(t, got[1].TraceID, meta(t, got[2])["retry_of"])
	require.Equal(t, got[0].TraceID, meta(t, got[2])["retry_group"])
	require.InDelta(t, 3, meta(t, got[2])["attempt"], 0)
}

// A marked retry while the first still runs (row 29): by setting the first is ended, or
// both run.
func TestMarkedRetryWhileTheFirstRuns(t *testing.T) {
	t.Parallel()
	for _, marked := range []string{settings.MarkedCancel, settings.MarkedRun} {
		t.Run(marked, func(t *testing.T) {
			t.Parallel()
			gate := &enginetest.Gate{}
			s := says("abc")
			s.Time.Gate = gate
			r := newRig(t, "vllm", s, func(o *Options, _ *fixed, _ *memory) { o.Settings.Retries.Marked = marked })
			first := make(chan error, 1)
			go func() {
				_, _, broke := r.post("r/v1/chat/completions", streamed(hello+`}`))
				first <- broke
			}()
			require.NoError(t, gate.Arrived(t.Context(), 1))
			second := make(chan error, 1)
			go func() {
				_, _, broke := r.post("r/v1/chat/completions", streamed(hello+`}`), "X-Stainless-Retry-Count", "1")
				second <- broke
			}()
			require.NoError(t, gate.Arrived(t.Context(), 2))
			if marked == settings.MarkedCancel {
				require.Error(t, <-first, "the first must not look whole")
			}
			gate.Open()
			require.NoError(t, <-second)
			if marked == settings.MarkedRun {
				require.NoError(t, <-first)
			}
			got := r.store.wait(t, 2)
			by := map[any]*trace.Trace{}
			for _, one := range got {
				by[meta(t, one)["attempt"]] = one
			}
			require.Equal(t, trace.StatusOK, by[2.0].Status)
			require.Equal(t, by[1.0].TraceID, meta(t, by[2.0])["retry_of"])
			want := trace.StatusOK
			if marked == settings.MarkedCancel {
				want = trace.StatusClientGone
			}
			require.Equal(t, want, by[1.0].Status)
		})
	}
}

// One that is sent again when its harness has left (row 27): two traces, the first is
// client_gone.
func TestResentAfterLeaving(t *testing.T) {
	t.Parallel()
	gate := &enginetest.Gate{}
	s := says("abc")
	s.Time.Gate = gate
	r := newRig(t, "vllm", s)
	ctx, cancel := context.WithCancel(t.Context())
	a, err := r.call(ctx, "r/v1/messages", hello+`,"max_tokens":9,"stream":true}`)
	require.NoError(t, err)
	cancel()
	_, err = io.ReadAll(a.Body)
	require.Error(t, err)
	require.NoError(t, a.Body.Close())
	r.store.wait(t, 1)
	gate.Open()
	_, _, broke := r.post("r/v1/messages", hello+`,"max_tokens":9,"stream":true}`)
	require.NoError(t, broke)
	got := r.store.wait(t, 2)
	require.Equal(t, trace.StatusClientGone, got[0].Status)
	require.Equal(t, trace.StatusOK, got[1].Status)
	require.Equal(t, got[0].TraceID, meta(t, got[1])["retry_of"])
}

func TestHashOf(t *testing.T) {
	t.Parallel()
	base := hashOf(apiChat, "chat/completions", []byte(`{"a":1,"b":[2]}`))
	require.Equal(t, base, hashOf(apiChat, "chat/completions", []byte(` {"b":[2], "stream":true,"a":1,"stream_options":{"include_usage":true}}`)))
	require.NotEqual(t, base, hashOf(apiChat, "chat/completions", []byte(`{"a":1,"b":[3]}`)))
	object := hashOf(apiResponses, "responses", []byte(`{"input":"x","client_metadata":{"a":1,"b":{"c":2,"d":3}}}`))
	require.Equal(t, object, hashOf(apiResponses, "responses", []byte(`{"client_metadata":{"b":{"d":3,"c":2},"a":1},"input":"x"}`)))
	require.NotEqual(t, object, hashOf(apiResponses, "responses", []byte(`{"client_metadata":{"b":{"d":3,"c":4},"a":1},"input":"x"}`)))
	require.NotEqual(t, base, hashOf(apiMessages, "messages", []byte(`{"a":1,"b":[2]}`)))
	require.Equal(t, hashOf(apiGenerate, "v1beta/models/m:generateContent", []byte(`{}`)), hashOf(apiGenerate, "v1beta/models/m:streamGenerateContent", []byte(`{}`)))
	require.NotEqual(t, hashOf(apiGenerate, "v1beta/models/m:generateContent", []byte(`{}`)), hashOf(apiGenerate, "v1beta/models/n:generateContent", []byte(`{}`)))
}

// What is remembered is bounded, by rollout and in all.
func TestRecentsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRecents()
	for i := range maxRecent + 10 {
		r.begin("r", string(rune('a'+i)), "h"+string(rune(i)), 0, nil)
	}
	require.Len(t, r.of("r").calls, maxRecent)
	for i := range maxRollouts + 10 {
		r.begin("r"+string(rune(i)), "t", "h", 0, nil)
	}
	require.Len(t, r.rollouts, maxRollouts)
	require.Equal(t, maxRollouts, r.order.Len())
}
