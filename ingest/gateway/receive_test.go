package gateway

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

func packed(t testing.TB, coding string, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zstd":
		w, err = zstd.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "raw deflate":
		w, err = flate.NewWriter(&b, 6)
	}
	require.NoError(t, err)
	_, err = w.Write(raw)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// Compressed bodies are known by their first bytes, whatever the header says (row 25).
func TestContentCodings(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}})
	n := 0
	for _, coding := range []string{"gzip", "zstd", "deflate", "raw deflate"} {
		for _, header := range []string{"", coding, "br", "identity"} {
			status, text, _ := r.post("r/v1/chat/completions", string(packed(t, coding, []byte(hello+`}`))), "Content-Encoding", header)
			require.Equal(t, http.StatusOK, status, "%s as %q: %s", coding, header, text)
			n++
			require.Equal(t, hello+`}`, string(r.store.wait(t, n)[n-1].RequestBody), "what is kept is inflated")
		}
	}
	twice := packed(t, "gzip", packed(t, "zstd", []byte(hello+`}`)))
	status, _, _ := r.post("r/v1/chat/completions", string(twice))
	require.Equal(t, http.StatusOK, status)
}

func TestBodiesThatAreRefused(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{}, func(o *Options, _ *fixed, _ *memory) { o.Settings.Limits.MaxRequest = 1 << 20 })
	bomb := []byte(`{"model":"` + strings.Repeat("a", 2<<20) + `"}`)
	for name, c := range map[string]struct {
		body   string
		header string
		want   int
	}{
		"too large":             {string(bomb), "", 413},
		"gzip bomb":             {string(packed(t, "gzip", bomb)), "", 413},
		"zstd bomb":             {string(packed(t, "zstd", bomb)), "gzip", 413},
		"deflate bomb":          {string(packed(t, "raw deflate", bomb)), "", 413},
		"bomb in a bomb":        {string(packed(t, "gzip", packed(t, "gzip", bomb))), "", 413},
		"cut gzip":              {string(packed(t, "gzip", []byte(hello+`}`))[:30]), "gzip", 400},
		"brotli":                {"\x8b\x07\x80", "br", 415},
		"empty":                 {"", "", 400},
		"not JSON":              {"hello", "", 400},
		"an array":              {"[]", "", 400},
		"duplicate":             {`{"model":"policy","model":"other","messages":[]}`, "", 400},
		"deep":                  {`{"model":"policy","messages":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, "", 400},
		"invalid UTF-8":         {`{"model":"policy","messages":[{"role":"user","content":"` + "\xff" + `"}]}`, "", 400},
		"more after the object": {hello + `}{}`, "", 400},
		"n too large":           {hello + `,"n":1000}`, "", 400},
	} {
		status, text, err := r.post("r/v1/chat/completions", c.body, "Content-Encoding", c.header)
		require.NoError(t, err, name)
		require.Equal(t, c.want, status, "%s: %s", name, text)
		require.Contains(t, text, `"error"`, name)
	}
	require.Empty(t, r.store.intents)
}

// A body that breaks off is the harness's fault, and no call.
func TestBodyThatBreaksOff(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{})
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/gateway/r/v1/chat/completions", io.MultiReader(strings.NewReader(hello), failing{}))
	require.NoError(t, err)
	_, err = r.client.Do(q)
	require.Error(t, err)
	require.Empty(t, r.store.intents)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
