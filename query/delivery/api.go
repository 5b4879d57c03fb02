package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/problem"
	"icecore/query/trajectory"
	"icecore/store"
	"icecore/trace"
)

// Store is what delivery needs of the store.
type Store interface {
	trajectory.Source
	ReadyGroups(ctx context.Context, consumer string, asked store.Asked) (*store.Ready, error)
	GroupRollouts(ctx context.Context, groups []int64) (map[int64][]store.Rollout, error)
	Given(ctx context.Context, consumer string, rollouts []int64) (map[int64]int64, error)
	GroupsChanged() <-chan struct{}
	FromPolicyVersion(ctx context.Context, consumer string) (*int64, error)
	Rewards(ctx context.Context, keys []int64) (map[int64][]trace.Reward, error)
	WaitDrained(ctx context.Context, batch int64) error
	MergedRows(ctx context.Context, keys []int64, policy string) ([]store.MergedRow, error)
	CloserLook(ctx context.Context, keys []int64) (map[int64]bool, error)

	OpenLease(ctx context.Context, n store.NewLease) (*store.Lease, error)
	SkipGroups(ctx context.Context, consumer string, skips []store.Skip) error
	LeaseByKey(ctx context.Context, consumer, key string) (*store.Lease, error)
	Lease(ctx context.Context, id string) (*store.Lease, error)
	ExtendLease(ctx context.Context, id string, seconds int) (*store.Lease, error)
	ReviveLease(ctx context.Context, id string, seconds int) (*store.Lease, error)
	AckLease(ctx context.Context, id string, shards []int, metrics []byte) (*store.Lease, error)
	ReturnLease(ctx context.Context, id string, delay time.Duration, reason string) (*store.Lease, error)
	SeekConsumer(ctx context.Context, name string, to store.Seek) (cancelled int, err error)
	DropConsumer(ctx context.Context, name string) error
	Consumer(ctx context.Context, name string) (*store.ConsumerState, error)
	Consumers(ctx context.Context) ([]store.ConsumerState, error)
}

// Merger publishes what a policy makes of rollouts.
type Merger interface {
	Ensure(ctx context.Context, keys []int64, policy merge.Policy) error
}

// Options configures the API.
type Options struct {
	// Quiet is how long a group that declares no size must bring no new rollout
	// before it counts as whole, where a request does not say.
	Quiet time.Duration
	// Incomplete is how long a finished rollout may wait for announced calls that
	// have not come, where a request does not say.
	Incomplete time.Duration
	// Patience is how long a client may send nothing, or take nothing.
	Patience time.Duration
	Log      *slog.Logger
}

// API serves leases.
type API struct {
	s       Store
	m       Merger
	opts    Options
	metrics *metrics
	// planning bounds how many requests look at groups at once.
	planning chan struct{}

	stop     sync.Once
	stopping chan struct{}

	mu        sync.Mutex
	consumers map[string]*consumer
}

// planners is how many requests look at groups at once: looking takes processor
// time, and those that wait lose nothing.
const planners = 4

// New makes the handlers.
func New(s Store, m Merger, opts Options) *API {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	return &API{s: s, m: m, opts: opts, metrics: newMetrics(), planning: make(chan struct{}, planners),
		stopping: make(chan struct{}), consumers: map[string]*consumer{}}
}

// Register adds the routes.
func (a *API) Register(e *echo.Echo) {
	e.POST("/v1/consumers/:name/lease", a.lease)
	e.GET("/v1/consumers", a.listConsumers)
	e.GET("/v1/consumers/:name", a.showConsumer)
	e.DELETE("/v1/consumers/:name", a.dropConsumer)
	e.POST("/v1/consumers/:name/seek", a.seek)
	e.GET("/v1/leases/:lease_id", a.showLease)
	e.POST("/v1/leases/:lease_id/ack", a.ack)
	e.POST("/v1/leases/:lease_id/nack", a.nack)
	e.POST("/v1/leases/:lease_id/extend", a.extend)
}

// Stop answers those who wait for groups with shutting_down. The server calls it
// before it waits for its requests.
func (a *API) Stop() { a.stop.Do(func() { close(a.stopping) }) }

// pathID reads an id from the path.
func pathID(c echo.Context, name string) (string, error) {
	id, err := problem.PathParam(c, name)
	if err != nil {
		return "", err
	}
	if fault := trace.ValidateID(name, id); fault != nil {
		return "", problem.BadParameter(name, fault.Message)
	}
	return id, nil
}

// fault turns errors of store and merge into answers.
func fault(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*problem.Problem](err); ok || errors.Is(err, context.Canceled) {
		return err // a client that left gets no answer
	}
	for _, known := range []struct {
		err    error
		code   problem.Code
		detail string
	}{
		{store.ErrNotFound, problem.NotFound, "nothing is stored under this id"},
		{store.ErrLeaseAcked, problem.LeaseAcknowledged, "the lease is acknowledged: what it delivered is settled"},
		{store.ErrLeaseLost, problem.LeaseLost, "the lease no longer holds its groups: it was returned or cancelled, or it expired and they were given away"},
		{store.ErrClosed, problem.ShuttingDown, "the server is shutting down"},
		{store.ErrDiskFull, problem.DiskFull, "too little disk space is left; nothing was changed"},
		{store.ErrWarehouse, problem.WarehouseBehind, "the warehouse does not take in what was stored; it is tried again"},
		{pass.ErrTooManyPolicies, problem.TooManyPolicies, err.Error()},
	} {
		if errors.Is(err, known.err) {
			return problem.New(known.code, known.detail).Because(err)
		}
	}
	return problem.Internal(err)
}

// answer writes v as JSON.
func answer(c echo.Context, v any) error {
	if err := c.JSON(http.StatusOK, v); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}
