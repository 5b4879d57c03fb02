package openapi

import (
	"fmt"
	"time"
)

// Options is what the document says of the server that serves it. No field has
// a default: the document would lie.
type Options struct {
	Version string
	// BaseURL is where the server is reached; the page's examples use it.
	BaseURL string
	// Profile: the server has /debug/pprof.
	Profile bool
	// Gateway: the server has engines.
	Gateway bool

	// The limits of ingest, see ingest.Options.
	MaxRequestBytes  int64
	MaxItems         int
	MaxTokens        int
	MaxBodyBytes     int64
	MaxJSONDepth     int
	MaxOpen          int
	MaxBufferedBytes int64
	ReadTimeout      time.Duration

	// What leases wait for where a request does not say, see delivery.Options.
	GroupQuiet     time.Duration
	IncompleteWait time.Duration

	// The limits of SQL, see sqlapi.Options.
	SQLRunning    int
	SQLWaiting    int
	SQLTimeout    time.Duration
	SQLMaxTimeout time.Duration
	SQLMaxRows    int64
	SQLMaxBytes   int64
}

// values are what ${name} stands for in api/*.yaml.
func (o Options) values() map[string]any {
	return map[string]any{
		"version":           o.Version,
		"max_request_text":  bytesText(o.MaxRequestBytes),
		"max_items":         o.MaxItems,
		"max_tokens":        o.MaxTokens,
		"max_body_text":     bytesText(o.MaxBodyBytes),
		"json_depth":        o.MaxJSONDepth,
		"max_open":          o.MaxOpen,
		"max_buffered_text": bytesText(o.MaxBufferedBytes),
		"read_timeout_text": o.ReadTimeout.String(),

		"group_quiet_text":     o.GroupQuiet.String(),
		"incomplete_wait_text": o.IncompleteWait.String(),

		"sql_running":          o.SQLRunning,
		"sql_waiting":          o.SQLWaiting,
		"sql_timeout_text":     o.SQLTimeout.String(),
		"sql_max_timeout_text": o.SQLMaxTimeout.String(),
		"sql_max_timeout_ms":   o.SQLMaxTimeout.Milliseconds(),
		"sql_max_rows":         o.SQLMaxRows,
		"sql_max_bytes_text":   bytesText(o.SQLMaxBytes),
	}
}

// bytesText writes a size in the largest unit that divides it.
func bytesText(n int64) string {
	for _, u := range []struct {
		name string
		n    int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.n && n%u.n == 0 {
			return fmt.Sprintf("%d %s", n/u.n, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
