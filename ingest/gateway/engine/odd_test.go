package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// whole serves one answer that is not streamed. The ids are 1 to n.
func whole(t *testing.T, choice, more string, ids ...int32) *result {
	t.Helper()
	raw, err := json.Marshal(ids)
	require.NoError(t, err)
	p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"choices":[{"index":0,%s,"token_ids":%s}],"prompt_token_ids":[7]%s}`, choice, raw, more)
	})
	return well(t, call(t, one(t, p), ask("hi")))
}

// A value that is no log-probability is not known, and told apart; its token and its
// neighbours stay.
func TestImpossibleLogprobs(t *testing.T) {
	t.Parallel()
	const unknown = float32(99)
	for told, row := range map[string]struct {
		value float32
		raw   map[string]any
	}{
		"-0.5":        {-0.5, nil},
		"0":           {0, nil},
		"1e-6":        {1e-6, nil},
		"0.001":       {0.001, nil},
		"0.0011":      {unknown, map[string]any{"logprobs_odd": map[string]any{"1": 0.0011}}},
		"2.5":         {unknown, map[string]any{"logprobs_odd": map[string]any{"1": 2.5}}},
		"1e39":        {unknown, map[string]any{"logprobs_odd": map[string]any{"1": 1e39}}},
		"1e400":       {unknown, map[string]any{"logprobs_odd": map[string]any{"1": 1.7976931348623157e308}}},
		"-1e39":       {unknown, map[string]any{"logprobs_floored": map[string]any{"1": -1e39}}},
		"-1e400":      {unknown, map[string]any{"logprobs_floored": map[string]any{"1": -1.7976931348623157e308}}},
		"-9999.0":     {unknown, map[string]any{"logprobs_floored": map[string]any{"1": -9999.0}}},
		"NaN":         {unknown, map[string]any{"logprobs_odd": map[string]any{"1": "NaN"}}},
		`"NaN"`:       {unknown, map[string]any{"logprobs_odd": map[string]any{"1": "NaN"}}},
		"Infinity":    {unknown, map[string]any{"logprobs_odd": map[string]any{"1": "Infinity"}}},
		`"+Infinity"`: {unknown, map[string]any{"logprobs_odd": map[string]any{"1": "Infinity"}}},
		"null":        {unknown, nil},
	} {
		t.Run(told, func(t *testing.T) {
			t.Parallel()
			s := whole(t, `"message":{"content":"x"},"finish_reason":"stop","logprobs":{"content":[{"logprob":-1},{"logprob":`+told+`},{"logprob":-3}]}`,
				`,"usage":{"prompt_tokens":1,"completion_tokens":3}`, 1, 2, 3).sampled(0)
			require.Equal(t, []int32{1, 2, 3}, s.IDs)
			require.False(t, s.Incomplete)
			for i, want := range []float32{-1, row.value, -3} {
				got, known := s.Logprobs.At(i)
				require.Equal(t, want != unknown, known, i)
				if known {
					require.Equal(t, want, got)
				}
			}
			require.Equal(t, row.raw, s.Raw)
			if row.raw["logprobs_odd"] != nil {
				require.Equal(t, []string{"logprobs_odd"}, s.Flags)
			} else {
				require.Empty(t, s.Flags)
			}
			_, err := json.Marshal(s.Raw)
			require.NoError(t, err)
		})
	}
}

// An engine whose logits are NaN says so for each token: metadata stays small.
func TestOddValuesAreBounded(t *testing.T) {
	t.Parallel()
	ids := make([]int32, 1000)
	s := whole(t, `"message":{"content":"x"},"finish_reason":"stop","logprobs":{"content":[`+
		strings.TrimSuffix(strings.Repeat(`{"logprob":NaN},`, 1000), ",")+`]}`, "", ids...).sampled(0)
	kept, _ := s.Raw["logprobs_odd"].(map[string]any)
	require.Len(t, kept, 257)
	require.Equal(t, 1000-256, kept["more"])
}

func TestCountsOfUsage(t *testing.T) {
	t.Parallel()
	for told, want := range map[string]int64{
		"3": 3, "3.0": 3, "3e0": 3, "0": 0, "9007199254740991": 1<<53 - 1,
		"3.5": -1, "-1": -1, "9007199254740992": -1, "1e400": -1, `"3"`: -1, "null": -1, "[3]": -1, "99999999999999999999": -1,
	} {
		u := whole(t, `"message":{"content":"x"},"finish_reason":"stop"`, `,"usage":{"prompt_tokens":`+told+`,"completion_tokens":`+told+`}`, 1).stream.Usage()
		for _, n := range []*int64{u.Prompt, u.Completion} {
			if want < 0 {
				require.Nil(t, n, told)
			} else {
				require.NotNil(t, n, told)
				require.Equal(t, want, *n, told)
			}
		}
	}
}

// Finish reasons and calls that contradict each other are told, and no harness is sent
// to run a call that there is none of.
func TestCallsThatAreOdd(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		message, finish string
		ends, flag      string
		calls           []turn.Call
	}{
		"none":          {`"content":"x"`, "tool_calls", "stop", "calls_missing", nil},
		"an empty list": {`"content":"x","tool_calls":[]`, "tool_calls", "stop", "calls_missing", nil},
		"one of nothing": {`"content":"x","tool_calls":[{"index":0}]`, "tool_calls", "stop", "calls_missing",
			[]turn.Call{{}}},
		"one":                   {`"content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]`, "tool_calls", "tool_calls", "", []turn.Call{{ID: "c", Name: "f", Arguments: "{}"}}},
		"no name":               {`"tool_calls":[{"id":"c","function":{"name":"","arguments":"{}"}}]`, "tool_calls", "tool_calls", "call_unnamed", []turn.Call{{ID: "c", Arguments: "{}"}}},
		"as it was called once": {`"content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}`, "function_call", "tool_calls", "", []turn.Call{{Name: "f", Arguments: `{"a":1}`}}},
		"both":                  {`"function_call":{"name":"f","arguments":"{}"},"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]`, "tool_calls", "tool_calls", "", []turn.Call{{ID: "c", Name: "f", Arguments: "{}"}}},
		"null":                  {`"content":"x","function_call":null`, "stop", "stop", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := whole(t, `"message":{`+row.message+`},"finish_reason":"`+row.finish+`"`, "", 1)
			require.Equal(t, []turn.End{{Finish: row.ends}}, r.ends)
			require.Equal(t, row.calls, r.gather.Message(0).Calls)
			s := r.sampled(0)
			if row.flag != "" {
				require.Contains(t, s.Flags, row.flag)
			} else {
				require.NotContains(t, s.Flags, "calls_missing")
				require.NotContains(t, s.Flags, "call_unnamed")
			}
			if row.finish == "tool_calls" {
				require.Equal(t, "tool_calls", s.Finish, "the trace has the engine's word")
			}
		})
	}
}

// However long an engine's words are, metadata stays small, and valid.
func TestWordsAreClipped(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 5000)
	spans := strings.TrimSuffix(strings.Repeat(`{"version":"`+long+`","start":0,"end":0},`, 200), ",")
	r := whole(t, `"message":{"content":"x"},"finish_reason":"`+long+`","stop_reason":"`+long+`"`,
		`,"usage":{"prompt_tokens":1,"completion_tokens":1,"x":"`+long+`"},"metadata":{"weight_version":"`+long+`","weight_versions":[`+spans+`]}`, 1)
	s := r.sampled(0)
	u := r.stream.Usage()
	require.EqualValues(t, 1, *u.Completion)
	require.Nil(t, u.Raw)
	raw, err := json.Marshal(s.Raw)
	require.NoError(t, err)
	require.Less(t, len(raw), 32<<10)
	finish, _ := s.Raw["finish_reason"].(string)
	for _, word := range []string{s.StopReason, s.Told, finish} {
		require.NotEmpty(t, word)
		require.Less(t, len(word), 300)
		require.True(t, strings.HasPrefix(word, "éé"))
		require.NotContains(t, word, "\uFFFD")
	}
}

// A byte order mark begins a text, and is none of it.
func TestByteOrderMark(t *testing.T) {
	t.Parallel()
	for kind, body := range map[string]string{
		"application/json":  "\ufeff" + `{"choices":[{"message":{"content":"x"},"finish_reason":"stop","token_ids":[1]}],"usage":{}}`,
		"text/event-stream": "\ufeffdata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\",\"token_ids\":[1]}]}\n\ndata: [DONE]\n\n",
	} {
		p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		})
		r := well(t, call(t, one(t, p), ask("hi")))
		require.Equal(t, "x", r.text(0), kind)
		require.Equal(t, []int32{1}, r.sampled(0).IDs)
	}
}

// However an engine writes the credential that it was sent, nobody reads it.
func TestCredentialInOtherSpellings(t *testing.T) {
	t.Parallel()
	const key = `sk-/a"b\c+d=e`
	escaped, err := json.Marshal(key)
	require.NoError(t, err)
	inside := string(escaped[1 : len(escaped)-1])
	var hex strings.Builder
	for _, r := range key {
		fmt.Fprintf(&hex, `\u%04X`, r)
	}
	for name, spelt := range map[string]string{
		"as JSON": inside, "slashes too": strings.ReplaceAll(inside, "/", `\/`), "as numbers": hex.String(),
		"some as numbers": strings.Replace(inside, "-", `\u002d`, 1), "JSON in JSON": strings.ReplaceAll(hex.String(), `\`, `\\`),
		"a URL": "sk-%2Fa%22b%5cc%2Bd%3De",
	} {
		for at, body := range map[string]string{
			"message": `{"error":{"message":"no: ` + spelt + `"}}`, "detail": `{"detail":[{"input":"` + spelt + `"}]}`,
			"raw": `{"x":"` + spelt + `"}`, "text": `no: ` + spelt, "cut": "x" + strings.Repeat(" ", 3994) + spelt, // only its beginning is read
			"event": `data: {"error":{"message":"` + spelt + `"}}` + "\n\n", "odd event": "event: error\ndata: " + spelt + "\n\n",
		} {
			p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, _ *http.Request) {
				if strings.Contains(at, "event") {
					w.Header().Set("Content-Type", "text/event-stream")
				} else {
					w.WriteHeader(http.StatusBadRequest)
				}
				_, _ = io.WriteString(w, body)
			}, func(o *engine.Options) { o.Engines[0].Key = key })
			r := call(t, one(t, p), ask("hi"))
			var f *turn.Fault
			require.ErrorAs(t, r.err, &f, name+" "+at)
			require.True(t, at == "cut" || strings.Contains(f.Message, "[credential]"), name+" "+at)
			require.NotContains(t, f.Message, "sk-", name+" "+at)
			require.NotContains(t, strings.ToLower(f.Message), `u0073`, name+" "+at)
		}
	}
}

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
