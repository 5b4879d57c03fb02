package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBrokenOff: a result that ends early is not taken for a whole one, however
// it ends; one whose trailer a proxy has taken away is.
func TestBrokenOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end   func(w http.ResponseWriter)
		whole bool
	}{
		"aborted":    {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, false},
		"unsaid":     {func(http.ResponseWriter) {}, false},
		"whole":      {func(w http.ResponseWriter) { w.Header().Set("Icecore-Complete", "true") }, true},
		"no trailer": {nil, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Icecore-Row-Count", "1")
			if c.end != nil {
				w.Header().Set("Trailer", "Icecore-Complete")
			}
			_, _ = w.Write([]byte("a\r\n1\r\n")) // a test's own connection
			w.(http.Flusher).Flush()
			if c.end != nil {
				c.end(w)
			}
		}))
		a, err := newQueryClient(server.URL, 0).ask(t.Context(), question{SQL: "SELECT 1 AS a"}, "csv")
		require.NoError(t, err, name)
		var out bytes.Buffer
		err = a.copyTo(&out)
		a.close()
		server.Close()
		require.Equal(t, c.whole, err == nil, "%s: %v", name, err)
	}
}
