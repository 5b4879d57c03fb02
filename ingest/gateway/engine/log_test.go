package engine_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) with(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for line := range strings.Lines(l.b.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		n++
	}
	return n
}

// An engine that comes up behind icecore: until it was reached no model is unknown for
// good, the log says once what is wrong, and says when it is over.
func TestEngineThatIsNotUpYet(t *testing.T) {
	t.Parallel()
	var stage atomic.Int32
	var looks atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			looks.Add(1)
		}
		switch {
		case stage.Load() == 0:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintf(w, "loading, look %d", looks.Load())
		case r.URL.Path == "/version":
			_, _ = io.WriteString(w, `{"version":"1"}`)
		case r.URL.Path == "/v1/models" && stage.Load() == 1:
			_, _ = io.WriteString(w, `{"data":[]}`)
		case r.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, "\ufeff"+`{"data":[{"id":"policy"}]}`)
		}
	}))
	t.Cleanup(server.Close)
	log := &lines{}
	o := quick(engine.Config{Name: "late", URL: strings.Replace(server.URL, "http://", "http://user:sesame@", 1) + "/v1"})
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	p := start(t, o)
	unreachable := func() {
		t.Helper()
		_, err := p.Pick("policy", "x")
		f := fault(t, err, turn.CodeEngineUnreachable)
		require.Equal(t, 503, f.Status)
		require.Positive(t, f.RetryAfter)
	}
	unreachable()
	from := looks.Load()
	require.Eventually(t, func() bool { return looks.Load() > from+3 }, soon, time.Millisecond)
	require.Equal(t, 1, log.with("WARN", server.URL, "loading"), "once, not at each look")
	stage.Store(1)
	require.Eventually(t, func() bool { return log.with("WARN", server.URL+"/v1/models", "before /v1") == 1 }, soon, time.Millisecond)
	unreachable()
	require.False(t, p.Status()[0].Usable)
	stage.Store(2)
	require.Eventually(t, func() bool { return p.Status()[0].Healthy }, soon, time.Millisecond)
	require.Equal(t, 1, log.with("INFO", "engine is up", server.URL))
	_ = one(t, p)
	_, err := p.Pick("another", "x")
	_ = fault(t, err, turn.CodeUnknownModel)
	require.Zero(t, log.with("sesame"))
	stage.Store(0)
	require.Eventually(t, func() bool { return log.with("WARN", server.URL, "loading") == 2 }, soon, time.Millisecond)
	stage.Store(2)
	require.Eventually(t, func() bool { return log.with("INFO", "engine is up", server.URL) == 2 }, soon, time.Millisecond)
	stage.Store(0)
	require.Eventually(t, func() bool { return log.with("WARN", server.URL, "loading") == 3 }, soon, time.Millisecond)
}

// A URL that is wrong answers, and knows no list of models.
func TestEngineAtAWrongPath(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	log := &lines{}
	named := engine.Config{Name: "named", URL: server.URL, Models: []string{"mine"}}
	o := quick(engine.Config{Name: "wrong", URL: server.URL + "/api"}, named)
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	p := start(t, o)
	require.Equal(t, 1, log.with("WARN", "engine=wrong", server.URL+"/api/v1/models", "before /v1"))
	_, err := p.Pick("policy", "x")
	_ = fault(t, err, turn.CodeEngineUnreachable)
	e, err := p.Pick("mine", "x")
	require.NoError(t, err, "the settings say what it serves")
	require.Equal(t, "named", e.Name())
}

// unlisted serves an engine whose list of models is what the test says. The number is
// of the times that it was asked for.
func unlisted(t *testing.T, list http.HandlerFunc, models ...string) (*engine.Pool, *lines, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"version":"1"}`) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		list(w, r)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	log := &lines{}
	o := quick(engine.Config{Name: "e", URL: server.URL, Models: models})
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	return start(t, o), log, &asked
}

// An engine whose list cannot be read, as with a wrong key, is not up without a model:
// it is down, and says why, until the list can be read.
func TestListThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		status    int
		body, why string
	}{
		"a wrong key": {http.StatusUnauthorized, `{"error":"Unauthorized"}`, "credential"},
		"broken":      {http.StatusInternalServerError, "oh", "answered 500"},
		"a page":      {http.StatusOK, "<html>", "no JSON object"},
		"a list":      {http.StatusOK, `[{"id":"policy"}]`, "no JSON object"},
		"cut off":     {http.StatusOK, `{"data":[{"id":"pol`, "read the list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mended atomic.Bool
			p, log, asked := unlisted(t, func(w http.ResponseWriter, _ *http.Request) {
				if mended.Load() {
					_, _ = io.WriteString(w, `{"data":[{"id":"policy"}]}`)
					return
				}
				w.WriteHeader(row.status)
				_, _ = io.WriteString(w, row.body)
			})
			require.Eventually(t, func() bool { return asked.Load() > 3 }, soon, time.Millisecond)
			s := p.Status()[0]
			require.False(t, s.Usable)
			require.Contains(t, s.Why, "cannot list its models")
			require.Contains(t, s.Why, row.why)
			require.Equal(t, 1, log.with("WARN", "cannot list its models", row.why))
			_, err := p.Pick("policy", "x")
			require.Equal(t, http.StatusServiceUnavailable, fault(t, err, turn.CodeEngineUnreachable).Status)
			mended.Store(true)
			require.Eventually(t, func() bool { return p.Status()[0].Healthy }, soon, time.Millisecond)
			_ = one(t, p)
		})
	}
}

// Where the settings name the models it is used, and the log says once what is wrong.
func TestNamedModelsNeedNoList(t *testing.T) {
	t.Parallel()
	p, log, asked := unlisted(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "policy")
	require.Eventually(t, func() bool { return asked.Load() > 3 }, soon, time.Millisecond)
	require.True(t, p.Status()[0].Healthy)
	_ = one(t, p)
	require.Equal(t, 1, log.with("WARN", "models cannot be listed", "credential"))
}

// An engine that is ill now in one way, now in another, says each once.
func TestFlappingEngine(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if looks.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	log := &lines{}
	o := quick(engine.Config{Name: "e", URL: server.URL, Kind: engine.KindVLLM, Models: []string{"policy"}})
	o.HealthTimeout = 50 * time.Millisecond
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	_ = start(t, o)
	require.Eventually(t, func() bool { return log.with("engine is down") > 0 && log.with("engine is unwell") > 0 }, soon, time.Millisecond)
	from := looks.Load()
	require.Eventually(t, func() bool { return looks.Load() > from+6 }, soon, time.Millisecond)
	require.Equal(t, 1, log.with("WARN", "engine is down"))
	require.Equal(t, 1, log.with("WARN", "engine is unwell"))
}
