package engine_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// busy is an engine whose health check answers nothing, or 503, once it is told to.
// Each check lets a stream go on by one token.
type busy struct {
	url     string
	silent  atomic.Bool
	ill     atomic.Bool
	streams atomic.Bool // a stream is open
	looks   atomic.Int64
	tokens  chan struct{} // one lets a token out
	got     chan struct{} // one for each token that was read
}

func newBusy(t *testing.T) *busy {
	t.Helper()
	b := &busy{tokens: make(chan struct{}), got: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		silent, ill := b.silent.Load(), b.ill.Load()
		if !silent && !ill {
			return
		}
		if b.streams.Load() {
			select {
			case b.tokens <- struct{}{}:
				select {
				case <-b.got:
				case <-r.Context().Done():
				}
			case <-r.Context().Done():
			}
		}
		b.looks.Add(1)
		if ill {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		<-r.Context().Done()
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case <-b.tokens:
				_, _ = fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

func (b *busy) config(name string) engine.Config {
	return engine.Config{Name: name, URL: b.url, Kind: engine.KindVLLM, Models: []string{"policy"}}
}

func (b *busy) await(t *testing.T, looks int64) {
	t.Helper()
	from := b.looks.Load()
	require.Eventually(t, func() bool { return b.looks.Load() >= from+looks }, soon, time.Millisecond)
}

// stream reads an answer of the engine for as long as the test lasts.
func (b *busy) stream(t *testing.T, e *engine.Engine) {
	t.Helper()
	opened := make(chan *engine.Stream)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s, err := e.Do(t.Context(), ask("hi"))
		opened <- s
		for err == nil {
			if _, err = s.Next(t.Context()); err == nil {
				select {
				case b.got <- struct{}{}:
				case <-t.Context().Done():
				}
			}
		}
	}()
	b.tokens <- struct{}{} // the engine has the call, and its headers are out
	s := <-opened
	require.NotNil(t, s)
	<-b.got
	b.streams.Store(true)
	t.Cleanup(func() {
		b.streams.Store(false)
		_ = s.Close()
		<-ended
	})
}

func quick(engines ...engine.Config) engine.Options {
	return engine.Options{Engines: engines, HealthEvery: 10 * time.Millisecond, HealthTimeout: 200 * time.Millisecond}
}

// An engine that is too busy to answer its health check, and whose streams go on, is
// healthy.
func TestBusyEngineStaysHealthy(t *testing.T) {
	t.Parallel()
	b := newBusy(t)
	p := start(t, quick(b.config("e")))
	b.stream(t, one(t, p))
	b.silent.Store(true)
	b.await(t, 6)
	s := p.Status()[0]
	require.True(t, s.Healthy, s.Why)
	require.Zero(t, s.Downs)
}

// One whose checks only run out of time is unwell after some: others come first, and
// where there is none it is used.
func TestSilentEngineStaysUsable(t *testing.T) {
	t.Parallel()
	b, other := newBusy(t), newBusy(t)
	p := start(t, quick(b.config("e"), other.config("other")))
	b.silent.Store(true)
	b.await(t, 1)
	require.True(t, p.Status()[0].Healthy, "one check that is late says nothing")
	require.Eventually(t, func() bool { return !p.Status()[0].Healthy }, soon, time.Millisecond)
	s := p.Status()[0]
	require.True(t, s.Usable)
	require.Contains(t, s.Why, "in time")
	for i := range 20 {
		e, err := p.Pick("policy", fmt.Sprint(i))
		require.NoError(t, err)
		require.Equal(t, "other", e.Name())
	}
	e, err := p.Pick("policy", "x", "other")
	require.NoError(t, err)
	require.Equal(t, "e", e.Name())
	b.silent.Store(false)
	require.Eventually(t, func() bool { return p.Status()[0].Healthy }, soon, time.Millisecond)
	require.Zero(t, p.Status()[0].Downs)
}

// One that says that it is ill is down, unless its streams go on.
func TestIllEngineWithStreams(t *testing.T) {
	t.Parallel()
	b := newBusy(t)
	p := start(t, quick(b.config("e")))
	b.stream(t, one(t, p))
	b.ill.Store(true)
	b.await(t, 6)
	s := p.Status()[0]
	require.False(t, s.Healthy)
	require.True(t, s.Usable, s.Why)
	_ = one(t, p)

	idle := newBusy(t)
	p = start(t, quick(idle.config("e")))
	idle.ill.Store(true)
	require.Eventually(t, func() bool { return p.Status()[0].Downs == 1 }, soon, time.Millisecond)
	_, err := p.Pick("policy", "x")
	f := fault(t, err, turn.CodeEngineUnreachable)
	require.Contains(t, f.Message, "overloaded")
	require.Positive(t, f.RetryAfter)
}

// An engine whose questions run out of time, one by one, is asked again, and never taken
// for what it is not.
func TestSlowQuestions(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) <= 2 {
			<-r.Context().Done()
			return
		}
		_, _ = fmt.Fprint(w, `{"version":"1"}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p := start(t, quick(engine.Config{URL: server.URL, Models: []string{"policy"}}))
	var kinds []string
	require.Eventually(t, func() bool {
		s := p.Status()[0]
		kinds = append(kinds, s.Kind)
		return s.Healthy
	}, soon, time.Millisecond)
	require.Equal(t, engine.KindVLLM, p.Status()[0].Kind)
	require.NotContains(t, kinds, engine.KindOpenAI)
	require.GreaterOrEqual(t, asked.Load(), int64(3))
}
