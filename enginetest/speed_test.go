package enginetest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkStreams is what one id costs, sent alone with its log-prob, over many
// connections at once. Latency of others is measured against this engine.
func BenchmarkStreams(b *testing.B) {
	const ids = 1000
	e, url := server(b, Options{LedgerMax: 100})
	e.Script("m", Script{Turns: []Turn{{Length: ids}}})
	body, err := json.Marshal(hello.with(members{"model": "m", "stream": true}))
	require.NoError(b, err)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer client.CloseIdleConnections()
	b.SetParallelism(128)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := client.Post(url+"/vllm/v1/chat/completions", "application/json", bytes.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil || n < ids*100 {
				b.Errorf("read %d bytes: %v", n, err)
			}
			_ = r.Body.Close()
		}
	})
	b.ReportMetric(float64(b.N)*ids/b.Elapsed().Seconds(), "ids/s")
}
