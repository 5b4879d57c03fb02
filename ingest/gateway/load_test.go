package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// Many streams at once: each harness gets its own answer, each trace its own ids.
//
// It runs alone, ahead of those in parallel: it takes every processor.
func TestManyStreams(t *testing.T) {
	const streams = 1000
	r := newRig(t, "vllm", enginetest.Script{Builtin: "echo", Chunks: enginetest.Chunks{Sizes: []int{4}}})
	r.client.Transport.(*http.Transport).MaxConnsPerHost = streams
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			body := fmt.Sprintf(`{"model":"policy","stream":true,"messages":[{"role":"user","content":"number %d."}]}`, i)
			status, text, broke := r.post(fmt.Sprintf("r-%d/v1/chat/completions", i%50), body)
			if status != http.StatusOK || broke != nil {
				t.Errorf("stream %d: %d %v %.200s", i, status, broke, text)
			}
		})
	}
	all.Wait()
	entries := map[string]enginetest.Entry{}
	for _, e := range r.engine.Calls() {
		entries[e.RequestID] = e
	}
	seqs := map[string]bool{}
	for _, got := range r.store.wait(t, streams) {
		e, ok := entries[got.TraceID]
		require.True(t, ok, "the engine knows the trace's id")
		require.Equal(t, e.PromptIDs, got.PromptIDs.Flat())
		require.Equal(t, e.Choices[0].IDs, got.ResponseIDs)
		require.Equal(t, trace.StatusOK, got.Status)
		seqs[fmt.Sprintf("%s/%d", got.RolloutID, *got.Seq)] = true
	}
	require.Len(t, seqs, streams)
	require.Zero(t, r.gateway.Status().OpenCalls)
}

// BenchmarkIdleStreams tells what a stream that waits for its engine takes, both ends of
// the harness's connection included.
func BenchmarkIdleStreams(b *testing.B) {
	const streams = 1000
	for b.Loop() {
		f := &fakeEngine{pieces: []string{"x"}}
		release := make(chan struct{})
		f.last = func(context.Context) error { <-release; return io.EOF }
		r := newFakeRig(b, f)
		before := footprint()
		var open []*http.Response
		for i := range streams {
			a, err := r.call(b.Context(), fmt.Sprintf("r-%d/v1/chat/completions", i), streamed(hello+`}`))
			if err != nil {
				b.Fatal(err)
			}
			open = append(open, a)
		}
		b.ReportMetric(float64(footprint()-before)/streams, "bytes/stream")
		close(release)
		for _, a := range open {
			_, _ = io.Copy(io.Discard, a.Body)
			_ = a.Body.Close()
		}
	}
}

func footprint() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// BenchmarkDelta is the way of one token from the engine's reader to the harness's bytes.
func BenchmarkDelta(b *testing.B) {
	r := newFakeRig(b, &fakeEngine{})
	c := &call{g: r.gateway, provider: r.gateway.providers[apiChat], request: &turn.Request{Model: "policy", Stream: true}, ids: []string{"t"}, started: time.Now()}
	d := &delivery{c: c, o: newOut(discard{}, 0, "t", true), in: newFeed()}
	d.o.kind = "text/event-stream"
	d.in.accept()
	p := engine.Piece{Deltas: []turn.Delta{{Text: "token"}}}
	b.ReportAllocs()
	for b.Loop() {
		if err := d.in.put(b.Context(), &p); err != nil {
			b.Fatal(err)
		}
		d.pass()
	}
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}
func (discard) Flush()                      {}
