package sqlapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"icecore/store/warehouse"
)

type metrics struct {
	gauges  []prometheus.Collector
	seconds *prometheus.HistogramVec
	rows    prometheus.Counter
	bytes   prometheus.Counter
}

func newMetrics(g *gate) *metrics {
	gauge := func(name, help string, value func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "icecore", Name: name, Help: help},
			func() float64 { return float64(value()) })
	}
	m := &metrics{
		gauges: []prometheus.Collector{
			gauge("sql_running", "Statements of SQL that run.", g.running.Load),
			gauge("sql_waiting", "Statements of SQL that wait for their turn.", g.waiting.Load),
		},
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "icecore", Name: "sql_seconds",
			Help: "Time from a statement's arrival until its result was complete, by outcome.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14)}, []string{"outcome"}),
		rows:  prometheus.NewCounter(prometheus.CounterOpts{Namespace: "icecore", Name: "sql_rows_total", Help: "Rows of results of SQL."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "icecore", Name: "sql_bytes_total", Help: "Bytes of results of SQL, as columns."}),
	}
	m.seconds.WithLabelValues("ok") // shown before the first statement too
	return m
}

func (m *metrics) ended(outcome string, took time.Duration, r warehouse.Reply) {
	m.seconds.WithLabelValues(outcome).Observe(took.Seconds())
	m.rows.Add(float64(r.Rows))
	m.bytes.Add(float64(r.Bytes))
}

// Collectors are the metrics of SQL, for a Prometheus registry.
func (a *API) Collectors() []prometheus.Collector {
	return append(a.metrics.gauges, a.metrics.seconds, a.metrics.rows, a.metrics.bytes)
}
