package engine_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

const soon = 10 * time.Second

// several is a pool of n engines over one test engine.
func several(t *testing.T, n int, change func(i int, c *engine.Config)) (*enginetest.Engine, *engine.Pool) {
	t.Helper()
	e := enginetest.New(enginetest.Options{Seed: 1})
	o := engine.Options{HealthEvery: 20 * time.Millisecond}
	for i := range n {
		server := httptest.NewServer(e)
		t.Cleanup(server.Close)
		c := engine.Config{Name: fmt.Sprint("e", i), URL: server.URL + "/vllm/v1/"}
		if change != nil {
			change(i, &c)
		}
		o.Engines = append(o.Engines, c)
	}
	return e, start(t, o)
}

func TestAffinity(t *testing.T) {
	t.Parallel()
	_, p := several(t, 4, nil)
	count := map[string]int{}
	where := map[string]string{}
	for i := range 400 {
		key := fmt.Sprint("rollout-", i)
		e, err := p.Pick("policy", key)
		require.NoError(t, err)
		again, err := p.Pick("policy", key)
		require.NoError(t, err)
		require.Same(t, e, again)
		count[e.Name()]++
		where[key] = e.Name()
	}
	for _, n := range count {
		require.InDelta(t, 100, n, 40)
	}
	require.Len(t, count, 4)
	// Without one engine only its own rollouts move.
	moved := 0
	for key, name := range where {
		e, err := p.Pick("policy", key, "e1")
		require.NoError(t, err)
		require.NotEqual(t, "e1", e.Name())
		if e.Name() != name {
			require.Equal(t, "e1", name)
			moved++
		}
	}
	require.Equal(t, count["e1"], moved)
}

func TestLoadMovesCalls(t *testing.T) {
	t.Parallel()
	e, p := several(t, 2, nil)
	e.Script("policy", enginetest.Script{Time: enginetest.Time{NeverEnds: true}})
	first, err := p.Pick("policy", "hot")
	require.NoError(t, err)
	for range 9 {
		s, err := first.Do(t.Context(), ask("hi"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
	}
	other, err := p.Pick("policy", "hot")
	require.NoError(t, err)
	require.NotEqual(t, first.Name(), other.Name())
	least, err := p.Pick("policy", "")
	require.NoError(t, err)
	require.Equal(t, other.Name(), least.Name())
	same, err := p.Pick("policy", "hot", other.Name())
	require.NoError(t, err)
	require.Same(t, first, same, "there is no other")
}

func TestMaxConcurrent(t *testing.T) {
	t.Parallel()
	e, p := several(t, 1, func(_ int, c *engine.Config) { c.MaxConcurrent = 1 })
	e.Script("policy", enginetest.Script{Time: enginetest.Time{NeverEnds: true}})
	only := one(t, p)
	s, err := only.Do(t.Context(), ask("hi"))
	require.NoError(t, err)
	_, err = p.Pick("policy", "x")
	f := fault(t, err, turn.CodeOverloaded)
	require.Equal(t, 503, f.Status)
	require.Positive(t, f.RetryAfter)
	require.Contains(t, f.Message, "overloaded")
	// Who picked before waits for the place.
	waits := make(chan error, 1)
	go func() {
		s, err := only.Do(t.Context(), ask("hi"))
		if err == nil {
			err = s.Close()
		}
		waits <- err
	}()
	require.NoError(t, s.Close())
	require.NoError(t, <-waits)
	require.Zero(t, p.Status()[0].Open)
}

func TestModels(t *testing.T) {
	t.Parallel()
	e := enginetest.New(enginetest.Options{})
	e.Script("other", enginetest.Script{Server: enginetest.Server{MaxLen: 512}})
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	p := start(t, engine.Options{Engines: []engine.Config{
		{Name: "a", URL: server.URL + "/vllm"}, {Name: "b", URL: server.URL + "/plain", Models: []string{"other", "third"}}}})
	require.Equal(t, []engine.Model{{Name: "policy", Engines: []string{"a"}, MaxLen: 1 << 20},
		{Name: "other", Engines: []string{"a", "b"}, MaxLen: 512}, {Name: "third", Engines: []string{"b"}}}, p.Models())
	_, err := p.Pick("fourth", "x")
	f := fault(t, err, turn.CodeUnknownModel)
	require.Equal(t, 404, f.Status)
	third, err := p.Pick("third", "x")
	require.NoError(t, err)
	require.Equal(t, "b", third.Name())
	_, err = p.Pick("third", "x", "b")
	_ = fault(t, err, turn.CodeEngineUnreachable)
}

// An engine that is not well, or gone, gets no calls, and gets them again afterwards.
func TestHealth(t *testing.T) {
	t.Parallel()
	e, p := several(t, 1, nil)
	require.True(t, p.Status()[0].Healthy)
	require.Equal(t, engine.KindVLLM, p.Status()[0].Kind)
	require.NotEmpty(t, p.Status()[0].Version)
	before := p.Status()[0].Since
	e.Healthy(false)
	require.Eventually(t, func() bool { return !p.Status()[0].Healthy }, soon, time.Millisecond)
	s := p.Status()[0]
	require.NotEmpty(t, s.Why)
	require.True(t, s.Since.After(before))
	require.NotContains(t, s.URL, "/v1")
	_, err := p.Pick("policy", "x")
	f := fault(t, err, turn.CodeEngineUnreachable)
	require.Positive(t, f.RetryAfter)
	require.Contains(t, f.Message, "overloaded")
	require.False(t, s.Usable)
	require.EqualValues(t, 1, s.Downs)
	e.Healthy(true)
	require.Eventually(t, func() bool { return p.Status()[0].Healthy }, soon, time.Millisecond)
	up := p.Status()[0]
	require.Empty(t, up.Why)
	require.True(t, up.Usable)
	require.EqualValues(t, 1, up.Downs, "it shows that it was down")
	require.False(t, up.Since.Before(s.Since))
}

// A call that meets a closed port marks the engine down at once.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	e := enginetest.New(enginetest.Options{})
	server := httptest.NewServer(e)
	p := start(t, engine.Options{HealthEvery: time.Hour, Engines: []engine.Config{{Name: "e", URL: server.URL + "/vllm"}}})
	only := one(t, p)
	server.Close()
	r := call(t, only, ask("hi"))
	f := fault(t, r.err, turn.CodeEngineUnreachable)
	require.Equal(t, 503, f.Status)
	require.Positive(t, f.RetryAfter)
	require.False(t, p.Status()[0].Healthy)
	require.Contains(t, p.Status()[0].Why, "refused")
	// A pool whose engines have never answered cannot say that a model is unknown.
	q := start(t, engine.Options{Engines: []engine.Config{{URL: server.URL}}})
	_, err := q.Pick("anything", "x")
	_ = fault(t, err, turn.CodeEngineUnreachable)
	require.Empty(t, q.Status()[0].Kind)
}

// A server without /health is well when it lists its models.
func TestHealthByModels(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "plain", enginetest.Script{})
	require.True(t, rig.pool.Status()[0].Healthy)
	require.Equal(t, engine.KindOpenAI, rig.pool.Status()[0].Kind)
}

// A connection that was kept open and is closed under a request costs one more try on a
// new one, and no more than one.
func TestStaleConnection(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	served := map[string]bool{}
	closed, posts, always := 0, 0, false
	p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		shut := served[r.RemoteAddr] || always
		served[r.RemoteAddr] = true
		posts++
		if shut {
			closed++
		}
		mu.Unlock()
		if shut {
			panic(http.ErrAbortHandler) // before the first byte
		}
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}],\"usage\":{}}\n\ndata: [DONE]\n\n")
	})
	e := one(t, p)
	require.Eventually(t, func() bool {
		well(t, call(t, e, ask("hi")))
		mu.Lock()
		defer mu.Unlock()
		return closed > 0
	}, soon, time.Millisecond)
	mu.Lock()
	always, posts = true, 0
	mu.Unlock()
	r := call(t, e, ask("hi"))
	_ = fault(t, r.err, turn.CodeEngineBroke)
	mu.Lock()
	defer mu.Unlock()
	require.LessOrEqual(t, posts, 2)
}
