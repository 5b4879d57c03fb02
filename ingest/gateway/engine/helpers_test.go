package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a test engine, and a pool of one engine over one of its faces.
type rig struct {
	*enginetest.Engine
	pool *engine.Pool
	url  string
}

// setUp starts both; script is what the model "policy" does.
func setUp(t *testing.T, face string, script enginetest.Script, change ...func(*engine.Options)) *rig {
	t.Helper()
	e := enginetest.New(enginetest.Options{Seed: 1, Default: script})
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	o := engine.Options{Engines: []engine.Config{{Name: "e", URL: server.URL + "/" + face}}}
	for _, c := range change {
		c(&o)
	}
	return &rig{Engine: e, pool: start(t, o), url: server.URL}
}

// serve is a pool over one handler, which also answers what the pool asks first.
func serve(t *testing.T, kind string, answer http.HandlerFunc, change ...func(*engine.Options)) *engine.Pool {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/chat/completions", answer)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	o := engine.Options{Engines: []engine.Config{{Name: "e", URL: server.URL, Kind: kind, Models: []string{"policy"}}}}
	for _, c := range change {
		c(&o)
	}
	return start(t, o)
}

func start(t *testing.T, o engine.Options) *engine.Pool {
	t.Helper()
	p, err := engine.New(o)
	require.NoError(t, err)
	p.Start(t.Context())
	t.Cleanup(p.Close)
	return p
}

func one(t *testing.T, p *engine.Pool) *engine.Engine {
	t.Helper()
	e, err := p.Pick("policy", "r")
	require.NoError(t, err)
	return e
}

// ask is a call with one user message.
func ask(text string, change ...func(*engine.Call)) *engine.Call {
	c := &engine.Call{Model: "policy", TraceIDs: []string{"t-0", "t-1", "t-2"}, Request: &turn.Request{
		Messages: []turn.Message{{Role: turn.RoleUser, Content: turn.TextOf(text)}},
	}}
	for _, f := range change {
		f(c)
	}
	return c
}

// result is an answer, gathered.
type result struct {
	deltas []turn.Delta
	gather turn.Gather
	ends   []turn.End
	prompt []int64
	err    error // io.EOF where it ended well
	stream *engine.Stream
}

func (r *result) sampled(i int) *engine.Sampled { return r.stream.Sampled(i) }

// call makes a call and reads it to its end.
func call(t *testing.T, e *engine.Engine, c *engine.Call) *result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := e.Do(ctx, c)
	if err != nil {
		return &result{err: err}
	}
	r := read(ctx, s)
	require.NoError(t, s.Close())
	return r
}

func read(ctx context.Context, s *engine.Stream) *result {
	r := &result{stream: s}
	for r.err == nil {
		var p engine.Piece
		if p, r.err = s.Next(ctx); r.err != nil {
			break
		}
		for _, d := range p.Deltas {
			r.deltas = append(r.deltas, d)
			r.gather.Add(d)
		}
		r.ends = append(r.ends, p.Ends...)
		if p.PromptTokens != nil {
			r.prompt = append(r.prompt, *p.PromptTokens)
		}
	}
	return r
}

// well demands that an answer ended well.
func well(t *testing.T, r *result) *result {
	t.Helper()
	require.ErrorIs(t, r.err, io.EOF)
	return r
}

// fault demands one of a code.
func fault(t *testing.T, err error, code string) *turn.Fault {
	t.Helper()
	var f *turn.Fault
	require.ErrorAs(t, err, &f)
	require.Equal(t, code, f.Code, f.Error())
	require.NotEmpty(t, f.Message)
	require.False(t, errors.Is(err, io.EOF))
	return f
}

// last is the ledger's last call.
func (r *rig) last() enginetest.Entry {
	calls := r.Calls()
	return calls[len(calls)-1]
}

// exact demands that what was recorded is what was sampled.
func exact(t *testing.T, entry enginetest.Entry, choice int, s *engine.Sampled) {
	t.Helper()
	truth := entry.Choices[choice]
	require.Equal(t, entry.PromptIDs, s.PromptIDs)
	require.Equal(t, truth.IDs, s.IDs)
	require.NotNil(t, s.Logprobs)
	require.Equal(t, truth.Logprobs, s.Logprobs.Values)
	require.Nil(t, s.Logprobs.Known)
	require.False(t, s.Incomplete)
	require.Empty(t, s.Flags)
}

func (r *result) text(i int) string {
	m := r.gather.Message(i)
	return m.Text()
}

// sampledText shows all of a Sampled; NaN is equal to itself there.
func sampledText(s *engine.Sampled) string {
	logs := "none"
	if s.Logprobs != nil {
		logs = fmt.Sprint(*s.Logprobs)
	}
	plain := *s
	plain.Logprobs = nil
	return fmt.Sprintf("%+v %s", plain, logs)
}

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
