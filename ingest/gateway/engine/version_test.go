package engine_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/engine"
)

// A call at its begin knows the version already, and must not wait for what another one
// asks at its end: the engine may take its time to say it.
func TestVersion_KnownWaitsForNobody(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	first := true
	mux.HandleFunc("GET /weight_info", func(w http.ResponseWriter, _ *http.Request) {
		if !first {
			close(asked)
			<-answer
		}
		first = false
		_, _ = w.Write([]byte(`{"weight_version":"7"}`)) // the test sees what is missing
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	e := one(t, start(t, engine.Options{Engines: []engine.Config{{URL: server.URL, Kind: engine.KindVLLM, Models: []string{"policy"}}}}))
	_, text := e.Version(t.Context(), 0)
	require.Equal(t, "7", text)

	ended := make(chan string, 1)
	go func() {
		_, text := e.Version(t.Context(), 0)
		ended <- text
	}()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n, _ := e.Version(ctx, time.Hour)
	require.NotNil(t, n)
	require.Equal(t, int64(7), *n)
	select {
	case <-ended:
		t.Fatal("the other question was answered already")
	default:
	}
	close(answer)
	require.Equal(t, "7", <-ended)
}
