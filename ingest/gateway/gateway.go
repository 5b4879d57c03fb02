package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"icecore/ingest/gateway/chat"
	"icecore/ingest/gateway/continuity"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/generate"
	"icecore/ingest/gateway/messages"
	"icecore/ingest/gateway/responses"
	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
)

// Options is what a gateway needs.
type Options struct {
	Settings *settings.Settings
	Capture  Capture
	Keys     Keys
	Versions Versions
	Rollouts Rollouts
	Log      *slog.Logger
	// Memory is what this process may take, in bytes; 0: not known. The default of
	// limits.max_held comes of it.
	Memory int64
	// Now tells the time; nil: the machine's clock.
	Now func() time.Time
	// StopGrace is how long calls that were aborted by a stop may take to be stored;
	// default 10 s.
	StopGrace time.Duration
}

const defaultStopGrace = 10 * time.Second

// Gateway is the capturing proxy.
type Gateway struct {
	settings  *settings.Settings
	capture   Capture
	keys      Keys
	versions  Versions
	rollouts  Rollouts
	log       *slog.Logger
	now       func() time.Time
	engines   engines
	providers map[string]turn.Provider
	memory    *continuity.Memory
	trust     continuity.Trust
	gate      *gate
	budget    *budget
	recents   *recents
	metrics   *metrics
	started   time.Time
	grace     time.Duration
	// life ends when nothing is stored any more.
	life    context.Context //nolint:containedctx // the gateway's own life, not a request's
	endLife context.CancelFunc
	// running holds the calls that an engine works on.
	running sync.Map
	// open counts requests that are in work or whose traces are.
	open     sync.WaitGroup
	stopMu   sync.RWMutex
	stopping bool
	// aborting: what runs is to end now.
	aborting atomic.Bool
	// struggling counts puts that have failed and are tried again.
	struggling atomic.Int64
}

// New makes a gateway. It does nothing before Start.
func New(o Options) (*Gateway, error) {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := o.Settings.Limits
	configs := make([]engine.Config, len(o.Settings.Engines))
	for i, e := range o.Settings.Engines {
		configs[i] = engine.Config{Name: e.Name, URL: e.URL, Kind: e.Kind, Key: e.Key, Models: e.Models, MaxConcurrent: e.MaxConcurrent, VersionHeader: e.VersionHeader}
	}
	pool, err := engine.New(engine.Options{Engines: configs, HealthEvery: l.HealthEvery, HealthTimeout: l.HealthTimeout,
		ConnectTimeout: l.EngineConnect, SilenceTimeout: l.Silence, MaxAnswerBytes: l.MaxAnswer, Log: log})
	if err != nil {
		return nil, fmt.Errorf("set up engines: %w", err)
	}
	return assemble(o, log, enginePool{pool}), nil
}

func assemble(o Options, log *slog.Logger, e engines) *Gateway {
	g := &Gateway{settings: o.Settings, capture: o.Capture, keys: o.Keys, versions: o.Versions, rollouts: o.Rollouts, log: log,
		now: o.Now, engines: e, memory: continuity.NewMemory(o.Settings.Limits.HeldTokens), recents: newRecents(), grace: o.StopGrace,
		gate: newGate(o.Settings.Limits.MaxOpen, o.Settings.Limits.MaxOpenPerRollout), budget: newBudget(o.Settings.Limits.MaxHeld, o.Memory),
		providers: map[string]turn.Provider{apiChat: chat.Provider{}, apiResponses: responses.Provider{},
			apiMessages: messages.Provider{}, apiGenerate: generate.Provider{}}}
	if g.now == nil {
		g.now = time.Now
	}
	if g.grace == 0 {
		g.grace = defaultStopGrace
	}
	g.started = g.now()
	g.life, g.endLife = context.WithCancel(context.Background())
	g.metrics = newMetrics(g)
	return g
}

// Start begins to watch the engines, until ctx ends or Stop is called.
func (g *Gateway) Start(ctx context.Context) { g.engines.Start(ctx) }

// Stop refuses new calls and waits for those that run, until ctx ends. Then it aborts
// them. Their traces are stored either way; what the store does not take within the
// grace after that is lost, and said in the log.
func (g *Gateway) Stop(ctx context.Context) error {
	g.stopMu.Lock()
	again := g.stopping
	g.stopping = true
	g.stopMu.Unlock()
	if again {
		return errors.New("stop gateway: it is stopping already")
	}
	defer g.engines.Close()
	defer g.endLife()
	idle := make(chan struct{})
	go func() {
		g.open.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	g.aborting.Store(true)
	g.running.Range(func(c, _ any) bool {
		c.(*call).cancel(errStopping) //nolint:forcetypeassert // nothing else is stored
		return true
	})
	for range 2 {
		select {
		case <-idle:
			return nil
		case <-time.After(g.grace):
			g.endLife() // storing is given up; what waits for it goes on
		}
	}
	return errors.New("stop gateway: some calls did not end in time; their rollouts stay incomplete")
}

// Status is what /v1/status shows of the gateway.
type Status struct {
	OpenCalls int             `json:"open_calls"`
	Engines   []engine.Status `json:"engines"`
	// HeldThreads and HeldTokens are what continuity holds.
	HeldThreads int   `json:"held_threads"`
	HeldTokens  int64 `json:"held_tokens"`
}

// Status tells how the gateway does.
func (g *Gateway) Status() Status {
	threads, held := g.memory.Size()
	return Status{OpenCalls: g.gate.count(), Engines: g.engines.Status(), HeldThreads: threads, HeldTokens: held}
}
