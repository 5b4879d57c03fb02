package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
)

// fakeEngine does what no real engine would.
type fakeEngine struct {
	mu     sync.Mutex
	pieces []string
	// last is what Next does behind the pieces; nil: io.EOF.
	last func(ctx context.Context) error
	// do, when set, is called by Do.
	do      func(ctx context.Context, c *engine.Call) error
	told    engine.Sampled
	version func() (*int64, string)
	closed  int
	calls   []*engine.Call
}

func (f *fakeEngine) Start(context.Context) {}
func (f *fakeEngine) Close()                {}

func (f *fakeEngine) Models() []engine.Model {
	return []engine.Model{{Name: "policy", Engines: []string{"fake"}}}
}
func (f *fakeEngine) Status() []engine.Status { return []engine.Status{{Name: "fake", Healthy: true}} }

func (f *fakeEngine) Pick(_, _ string, exclude ...string) (sampler, error) {
	if len(exclude) > 0 {
		return nil, &turn.Fault{Status: 503, Code: turn.CodeEngineUnreachable, Message: "no engine"}
	}
	return f, nil
}

// noEngine is an engine that is away.
type noEngine struct{ fakeEngine }

func (*noEngine) Pick(_, _ string, _ ...string) (sampler, error) {
	return nil, &turn.Fault{Status: 503, Code: turn.CodeEngineUnreachable, Message: "no engine", RetryAfter: time.Second}
}

func (f *fakeEngine) Name() string { return "fake" }
func (f *fakeEngine) Kind() string { return "vllm" }
func (f *fakeEngine) Downs() int64 { return 0 }

func (f *fakeEngine) Do(ctx context.Context, c *engine.Call) (answer, error) {
	f.mu.Lock()
	f.calls = append(f.calls, c)
	f.mu.Unlock()
	if f.do != nil {
		if err := f.do(ctx, c); err != nil {
			return nil, err
		}
	}
	return &fakeAnswer{f: f}, nil
}

func (f *fakeEngine) Version(context.Context, time.Duration) (*int64, string) {
	if f.version != nil {
		return f.version()
	}
	return nil, ""
}
func (f *fakeEngine) TokenIn(*engine.Call) bool { return false }
func (f *fakeEngine) Render(context.Context, *engine.Call) ([]int32, error) {
	return nil, engine.ErrNone
}
func (f *fakeEngine) Detokenize(context.Context, string, []int32) (string, error) {
	return "", engine.ErrNone
}
func (f *fakeEngine) Tokenize(context.Context, string, string) ([]int32, error) {
	return nil, engine.ErrNone
}

type fakeAnswer struct {
	f    *fakeEngine
	next int
	done bool
}

func (a *fakeAnswer) Next(ctx context.Context) (engine.Piece, error) {
	if a.next < len(a.f.pieces) {
		a.next++
		return engine.Piece{Deltas: []turn.Delta{{Text: a.f.pieces[a.next-1]}}}, nil
	}
	err := io.EOF
	if a.f.last != nil {
		err = a.f.last(ctx)
	}
	a.done = err == io.EOF
	return engine.Piece{}, err
}

func (a *fakeAnswer) Sampled(int) *engine.Sampled {
	s := a.f.told
	s.PromptIDs, s.IDs = []int32{7, 8, 9}, []int32{}
	for i := range a.next {
		s.IDs = append(s.IDs, int32(i))
	}
	if a.done {
		s.Finish = "stop"
	}
	return &s
}
func (a *fakeAnswer) Usage() turn.Usage     { return turn.Usage{} }
func (a *fakeAnswer) Raw() (_, _ []byte)    { return []byte("asked"), []byte("answered") }
func (a *fakeAnswer) FirstToken() time.Time { return time.Time{} }
func (a *fakeAnswer) Close() error {
	a.f.mu.Lock()
	defer a.f.mu.Unlock()
	a.f.closed++
	return nil
}

// newFakeRig is a gateway before a fake engine.
func newFakeRig(t testing.TB, f engines, changes ...change) *rig {
	t.Helper()
	r := &rig{t: t, store: newMemory(), log: &lockedBuffer{},
		fixed: &fixed{keys: map[string]string{}, versions: map[string]int64{}, known: map[string]string{}, finished: map[string]bool{}}}
	o := Options{Settings: settings.Default(), Capture: r.store, Keys: r.fixed, Versions: r.fixed, Rollouts: r.fixed, StopGrace: 5 * time.Second}
	o.Settings.DefaultModel = "policy"
	for _, c := range changes {
		c(&o, r.fixed, r.store)
	}
	r.serve(assemble(o, slog.New(slog.NewTextHandler(r.log, nil)), f))
	return r
}

// panicking is a provider that panics where it is told to.
type panicking struct {
	turn.Provider
	at string
}

func (p panicking) Decode(in turn.Incoming) (*turn.Request, error) {
	if p.at == "decode" {
		panic("decode")
	}
	return p.Provider.Decode(in)
}

func (p panicking) Whole(r *turn.Request, a *turn.Answer) ([]byte, error) {
	if p.at == "whole" {
		panic("whole")
	}
	return p.Provider.Whole(r, a)
}

func (p panicking) Fault(f *turn.Fault) (int, http.Header, []byte) {
	if p.at == "fault" {
		panic("fault")
	}
	return p.Provider.Fault(f)
}

func (p panicking) Stream(r *turn.Request, h turn.Head) turn.Stream {
	if p.at == "stream" {
		panic("stream")
	}
	return panickingStream{p.Provider.Stream(r, h), p.at}
}

type panickingStream struct {
	turn.Stream
	at string
}

func (s panickingStream) Start(dst []byte) []byte {
	if s.at == "start" {
		panic("start")
	}
	return s.Stream.Start(dst)
}

func (s panickingStream) Delta(dst []byte, d turn.Delta) []byte {
	if s.at == "delta" || s.at == "fail" {
		panic("delta")
	}
	return s.Stream.Delta(dst, d)
}

func (s panickingStream) End(dst []byte, ends []turn.End, u turn.Usage) []byte {
	if s.at == "end" {
		panic("end")
	}
	return s.Stream.End(dst, ends, u)
}

func (s panickingStream) Fail(dst []byte, f *turn.Fault) []byte {
	if s.at == "fail" {
		panic("fail")
	}
	return s.Stream.Fail(dst, f)
}
