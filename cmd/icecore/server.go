package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof" // reached only with --profile
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"icecore/ingest"
	"icecore/ingest/gateway"
	"icecore/merge"
	"icecore/merge/pass"
	"icecore/problem"
	"icecore/query"
	"icecore/query/delivery"
	"icecore/query/sqlapi"
	"icecore/store"
	"icecore/verify"
)

// server is the running whole: parts start in order and stop in reverse.
type server struct {
	cfg      config
	log      *slog.Logger
	store    *store.Store
	runner   *pass.Runner
	ingest   *ingest.API
	sql      *sqlapi.API
	delivery *delivery.API
	gateway  *gateway.Gateway // nil: there is none
	http     *http.Server
	addr     string
	stopping atomic.Bool
	served   chan error
}

func startServer(ctx context.Context, cfg config, log *slog.Logger) (*server, error) {
	listener, err := listen(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := &server{cfg: cfg, log: log, addr: listener.Addr().String(), served: make(chan error, 1)}
	if err := s.startParts(ctx); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	e, err := s.routes()
	if err != nil {
		return nil, errors.Join(err, listener.Close(), s.stopGateway(ctx), s.stopParts())
	}
	s.http = &http.Server{Handler: e, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go func() { s.served <- s.http.Serve(listener) }()
	log.Info("serving", "address", s.addr, "data", cfg.Data)
	return s, nil
}

// listen binds the port first, so that a taken one is found before anything is
// opened.
func listen(ctx context.Context, cfg config) (net.Listener, error) {
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	if host != "" && err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	loopback := len(ips) > 0
	for _, ip := range ips {
		loopback = loopback && ip.IsLoopback()
	}
	if !loopback && !cfg.AllowRemote {
		return nil, fmt.Errorf("--listen %s: other machines could reach it, and there is no authentication; "+
			"listen on 127.0.0.1, or say --allow-remote", cfg.Listen)
	}
	var how net.ListenConfig
	l, err := how.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return l, nil
}

func (s *server) startParts(ctx context.Context) error {
	cfg := s.cfg
	sizes := map[string]string{"--disk-floor": cfg.DiskFloor, "--checkpoint-bytes": cfg.CheckpointBytes}
	for flag, text := range map[string]string{"--memory-limit": cfg.MemoryLimit, "--warehouse-memory": cfg.WarehouseMemory, "--spill-limit": cfg.SpillLimit} {
		if text != "" {
			sizes[flag] = text
		}
	}
	size, err := parseSizes(sizes)
	if err != nil {
		return err
	}
	if size["--disk-floor"] == 0 {
		size["--disk-floor"] = -1
	}
	policies, err := cfg.policies()
	if err != nil {
		return err
	}
	var drained drainNews
	var api atomic.Pointer[ingest.API]
	s.store, err = store.Open(ctx, store.Options{Dir: cfg.Data, Owner: "icecore serve on " + s.addr, Log: s.log,
		MemoryLimit: size["--memory-limit"], ChildMemory: size["--warehouse-memory"], Threads: cfg.Threads, TempDir: cfg.TempDir, SpillLimit: size["--spill-limit"], DiskFloor: size["--disk-floor"],
		DrainInterval: cfg.DrainEvery, CheckpointInterval: cfg.CheckpointEvery, CheckpointBytes: size["--checkpoint-bytes"], RebuildIndex: cfg.RebuildIndex, Warehouse: warehouseProcess,
		OnDrain: drained.tell})
	if err != nil {
		return err
	}
	s.runner, err = pass.New(ctx, s.store, pass.Options{Policies: policies, Quiet: cfg.MergeQuiet, MaxWait: cfg.MergeWait, Log: s.log,
		// A statement may read a merge that was superseded after it began.
		KeepSuperseded: max(15*time.Minute, cfg.SQLMaxTimeout+time.Minute),
		Busy:           func() bool { a := api.Load(); return a != nil && a.Open() > 0 }})
	if err != nil {
		return errors.Join(err, s.store.Close(context.WithoutCancel(ctx)))
	}
	drained.attach(s.runner)
	options, err := cfg.ingestOptions(s.log)
	if err != nil {
		return errors.Join(err, s.stopParts())
	}
	options.Merge = s.mergeAll(policies)
	s.ingest = ingest.New(s.store, options)
	api.Store(s.ingest)
	sql, err := s.sqlOptions()
	if err != nil {
		return errors.Join(err, s.stopParts())
	}
	s.sql = sqlapi.New(s.store, sql)
	if cfg.GroupQuiet < 0 || cfg.IncompleteWait < 0 {
		return errors.Join(errors.New("--group-quiet and --incomplete-wait: are times from 0 on"), s.stopParts())
	}
	s.delivery = delivery.New(s.store, s.runner, delivery.Options{Quiet: cfg.GroupQuiet, Incomplete: cfg.IncompleteWait, Patience: cfg.ReadTimeout, Log: s.log})
	if err := s.startGateway(); err != nil {
		return errors.Join(err, s.stopParts())
	}
	return nil
}

// drainNews takes the store's news of drained rollouts to the runner, which
// starts after the store: what comes before is kept for it.
type drainNews struct {
	mu     sync.Mutex
	runner *pass.Runner
	early  []int64
}

func (d *drainNews) tell(keys []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runner == nil {
		d.early = append(d.early, keys...)
		return
	}
	d.runner.Changed(keys)
}

func (d *drainNews) attach(r *pass.Runner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runner = r
	r.Changed(d.early)
	d.early = nil
}

// mergeAll publishes what the policies that are merged unasked make of all that is
// drained.
func (s *server) mergeAll(policies []merge.Policy) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, p := range policies {
			if err := s.runner.EnsureAll(ctx, p); err != nil {
				return err
			}
		}
		return nil
	}
}

func (s *server) stopParts() error {
	s.runner.Close()
	return s.store.Close(context.Background())
}

// abortGrace is how long calls of the gateway that were broken off have to tell their
// harnesses so.
const abortGrace = 2 * time.Second

// stop refuses new requests, finishes those in work, drains and closes.
func (s *server) stop() error {
	s.stopping.Store(true)
	s.delivery.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StopTimeout)
	defer cancel()
	calls := make(chan error, 1)
	go func() { calls <- s.stopGateway(ctx) }()
	patience := s.cfg.StopTimeout
	if s.gateway != nil {
		patience += abortGrace
	}
	connections, cancelToo := context.WithTimeout(context.Background(), patience)
	defer cancelToo()
	err := s.http.Shutdown(connections)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("some requests did not finish in time; breaking them off")
		err = s.http.Close()
	}
	// The store closes only when every call's trace is in it.
	return errors.Join(err, <-calls, s.stopParts())
}

func (s *server) routes() (*echo.Echo, error) {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = problem.Handler(s.log)
	e.Use(s.guard)
	s.ingest.Register(e)
	query.New(s.store, s.runner, s.sql, s.log).Register(e)
	s.sql.Register(e)
	s.delivery.Register(e)
	s.routeGateway(e)
	doc, err := s.document()
	if err != nil {
		return nil, err
	}
	doc.Register(e)
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	e.GET("/metrics", echo.WrapHandler(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	e.GET("/healthz", func(c echo.Context) error { return c.String(http.StatusOK, "ok\n") })
	e.GET("/readyz", s.ready)
	e.GET("/v1/status", s.status)
	e.POST("/v1/verify", s.verify)
	if s.cfg.Profile {
		e.GET("/debug/pprof/*", echo.WrapHandler(http.DefaultServeMux))
	}
	return e, nil
}

// guard turns a panic of one request into its answer, and refuses requests
// while the server stops.
func (s *server) guard(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			p := recover()
			switch {
			case p == nil:
			case p == http.ErrAbortHandler: //nolint:errorlint // net/http compares it so
				panic(p) // the connection is to be broken
			default:
				s.log.Error("request panicked", "path", c.Request().URL.Path, "panic", p, "stack", string(debug.Stack()))
				err = problem.Internal(fmt.Errorf("panic: %v", p))
			}
		}()
		started := time.Now()
		err = next(c)
		s.log.Debug("request", "method", c.Request().Method, "path", c.Request().URL.Path, "took", time.Since(started), "err", err)
		return err
	}
}

func (s *server) ready(c echo.Context) error {
	err := s.store.Ready()
	if s.stopping.Load() {
		err = store.ErrClosed
	}
	if err != nil {
		return problem.New(problem.NotReady, err.Error())
	}
	return c.String(http.StatusOK, "ready\n")
}

func (s *server) status(c echo.Context) error {
	st, err := s.store.Status(c.Request().Context())
	if err != nil {
		return problem.Internal(err)
	}
	waiting, oldest := s.runner.Waiting()
	return answer(c, struct {
		store.Status
		Version         string  `json:"version"`
		OpenIngest      int64   `json:"ingest_open_requests"`
		HeldIngest      int64   `json:"ingest_held_bytes"`
		MergeWaiting    int     `json:"merge_waiting_rollouts"`
		MergeLagSeconds float64 `json:"merge_lag_seconds"`
		Gateway         any     `json:"gateway,omitempty"`
	}{st, version, s.ingest.Open(), s.ingest.Held(), waiting, oldest.Seconds(), s.gatewayStatus()})
}

// verify runs the witness in the warehouse's process: only one may open that
// file.
func (s *server) verify(c echo.Context) error {
	ctx := c.Request().Context()
	err := s.store.WaitDrained(ctx, s.store.NewestBatch())
	var report verify.Report
	if err == nil {
		call := verifyCall{Control: s.store.ControlPath(), Through: s.store.Drained()}
		err = s.store.InWarehouse(ctx, verifyPath, call, &report)
	}
	switch {
	case errors.Is(err, store.ErrWarehouse):
		return problem.New(problem.WarehouseBehind, "the warehouse does not answer; it is tried again").Because(err)
	case err != nil:
		return problem.Internal(err)
	}
	return answer(c, report)
}

func answer(c echo.Context, v any) error {
	if err := c.JSON(http.StatusOK, v); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}
