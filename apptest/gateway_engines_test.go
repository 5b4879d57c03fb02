package apptest

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// TestTwoEngines: the calls of one thread stay at one engine; when it dies they go to the
// other and end well; when none is left that is said, and is not a fault of the harness.
func TestTwoEngines(t *testing.T) {
	t.Parallel()
	a, b := newMortal(t), newMortal(t)
	file := tempFile(t, []byte("engines:\n  - {url: "+a.url+"/vllm, name: a}\n  - {url: "+b.url+"/vllm, name: b}\nmodels: {policy: {}}\nlimits: {health_every: 50ms, engine_connect: 2s}\n"))
	s := start(t, "--gateway="+file)
	s.faulty = true // it says that engines are gone
	engine := func(rollout string) string {
		t.Helper()
		got := s.askGateway(rollout+"/chat/completions", encode(apis[0].turn(nil, false))).is(200)
		c := s.full(got.header.Get("Icecore-Trace-Id"))
		agrees(t, c.keptCall, entryOf(t, c.TraceID, a.engine, b.engine), 0)
		return c.Metadata.Gateway.Engine
	}
	at := map[string]string{}
	used := map[string]bool{}
	for n := range 12 {
		rollout := "r" + itoa(n)
		at[rollout] = engine(rollout)
		used[at[rollout]] = true
	}
	require.Len(t, used, 2, "rollouts are spread")
	for rollout, name := range at {
		require.Equal(t, name, engine(rollout), "and stay where they are")
	}
	a.die()
	for rollout := range at {
		require.Equal(t, "b", engine(rollout))
	}
	b.die()
	eventually(t, "no engine is healthy", func() bool {
		got := s.askGateway("r0/v1/messages", encode(apis[2].turn(nil, true)))
		return got.status == 503
	})
	got := s.askGateway("r0/v1/responses", encode(apis[1].turn(nil, true))).is(503)
	require.NotEmpty(t, got.header.Get("Retry-After"))
	require.Contains(t, string(got.body), "overloaded")
	r, _ := s.rollout("r0")
	require.Zero(t, r.OpenIntents)
}

// mortal is an engine with a connection of its own, that can die.
type mortal struct {
	engine *enginetest.Engine
	url    string
	srv    *http.Server
}

func newMortal(t *testing.T) *mortal {
	t.Helper()
	m := &mortal{engine: enginetest.New(enginetest.Options{Seed: 1, Default: says("yes")})}
	l := listenAnywhere(t)
	m.url = "http://" + l.Addr().String()
	m.srv = &http.Server{Handler: m.engine, ReadHeaderTimeout: patience}
	go func() { _ = m.srv.Serve(l) }() // until it dies
	t.Cleanup(m.die)
	return m
}

func (m *mortal) die() { _ = m.srv.Close() } // twice is no harm
