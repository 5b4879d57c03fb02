package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"icecore/failpoint"
	"icecore/ingest/gateway"
	"icecore/ingest/gateway/settings"
	"icecore/problem"
	"icecore/store"
	"icecore/trace"
)

// gatewayConfig says whether there is a gateway, and of what.
type gatewayConfig struct {
	Gateway string   `help:"Settings of the gateway; empty and without --engine: there is none." placeholder:"FILE"`
	Engine  []string `help:"Engine that the gateway calls, by its URL; may be given several times." placeholder:"URL" sep:","`
}

// startGateway makes the gateway, if there is to be one.
func (s *server) startGateway() error {
	c := s.cfg.gatewayConfig
	if c.Gateway == "" && len(c.Engine) == 0 {
		return nil
	}
	set, err := settings.Load(c.Gateway, c.Engine, settings.Source{})
	if err != nil {
		return err
	}
	options, err := s.cfg.ingestOptions(s.log)
	if err != nil {
		return err
	}
	s.gateway, err = gateway.New(gateway.Options{Settings: set, Log: s.log, Memory: store.Memory(), Capture: capture{s.store, options.WithDefaults().Limits.Limits},
		Keys: gatewayKeys{s.store}, Versions: gatewayVersions{s.store}, Rollouts: gatewayRollouts{s.store}})
	if err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	s.gateway.Start(context.Background())
	return nil
}

// routeGateway registers the gateway, or what says that there is none.
func (s *server) routeGateway(e *echo.Echo) {
	if s.gateway != nil {
		s.gateway.Register(e)
		return
	}
	e.Any("/gateway/*", func(echo.Context) error {
		return problem.New(problem.NoGateway, "this server has no gateway: start it with --engine URL, or with --gateway FILE")
	})
}

func (s *server) gatewayCollectors() []prometheus.Collector {
	if s.gateway == nil {
		return nil
	}
	return s.gateway.Collectors()
}

// gatewayStatus is its part of /v1/status; nil: there is no gateway.
func (s *server) gatewayStatus() any {
	if s.gateway == nil {
		return nil
	}
	return s.gateway.Status()
}

// stopGateway refuses new calls and lets those in work go on until ctx ends. It comes
// back when the traces of all are stored.
func (s *server) stopGateway(ctx context.Context) error {
	if s.gateway == nil {
		return nil
	}
	if err := s.gateway.Stop(ctx); err != nil {
		return fmt.Errorf("stop the gateway: %w", err)
	}
	return nil
}

// capture has the store keep what the gateway's calls leave behind.
type capture struct {
	store  *store.Store
	limits trace.Limits
}

// Begin implements gateway.Capture.
func (c capture) Begin(ctx context.Context, intents []*trace.Intent) error {
	out, _, err := c.store.BeginCalls(ctx, intents)
	if errors.Is(err, store.ErrDiskFull) || errors.Is(err, store.ErrClosed) {
		return fmt.Errorf("%w: announce calls: %w", gateway.ErrNotNow, err)
	}
	if err != nil {
		return fmt.Errorf("announce calls: %w", err)
	}
	for i, o := range out {
		if o.Err != nil {
			return fmt.Errorf("%w: announce call %s: %w", gateway.ErrRefused, intents[i].TraceID, o.Err)
		}
	}
	// From here on the engine may be called.
	if err := failpoint.Hit("gateway.begun"); err != nil {
		return fmt.Errorf("announce calls: %w", err)
	}
	return nil
}

// Withdraw implements gateway.Capture.
func (c capture) Withdraw(ctx context.Context, intents []*trace.Intent) error {
	ids := make([]string, len(intents))
	for i, in := range intents {
		ids[i] = in.TraceID
	}
	if err := c.store.WithdrawCalls(ctx, ids); err != nil {
		return fmt.Errorf("withdraw calls: %w", err)
	}
	return nil
}

// Put implements gateway.Capture.
func (c capture) Put(ctx context.Context, traces []*trace.Trace) error {
	for _, t := range traces {
		if err := t.Validate(c.limits); err != nil {
			return fmt.Errorf("%w: %w", gateway.ErrRefused, err)
		}
	}
	if err := failpoint.Hit("gateway.answered"); err != nil {
		return fmt.Errorf("store traces: %w", err)
	}
	out, _, err := c.store.PutTraces(ctx, traces)
	if err != nil {
		return fmt.Errorf("store traces: %w", err)
	}
	for _, o := range out {
		if o.Err != nil {
			return fmt.Errorf("%w: %w", gateway.ErrRefused, o.Err)
		}
	}
	// From here on the harness may have the end of its answer.
	if err := failpoint.Hit("gateway.stored"); err != nil {
		return fmt.Errorf("store traces: %w", err)
	}
	return nil
}

type gatewayKeys struct{ store *store.Store }

// Find implements gateway.Keys.
func (k gatewayKeys) Find(ctx context.Context, key string) (string, error) {
	id, err := k.store.FindKey(ctx, key)
	if errors.Is(err, store.ErrUnknownKey) {
		return "", gateway.ErrUnknownKey
	}
	if err != nil {
		return "", fmt.Errorf("look up a key: %w", err)
	}
	return id, nil
}

type gatewayVersions struct{ store *store.Store }

// At implements gateway.Versions.
func (v gatewayVersions) At(model string) *int64 { return v.store.VersionOf(model) }

type gatewayRollouts struct{ store *store.Store }

// Known implements gateway.Rollouts.
func (r gatewayRollouts) Known(ctx context.Context, id string) (known bool, harness string, finished bool, err error) {
	found, err := r.store.Rollout(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return false, "", false, nil
	}
	if err != nil {
		return false, "", false, fmt.Errorf("look up a rollout: %w", err)
	}
	return true, found.Harness, found.Status != "", nil
}
