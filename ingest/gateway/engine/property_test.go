package engine_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// record gives the bytes of one streamed answer of a face.
func record(t *testing.T, face string, script enginetest.Script, n int) []byte {
	t.Helper()
	rig := setUp(t, face, script)
	e := one(t, rig.pool)
	var raw []byte
	for range 2 { // the first shows SGLang's way
		r := well(t, call(t, e, ask("hi", func(c *engine.Call) { c.KeepRaw, c.Request.N = true, n; c.Request.Tools = []turn.Tool{shell} })))
		_, raw = r.stream.Raw()
	}
	require.Contains(t, string(raw), "[DONE]")
	return raw
}

// replay is an engine that answers with given pieces.
type replay struct{ pieces [][]byte }

func (r *replay) RoundTrip(q *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, q.Body)
	w := httptest.NewRecorder()
	switch q.URL.Path {
	case "/health":
	case "/v1/chat/completions":
		answer := w.Result()
		var readers []io.Reader
		for _, p := range r.pieces {
			readers = append(readers, bytes.NewReader(p))
		}
		answer.Body = io.NopCloser(io.MultiReader(readers...))
		return answer, nil
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	return w.Result(), nil
}

func played(ctx context.Context, t require.TestingT, kind string, n int, pieces ...[]byte) *result {
	p, err := engine.New(engine.Options{Client: &http.Client{Transport: &replay{pieces}},
		Engines: []engine.Config{{URL: "http://engine", Kind: kind, Models: []string{"policy"}}}})
	require.NoError(t, err)
	p.Start(ctx)
	defer p.Close()
	e, err := p.Pick("policy", "")
	require.NoError(t, err)
	s, err := e.Do(ctx, ask("hi", func(c *engine.Call) { c.Request.N = n }))
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	return read(ctx, s)
}

func recordings(t *testing.T) map[string][]byte {
	t.Helper()
	script := enginetest.Script{Turns: []enginetest.Turn{{Reasoning: "“hm” ☃", Text: "An answer 雪",
		Calls: []enginetest.Call{{Name: "bash", Arguments: `{"command":"ls -l \"x\""}`}}}},
		Logprobs: enginetest.Logs{Fault: "nan", At: []int{2}}, Chunks: enginetest.Chunks{Sizes: []int{1, 3, 2}}}
	return map[string][]byte{
		engine.KindVLLM:   record(t, "vllm", script, 2),
		engine.KindOpenAI: record(t, "plain", script, 2),
	}
}

// However the bytes are cut on their way, the same comes out.
func TestAnyCutOfTheBytesGivesTheSame(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for kind, raw := range recordings(t) {
		want := played(ctx, t, kind, 2, raw)
		well(t, want)
		rapid.Check(t, func(t *rapid.T) {
			var pieces [][]byte
			for rest := raw; len(rest) > 0; {
				n := rapid.IntRange(1, min(len(rest), 4000)).Draw(t, "n")
				pieces = append(pieces, rest[:n])
				rest = rest[n:]
			}
			got := played(ctx, t, kind, 2, pieces...)
			require.ErrorIs(t, got.err, io.EOF)
			require.Equal(t, want.deltas, got.deltas)
			require.Equal(t, want.ends, got.ends)
			for i := range 2 {
				require.Equal(t, sampledText(want.sampled(i)), sampledText(got.sampled(i)))
			}
		})
	}
}

// Cut at every event, and at every 499th byte, an answer gives a beginning of what was
// sampled, and a fault.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	for kind, raw := range recordings(t) {
		whole := played(t.Context(), t, kind, 2, raw)
		cuts := map[int]bool{}
		for i := range raw {
			if i%499 == 0 || bytes.HasPrefix(raw[i:], []byte("\n\n")) {
				cuts[i] = true
			}
			if bytes.HasSuffix(raw[:i], []byte("\n\n")) {
				cuts[i] = true
			}
		}
		require.Greater(t, len(cuts), 30)
		for cut := range cuts {
			if kind == engine.KindOpenAI && strings.Contains(string(raw[:cut]), `"usage":{`) && strings.HasSuffix(string(raw[:cut]), "\n\n") {
				continue // a server of its own kind may leave [DONE] out
			}
			got := played(t.Context(), t, kind, 2, raw[:cut])
			_ = fault(t, got.err, turn.CodeEngineBroke)
			for i := range 2 {
				a, b := whole.sampled(i), got.sampled(i)
				require.Equal(t, len(b.IDs), len(commonPrefix(a.IDs, b.IDs)))
				require.Equal(t, b.Logprobs == nil, len(b.IDs) == 0)
				if b.PromptIDs != nil {
					require.Equal(t, a.PromptIDs, b.PromptIDs)
				}
			}
		}
	}
}

func commonPrefix(a, b []int32) []int32 {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:n]
}
