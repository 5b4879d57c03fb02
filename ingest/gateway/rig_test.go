package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/settings"
	"icecore/trace"
)

// memory is a store that remembers, and fails when it is told to.
type memory struct {
	mu      sync.Mutex
	seqs    map[string]int64
	intents []*trace.Intent
	traces  []*trace.Trace
	// beginFails and putFails are how often the next calls fail.
	beginFails, putFails int
	refuseBodies         bool
	refuse               bool
	// before is called ahead of each put, and beforeBegin ahead of each announcement. What
	// was announced although that failed is announced all the same.
	before      func([]*trace.Trace)
	beforeBegin func() error
	// withdraws is how often announcements were taken back.
	withdraws int
	changed   chan struct{}
}

var errFull = errors.New("the disk is full")

func newMemory() *memory { return &memory{seqs: map[string]int64{}, changed: make(chan struct{})} }

func (m *memory) Begin(_ context.Context, intents []*trace.Intent) (err error) {
	if m.beforeBegin != nil {
		if err = m.beforeBegin(); err != nil && !errors.Is(err, errTaken) {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.beginFails > 0 {
		m.beginFails--
		return errFull
	}
	for _, i := range intents {
		m.seqs[i.RolloutID]++
		n := m.seqs[i.RolloutID]
		i.Seq = &n
		m.intents = append(m.intents, i)
	}
	m.tell()
	return err
}

// errTaken is the error of an announcement that became durable nevertheless.
var errTaken = errors.New("no word from the disk")

func (m *memory) Withdraw(_ context.Context, intents []*trace.Intent) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.withdraws++
	for _, i := range intents {
		m.intents = slices.DeleteFunc(m.intents, func(had *trace.Intent) bool { return had.TraceID == i.TraceID })
	}
	m.tell()
	return nil
}

func (m *memory) Put(_ context.Context, traces []*trace.Trace) error {
	if m.before != nil {
		m.before(traces)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.putFails > 0 {
		m.putFails--
		m.tell()
		return errFull
	}
	for _, t := range traces {
		if wrong := t.Validate(trace.Limits{}); wrong != nil || m.refuse || m.refuseBodies && t.RequestBody != nil {
			return errors.Join(ErrRefused, wrong)
		}
	}
	m.traces = append(m.traces, traces...)
	m.tell()
	return nil
}

func (m *memory) tell() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memory) all() []*trace.Trace {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.traces)
}

// wait gives the traces once there are n.
func (m *memory) wait(t testing.TB, n int) []*trace.Trace {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		m.mu.Lock()
		got, changed := slices.Clone(m.traces), m.changed
		m.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-changed:
		case <-ctx.Done():
			require.FailNow(t, "too few traces", "have %d, want %d", len(got), n)
		}
	}
}

type fixed struct {
	mu       sync.Mutex
	keys     map[string]string
	versions map[string]int64
	known    map[string]string // harness
	finished map[string]bool
}

func (f *fixed) Find(_ context.Context, key string) (string, error) {
	if r, ok := f.keys[key]; ok {
		return r, nil
	}
	return "", ErrUnknownKey
}

func (f *fixed) At(model string) *int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v, ok := f.versions[model]; ok {
		return &v
	}
	return nil
}

func (f *fixed) Known(_ context.Context, id string) (bool, string, bool, error) {
	h, ok := f.known[id]
	return ok, h, f.finished[id], nil
}

// rig is a gateway before a test engine.
type rig struct {
	t       testing.TB
	engine  *enginetest.Engine
	store   *memory
	fixed   *fixed
	gateway *Gateway
	url     string
	log     *lockedBuffer
	client  *http.Client
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type change func(*Options, *fixed, *memory)

// newRig starts a gateway before a test engine with the default script s.
func newRig(t testing.TB, face string, s enginetest.Script, changes ...change) *rig {
	t.Helper()
	r := &rig{t: t, engine: enginetest.New(enginetest.Options{Seed: 1, Default: s}), store: newMemory(), log: &lockedBuffer{},
		fixed: &fixed{keys: map[string]string{}, versions: map[string]int64{}, known: map[string]string{}, finished: map[string]bool{}}}
	engine := httptest.NewServer(r.engine)
	t.Cleanup(engine.Close)
	o := Options{Settings: settings.Default(), Capture: r.store, Keys: r.fixed, Versions: r.fixed, Rollouts: r.fixed,
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), StopGrace: 5 * time.Second}
	o.Settings.Engines = []settings.Engine{{URL: engine.URL + "/" + face, Name: "gpu-0"}}
	o.Settings.DefaultModel = enginetest.DefaultModel
	o.Settings.Limits.HealthTimeout = time.Minute // a machine that is busy with tests is not a dead engine
	for _, c := range changes {
		c(&o, r.fixed, r.store)
	}
	g, err := New(o)
	require.NoError(t, err)
	r.serve(g)
	return r
}

func (r *rig) serve(g *Gateway) {
	r.gateway = g
	g.Start(context.Background())
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) { r.t.Errorf("the gateway gave Echo an error: %v", err) }
	g.Register(e)
	front := httptest.NewServer(e)
	r.url = front.URL
	r.client = &http.Client{Transport: &http.Transport{DisableCompression: true}}
	r.t.Cleanup(func() {
		r.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = g.Stop(ctx) // some tests stop it themselves
		front.Close()
	})
}

// call is one request; path stands behind /gateway/.
func (r *rig) call(ctx context.Context, path, body string, headers ...string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/gateway/"+path, strings.NewReader(body))
	require.NoError(r.t, err)
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	return r.client.Do(q)
}

// post gives the whole answer, and the error with which it broke off.
func (r *rig) post(path, body string, headers ...string) (status int, text string, broke error) {
	r.t.Helper()
	a, err := r.call(r.t.Context(), path, body, headers...)
	require.NoError(r.t, err)
	defer func() { _ = a.Body.Close() }()
	raw, err := io.ReadAll(a.Body)
	return a.StatusCode, string(raw), err
}

const hello = `{"model":"policy","messages":[{"role":"user","content":"hello"}]`

func streamed(text string) string { return strings.TrimSuffix(text, "}") + `,"stream":true}` }

// says is a script of one text.
func says(text string) enginetest.Script {
	return enginetest.Script{Turns: []enginetest.Turn{{Text: text}}}
}

// meta is what a trace's metadata says of the gateway.
func meta(t testing.TB, of *trace.Trace) map[string]any {
	t.Helper()
	var all map[string]map[string]any
	require.NoError(t, json.Unmarshal(of.Metadata, &all))
	return all["gateway"]
}
