package ingest

import (
	"context"
	"log/slog"
	"time"

	"icecore/wire"
)

// Options configures the handlers. The zero value of each field means its
// default.
type Options struct {
	Limits wire.Limits
	// MaxRequestBytes bounds one request, inflated. Default 64 MiB.
	MaxRequestBytes int64
	// MaxOpen bounds the requests being served; more are answered 429.
	// Default 64.
	MaxOpen int
	// MaxBufferedBytes bounds the request bytes held at once, inflated, over
	// all requests; more are answered 429. Default 512 MiB.
	MaxBufferedBytes int64
	// ReadTimeout is how long a client may send nothing. Default 30 s.
	ReadTimeout time.Duration
	// Merge publishes the trajectories of all that is drained; nil: nobody does.
	Merge func(context.Context) error
	Log   *slog.Logger
}

const (
	defaultMaxRequestBytes  = 64 << 20
	defaultMaxOpen          = 64
	defaultMaxBufferedBytes = 512 << 20
	defaultReadTimeout      = 30 * time.Second
)

// WithDefaults replaces zero values.
func (o Options) WithDefaults() Options {
	o.Limits = o.Limits.WithDefaults()
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = defaultMaxRequestBytes
	}
	if o.MaxOpen == 0 {
		o.MaxOpen = defaultMaxOpen
	}
	if o.MaxBufferedBytes == 0 {
		o.MaxBufferedBytes = max(defaultMaxBufferedBytes, o.MaxRequestBytes)
	}
	if o.ReadTimeout == 0 {
		o.ReadTimeout = defaultReadTimeout
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}
