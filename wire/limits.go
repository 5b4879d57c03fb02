package wire

import "icecore/trace"

// Limits bounds one request. Zero values mean the defaults.
type Limits struct {
	trace.Limits
	// MaxItems bounds the items of one request. Default 10,000.
	MaxItems int
	// MaxBytes bounds what an Arrow stream may inflate to: its compressed
	// buffers, and separately the text that its dictionaries and views repeat.
	// Default 64 MiB. (Content-Encoding has its own count, see Inflate.)
	MaxBytes int64
}

// Defaults of Limits.
const (
	DefaultMaxItems = 10_000
	DefaultMaxBytes = 64 << 20
)

// WithDefaults replaces zero values.
func (l Limits) WithDefaults() Limits {
	l.Limits = l.Limits.WithDefaults()
	if l.MaxItems == 0 {
		l.MaxItems = DefaultMaxItems
	}
	if l.MaxBytes == 0 {
		l.MaxBytes = DefaultMaxBytes
	}
	return l
}
