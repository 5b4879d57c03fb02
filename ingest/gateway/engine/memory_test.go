package engine_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/engine"
)

// While an answer goes on, the body that asked for it is not held.
func TestRequestIsLetGo(t *testing.T) { //nolint:paralleltest // it measures the heap
	const size = 32 << 20
	goOn := make(chan struct{})
	p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%d\"}}]}\n\n", n)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	})
	c := ask(strings.Repeat("x", size))
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s, err := one(t, p).Do(t.Context(), c)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	piece, err := s.Next(t.Context())
	require.NoError(t, err)
	require.Greater(t, len(piece.Deltas[0].Text), 7, "all of it was sent")
	require.Less(t, heap(), before+size/4)
	close(goOn)
	well(t, read(t.Context(), s))
	runtime.KeepAlive(c)
}
