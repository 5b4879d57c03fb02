package apptest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
)

// Each limit has its own code, holds what is just within it, and counts what was
// inflated.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-request=40KiB", "--max-items=5", "--max-tokens=50", "--max-body=100B")
	n := 0
	fresh := func(p, r []int32) call {
		n++
		return plain("limits", "l"+itoa(n), int64(n), p, r)
	}
	many := func(n int) (out []call) {
		for range n {
			out = append(out, fresh(ids(1), ids(2)))
		}
		return out
	}
	filler := func(bytes int) string { return strings.Repeat(" ", bytes) }

	for _, c := range []struct {
		media  string
		encode func([]call) []byte
	}{{typeJSON, jsonArray}, {typeNDJSON, ndjson}, {typeArrow, func(c []call) []byte { return arrowOf(c, 2) }}} {
		s.send("POST", "/v1/traces", c.encode(many(5)), "Content-Type", c.media).is(200).all("stored", 5)
		s.send("POST", "/v1/traces", c.encode(many(6)), "Content-Type", c.media).problem(413, "too_many_items")
	}

	body := fresh(ids(1), ids(2)).json()
	whole := slices.Concat(body, []byte(filler(40<<10-len(body))))
	for _, coding := range []string{"identity", "gzip", "zstd"} {
		pack := map[string]func([]byte) []byte{"identity": func(b []byte) []byte { return b }, "gzip": gzipped, "zstd": zstded}[coding]
		s.send("POST", "/v1/traces", pack(whole), "Content-Type", typeJSON, "Content-Encoding", coding).is(200)
		s.send("POST", "/v1/traces", pack(slices.Concat(whole, []byte(" "))), "Content-Type", typeJSON, "Content-Encoding", coding).
			problem(413, "request_too_large")
	}
	// Compressed Arrow buffers are counted inflated as well.
	big := fresh(make([]int32, 50), nil).with("response_token_ids", nil, "response_logprobs", nil, "tokenizer", strings.Repeat("a", 60<<10))
	packed := arrowOf([]call{big}, 1, ipc.WithZstd())
	require.Less(t, len(packed), 40<<10)
	s.send("POST", "/v1/traces", packed, "Content-Type", typeArrow).problem(413, "request_too_large")

	require.Equal(t, "stored", s.traces(fresh(make([]int32, 48), ids(1, 2))).one())
	require.Equal(t, "too_many_tokens", s.traces(fresh(make([]int32, 49), ids(1, 2))).is(422).one())
	require.Equal(t, "too_many_tokens", s.traces(fresh(make([]int32, 51), nil)).is(422).one())
	base := fresh(make([]int32, 40), ids(7))
	require.Equal(t, "stored", s.traces(base).one())
	next := fresh(append(base.whole(), make([]int32, 8)...), ids(1))
	require.Equal(t, "stored", s.traces(next.prefixed(base, 99)).one())
	next = fresh(append(base.whole(), make([]int32, 9)...), ids(1))
	require.Equal(t, "too_many_tokens", s.traces(next.prefixed(base, 99)).is(422).one())

	for _, side := range []string{"request", "response"} {
		fits := `"` + strings.Repeat("x", 98) + `"`
		require.Equal(t, "stored", s.traces(fresh(nil, nil).with("response_logprobs", nil, side, json.RawMessage(fits))).one())
		require.Equal(t, "body_too_large", s.traces(fresh(nil, nil).with("response_logprobs", nil, side, json.RawMessage(fits[:98]+`xxx"`))).is(422).one())
	}
	require.Equal(t, "body_too_large", s.traces(fresh(ids(1), ids(2)).with("colour", strings.Repeat("x", 200))).is(422).one())

	deep := func(n int) json.RawMessage {
		return json.RawMessage(strings.Repeat("[", n) + strings.Repeat("]", n))
	}
	// The item itself is the first of 512 levels. (This server's body limit
	// would be met first; another one has the default.)
	s2 := start(t)
	require.Equal(t, "stored", s2.traces(fresh(nil, nil).with("response_logprobs", nil, "request", deep(511))).one())
	require.Equal(t, "json_too_deep", s2.traces(fresh(nil, nil).with("response_logprobs", nil, "request", deep(512))).is(422).one())
}
