// Package sqlapi serves SQL over HTTP: one statement per request, whose result is
// collected before the first byte of it is sent.
package sqlapi

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/labstack/echo/v4"

	"icecore/store/warehouse"
)

// Warehouse is what SQL needs of the store.
type Warehouse interface {
	// Ask runs one statement of a user's. It calls each at least once: a result
	// without rows is one batch without rows, with which the columns come. A batch
	// is valid during the call only. The error is a *warehouse.Fault when the
	// statement is at fault.
	Ask(ctx context.Context, a warehouse.Ask, each func(arrow.RecordBatch) error) (warehouse.Reply, error)
	// Query runs a statement of ours.
	Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error
}

// Options configures the API. The zero value of each field means its default.
type Options struct {
	// Running is how many statements run at once. Default: the processors, at
	// least 2.
	Running int
	// Waiting is how many more may wait for their turn, or have their answer
	// fetched. Default 32; negative: none.
	Waiting int
	// Timeout is the time limit of a statement that names none. Default 60 s.
	Timeout time.Duration
	// MaxTimeout is the greatest that a statement may name. Default 10 min.
	MaxTimeout time.Duration
	// MaxRows bounds the rows of a result. Default 1,000,000.
	MaxRows int64
	// MaxBytes bounds the columns of a result, in bytes. Default 256 MiB.
	MaxBytes int64
	// TempDir is where large results wait for their readers. Required.
	TempDir string
	// Patience is how long a client may send nothing, or take nothing. Default
	// 30 s.
	Patience time.Duration
	// Log gets a line per statement at its debug level. Default: slog.Default().
	Log *slog.Logger
}

// WithDefaults replaces zero values.
func (o Options) WithDefaults() Options {
	set := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	if o.Running == 0 {
		o.Running = max(2, runtime.GOMAXPROCS(0))
	}
	if o.Waiting == 0 {
		o.Waiting = 32
	}
	set(&o.Timeout, time.Minute)
	set(&o.MaxTimeout, 10*time.Minute)
	set(&o.Patience, 30*time.Second)
	if o.MaxRows == 0 {
		o.MaxRows = 1_000_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// API serves SQL.
type API struct {
	w       Warehouse
	opts    Options
	gate    *gate
	metrics *metrics
}

// New makes the handlers.
func New(w Warehouse, opts Options) *API {
	opts = opts.WithDefaults()
	g := newGate(opts.Running, max(opts.Waiting, 0))
	return &API{w: w, opts: opts, gate: g, metrics: newMetrics(g)}
}

// Register adds the routes.
func (a *API) Register(e *echo.Echo) {
	e.POST("/v1/sql", a.sql)
	e.GET("/v1/sql/tables", a.tables)
}
