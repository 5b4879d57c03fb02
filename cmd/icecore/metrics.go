package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

func (s *server) registry() (*prometheus.Registry, error) {
	r := prometheus.NewRegistry()
	all := append(slices.Concat(s.store.Collectors(), s.ingest.Collectors(), s.sql.Collectors(), s.delivery.Collectors(), s.gatewayCollectors()), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &statusCollector{s})
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return r, nil
}

// statusCollector shows what /v1/status shows, as gauges.
type statusCollector struct{ s *server }

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("icecore_"+name, help, labels, nil)
}

var (
	gaugeQueue    = gauge("commit_queue", "Requests that wait for a group commit.")
	gaugeOpen     = gauge("ingest_open_requests", "Ingest requests being served.")
	gaugeHeld     = gauge("ingest_held_bytes", "Request bytes held by ingest.")
	gaugePending  = gauge("journal_pending_bytes", "Journal bytes that the warehouse has not taken.")
	gaugeKept     = gauge("journal_kept_bytes", "Journal bytes drained but not yet checkpointed.")
	gaugeDrainLag = gauge("drain_lag_seconds", "How long the oldest undrained batch has waited.")
	gaugeMerge    = gauge("merge_waiting_rollouts", "Rollouts with traces that are not merged.")
	gaugeMergeLag = gauge("merge_lag_seconds", "How long the longest waiting rollout has waited for a merge.")
	gaugeFree     = gauge("disk_free_bytes", "Free space for the data directory.")
	gaugeDisk     = gauge("disk_bytes", "Size of each database file.", "file")
	gaugeHeads    = gauge("tape_head_bytes", "Memory held by tape heads.")
	gaugeDuckDB   = gauge("duckdb_memory_bytes", "DuckDB's memory by tag.", "tag")
	gaugeUp       = gauge("warehouse_up", "1 while the warehouse's process is there and has its file open.")
	gaugeResident = gauge("warehouse_resident_bytes", "Resident memory of the warehouse's process.")
	allGaugeDescs = []*prometheus.Desc{gaugeQueue, gaugeOpen, gaugeHeld, gaugePending, gaugeKept, gaugeDrainLag, gaugeMerge, gaugeMergeLag, gaugeFree, gaugeDisk, gaugeHeads, gaugeDuckDB, gaugeUp, gaugeResident}
)

// Describe implements prometheus.Collector.
func (c *statusCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range allGaugeDescs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *statusCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	set(gaugeOpen, float64(c.s.ingest.Open()))
	set(gaugeHeld, float64(c.s.ingest.Held()))
	waiting, oldest := c.s.runner.Waiting()
	set(gaugeMerge, float64(waiting))
	set(gaugeMergeLag, oldest.Seconds())
	st, err := c.s.store.Status(ctx)
	if err != nil {
		c.s.log.Warn("metrics are incomplete", "err", err)
		return
	}
	set(gaugeQueue, float64(st.CommitQueue))
	set(gaugePending, float64(st.JournalPending))
	set(gaugeKept, float64(st.JournalKept))
	set(gaugeDrainLag, st.DrainLagSeconds)
	set(gaugeFree, float64(st.FreeBytes))
	set(gaugeHeads, float64(st.HeadBytes))
	if w := st.Warehouse; w != nil {
		up := 0.0
		if w.Up {
			up = 1
		}
		set(gaugeUp, up)
		set(gaugeResident, float64(w.Resident))
	}
	for name, n := range st.DiskBytes {
		set(gaugeDisk, float64(n), name)
	}
	for tag, n := range st.DuckDBMemory {
		set(gaugeDuckDB, float64(n), tag)
	}
}
