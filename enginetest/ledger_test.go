package enginetest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// only gives the one call of the ledger.
func only(t testing.TB, e *Engine) Entry {
	calls := e.Calls()
	require.Len(t, calls, 1)
	return calls[0]
}

// last gives the last call of the ledger.
func last(t testing.TB, e *Engine) Entry {
	calls := e.Calls()
	require.NotEmpty(t, calls)
	return calls[len(calls)-1]
}

func plainLogprobs(t testing.TB, told []*float32) []float32 {
	out := make([]float32, len(told))
	for i, p := range told {
		require.NotNil(t, p, "position %d", i)
		out[i] = *p
	}
	return out
}

func TestLedgerTellsTheRequest(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{})
	e.Script("s", Script{Turns: []Turn{{Text: "hi"}}, IDs: IDs{Answer: "none"}})
	ask(t, url+"/plain/v1/chat/completions", hello, "X-Script", "s", "X-Mine", "here", "X-Request-Id", "q")
	entry := only(t, e)
	require.Equal(t, "plain", entry.Face)
	require.Equal(t, "/v1/chat/completions", entry.Route)
	require.Equal(t, "s", entry.Script)
	require.Equal(t, DefaultModel, entry.Model)
	require.Equal(t, "here", entry.Header.Get("X-Mine"))
	require.Equal(t, "q", entry.RequestID)
	require.Equal(t, "stop", entry.Choices[0].Finish)
	require.Equal(t, append(Encode("hi"), ImEnd), entry.Choices[0].IDs, "whatever was told")
	sent, err := json.Marshal(hello)
	require.NoError(t, err)
	require.JSONEq(t, string(sent), string(entry.Body))
	require.False(t, entry.Started.After(entry.First))
	require.False(t, entry.First.After(entry.Finished))
	ask(t, url+"/vllm/v1/chat/completions", "no object")
	require.JSONEq(t, `"no object"`, string(e.Ledger()[1].Body))
}

func TestLedgerOverHTTP(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{LedgerMax: 2})
	do := func(method, path, body string) (int, string) {
		q, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		require.NoError(t, err)
		r, err := http.DefaultClient.Do(q)
		require.NoError(t, err)
		defer r.Body.Close() //nolint:errcheck // it was only read
		raw, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(raw)
	}
	status, _ := do("PUT", "/_scripts/org/model", `{"turns": [{"text": "scripted"}]}`)
	require.Equal(t, 204, status)
	status, text := do("PUT", "/_scripts/bad", `{"turn": []}`)
	require.Equal(t, 400, status)
	require.Contains(t, text, "unknown field")
	for range 3 {
		require.Equal(t, "scripted", ask(t, url+"/vllm/v1/chat/completions", hello.with(members{"model": "org/model"})).choices[0].text)
	}
	_, text = do("GET", "/_ledger", "")
	entries := ReadLedger(strings.NewReader(text))
	require.Len(t, entries, 2, "the oldest leave")
	want := e.Ledger()
	for i := range entries {
		require.Equal(t, want[i].Choices, entries[i].Choices)
		require.Equal(t, want[i].PromptIDs, entries[i].PromptIDs)
	}
	_, _ = do("DELETE", "/_ledger", "")
	require.Empty(t, e.Ledger())
	_, _ = do("PUT", "/_health/down", "")
	status, _ = do("GET", "/vllm/health", "")
	require.Equal(t, 503, status)
	_, _ = do("PUT", "/_health/up", "")
	e.SetVersion("9")
	_, _ = do("POST", "/_restart", "")
	require.Equal(t, "default", e.Version())
}

// safeBuffer is a file that can be looked at while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// What an answer's reader has seen the end of stands in the file, and what was begun
// stands there with all that it was going to be.
func TestLedgerFile(t *testing.T) {
	t.Parallel()
	file, gate := &safeBuffer{}, &Gate{}
	_, url := server(t, Options{LedgerTo: file, Default: Script{Turns: []Turn{{Length: 9}}, Time: Time{Gate: gate}}})
	done := make(chan *reply)
	go func() { done <- ask(t, url+"/vllm/v1/chat/completions", streamed) }()
	require.NoError(t, gate.Arrived(t.Context(), 1))
	begun := ReadLedger(strings.NewReader(file.String()))
	require.Len(t, begun, 1)
	require.Empty(t, begun[0].Ended)
	require.Len(t, begun[0].Choices[0].IDs, 9)
	require.Zero(t, begun[0].Choices[0].Sent)
	gate.Open()
	r := <-done
	text := file.String()
	over := ReadLedger(strings.NewReader(text + `{"seq": 2, "fac`)) // killed while it wrote
	require.Len(t, over, 1)
	require.Equal(t, "done", over[0].Ended)
	require.Equal(t, r.choices[0].ids, over[0].Choices[0].IDs)
	require.Equal(t, 9, over[0].Choices[0].Sent)
	require.Equal(t, 2, strings.Count(text, "\n"))
}
