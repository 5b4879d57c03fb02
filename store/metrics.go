package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"icecore/store/warehouse"
)

// metrics are the store's counters. Gauges are read when asked for: Status.
type metrics struct {
	commits        *prometheus.CounterVec
	commitSeconds  prometheus.Histogram
	commitRequests prometheus.Histogram
	traces         *prometheus.CounterVec
	tokensSent     prometheus.Counter
	tokensKept     prometheus.Counter
	drains         *prometheus.CounterVec
	drainRows      prometheus.Counter
	drainBytes     prometheus.Counter
	drainSeconds   prometheus.Histogram
	checkpoints    prometheus.Histogram
	restarts       *prometheus.CounterVec
	leases         *prometheus.CounterVec
	ackedGroups    prometheus.Counter
}

func newMetrics() *metrics {
	seconds := prometheus.ExponentialBuckets(0.00025, 2, 16)
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "icecore", Name: name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "icecore", Name: name, Help: help}, []string{label})
	}
	hist := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "icecore", Name: name, Help: help, Buckets: buckets})
	}
	return &metrics{
		commits:        vec("commits_total", "Group commits of the control database.", "result"),
		commitSeconds:  hist("commit_seconds", "Time of one group commit.", seconds),
		commitRequests: hist("commit_requests", "Requests that shared one group commit.", prometheus.ExponentialBuckets(1, 2, 9)),
		traces:         vec("traces_total", "Traces answered, by what became of them.", "status"),
		tokensSent:     counter("tokens_sent_total", "Token ids in stored traces, history repeated."),
		tokensKept:     counter("tokens_kept_total", "Token ids that stored traces added to tapes."),
		drains:         vec("drains_total", "Drains of the journal into the warehouse.", "result"),
		drainRows:      counter("drain_rows_total", "Rows drained into the warehouse."),
		drainBytes:     counter("drain_bytes_total", "Journal bytes drained into the warehouse."),
		drainSeconds:   hist("drain_seconds", "Time of one drain.", seconds),
		checkpoints:    hist("checkpoint_seconds", "Time of one checkpoint of the warehouse.", seconds),
		restarts:       vec("warehouse_restarts_total", "Processes of the warehouse that were lost, by why.", "reason"),
		leases:         vec("leases_total", "Leases opened, and what became of them.", "event"),
		ackedGroups:    counter("acknowledged_groups_total", "Groups that a consumer acknowledged."),
	}
}

// Collectors are the store's metrics, for a Prometheus registry.
func (s *Store) Collectors() []prometheus.Collector {
	m := s.metrics
	gauge := func(name, help, text string) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "icecore", Name: name, Help: help}, func() float64 {
			return s.countUnsettled(text)
		})
	}
	return []prometheus.Collector{
		gauge("open_leases", "Leases that hold groups now.", `state = 'open' AND expires_at > ?`),
		gauge("expired_leases", "Leases whose time passed, and whose groups nobody was given since.", `state = 'open' AND expires_at <= ?`),
		m.commits, m.commitSeconds, m.commitRequests, m.traces, m.tokensSent, m.tokensKept,
		m.drains, m.drainRows, m.drainBytes, m.drainSeconds, m.checkpoints, m.restarts, m.leases, m.ackedGroups}
}

// countUnsettled counts leases; not a number when the database does not answer.
func (s *Store) countUnsettled(where string) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), statusPatience)
	defer cancel()
	var n float64
	err := s.control.read.QueryRowContext(ctx, `SELECT count(*) FROM leases WHERE settled_at = 0 AND `+where, s.now()).Scan(&n)
	if err != nil {
		s.log.Warn("metrics are incomplete", "err", fmt.Errorf("count leases: %w", err))
		return math.NaN()
	}
	return n
}

func (m *metrics) committed(requests int, took time.Duration, err error) {
	if err != nil {
		m.commits.WithLabelValues("failed").Inc()
		return
	}
	m.commits.WithLabelValues("ok").Inc()
	m.commitSeconds.Observe(took.Seconds())
	m.commitRequests.Observe(float64(requests))
}

// ackedGroups counts groups; every other event is of a lease.
const ackedGroups = "acknowledged groups"

func (m *metrics) delivered(counts map[string]int64) {
	for event, n := range counts {
		if event == ackedGroups {
			m.ackedGroups.Add(float64(n))
		} else {
			m.leases.WithLabelValues(event).Add(float64(n))
		}
	}
}

func (m *metrics) items(out []Outcome) {
	for _, o := range out {
		m.traces.WithLabelValues(string(o.Status)).Inc()
	}
}

func (m *metrics) tokens(sent, kept int) {
	m.tokensSent.Add(float64(sent))
	m.tokensKept.Add(float64(kept))
}

func (m *metrics) drainFailed() { m.drains.WithLabelValues("failed").Inc() }

func (m *metrics) drained(rows, bytes int64, took time.Duration) {
	m.drains.WithLabelValues("ok").Inc()
	m.drainRows.Add(float64(rows))
	m.drainBytes.Add(float64(bytes))
	m.drainSeconds.Observe(took.Seconds())
}

func (m *metrics) checkpointed(took time.Duration) { m.checkpoints.Observe(took.Seconds()) }

func (m *metrics) restarted(reason string) { m.restarts.WithLabelValues(reason).Inc() }

// Status is what an operator asks first.
type Status struct {
	CommitQueue    int   `json:"commit_queue"`
	NewestBatch    int64 `json:"newest_batch"`
	DrainedBatch   int64 `json:"drained_batch"`
	JournalPending int64 `json:"journal_pending_bytes"`
	JournalKept    int64 `json:"journal_kept_bytes"`
	// DrainLagSeconds is how long the oldest undrained batch has waited.
	DrainLagSeconds float64 `json:"drain_lag_seconds"`
	DrainError      string  `json:"drain_error,omitempty"`
	// WarehouseError says why the warehouse does not answer now.
	WarehouseError string `json:"warehouse_error,omitempty"`
	// Warehouse is how its process is; nil: it has none of its own.
	Warehouse    *warehouse.Health `json:"warehouse,omitempty"`
	FreeBytes    int64             `json:"disk_free_bytes"`
	DiskBytes    map[string]int64  `json:"disk_bytes"`
	HeadBytes    int64             `json:"tape_head_bytes"`
	DuckDBMemory map[string]int64  `json:"duckdb_memory_bytes"`
	// OpenLeases hold groups now; OldestLease is the one opened first, if any.
	OpenLeases  int64        `json:"open_leases"`
	OldestLease *OldestLease `json:"oldest_open_lease"`
	// SetAside reports a warehouse file that could not be read at start.
	SetAside string `json:"set_aside,omitempty"`
}

// Status reads sizes, queues and lags.
func (s *Store) Status(ctx context.Context) (Status, error) {
	d := s.drainer
	st := Status{CommitQueue: len(s.committer.ops), SetAside: s.report, DiskBytes: map[string]int64{}, DuckDBMemory: map[string]int64{}}
	d.mu.Lock()
	st.NewestBatch, st.DrainedBatch = d.newest, d.drained
	st.JournalPending, st.JournalKept = d.pending, d.uncheckpoint
	if d.newest > d.drained {
		st.DrainLagSeconds = time.Since(d.oldestWait).Seconds()
	}
	if d.lastErr != nil {
		st.DrainError = d.lastErr.Error()
	}
	d.mu.Unlock()
	st.HeadBytes = s.heads.bytes.Load()
	var err error
	if st.FreeBytes, err = s.FreeBytes(); err != nil {
		return st, err
	}
	for _, name := range []string{controlFile, controlFile + "-wal", warehouseFile, warehouseFile + ".wal"} {
		// Stat, never open: closing a file of DuckDB's would drop its lock.
		if info, err := os.Stat(filepath.Join(s.opts.Dir, name)); err == nil {
			st.DiskBytes[name] = info.Size()
		}
	}
	if err := s.leaseStatus(ctx, &st); err != nil {
		return st, err
	}
	if child, ok := s.warehouse.(*warehouse.Child); ok {
		h := child.Health()
		if st.Warehouse = &h; !h.Up {
			st.WarehouseError = h.Why
			return st, nil
		}
	}
	// A warehouse that is out of order is what whoever asks wants to know, soon.
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	if err := s.duckDBMemory(ctx, st.DuckDBMemory); err != nil {
		st.WarehouseError = err.Error()
	}
	return st, nil
}

// OldestLease is a lease as a status shows it. Times are RFC 3339.
type OldestLease struct {
	LeaseID   string `json:"lease_id"`
	Consumer  string `json:"consumer"`
	CreatedAt string `json:"created_at"`
	ExpiresAt string `json:"expires_at"`
}

func (s *Store) leaseStatus(ctx context.Context, st *Status) error {
	const open = ` FROM leases l JOIN consumers c ON c.consumer_key = l.consumer_key WHERE l.settled_at = 0 AND l.state = 'open' AND l.expires_at > ?`
	var l OldestLease
	var created, expires int64
	err := s.control.read.QueryRowContext(ctx, `SELECT l.lease_id, c.name, l.created_at, l.expires_at, count(*) OVER ()`+open+
		` ORDER BY l.created_at, l.lease_key LIMIT 1`, s.now()).Scan(&l.LeaseID, &l.Consumer, &created, &expires, &st.OpenLeases)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up the oldest lease: %w", err)
	}
	l.CreatedAt, l.ExpiresAt = FormatTime(created), FormatTime(expires)
	st.OldestLease = &l
	return nil
}

// statusPatience bounds the wait of a status for DuckDB.
const statusPatience = 3 * time.Second

func (s *Store) duckDBMemory(ctx context.Context, byTag map[string]int64) error {
	return s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		tag, n := c.str(), c.i64()
		byTag[tag] = n
		return nil
	}), `SELECT tag, memory_usage_bytes FROM duckdb_memory() WHERE memory_usage_bytes > 0`)
}
