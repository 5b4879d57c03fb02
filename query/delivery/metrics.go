package delivery

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"icecore/problem"
	"icecore/query/trajectory"
)

type metrics struct {
	requests *prometheus.CounterVec
	seconds  prometheus.Histogram
	looks    prometheus.Histogram
	waiting  prometheus.Gauge
	failures prometheus.Counter
	rows     prometheus.Counter
	tokens   prometheus.Counter
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "icecore", Name: name, Help: help})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "icecore", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 16)})
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "icecore", Name: "lease_requests_total",
			Help: "Requests for leases, by how they were answered."}, []string{"outcome"}),
		seconds:  histogram("lease_wait_seconds", "Time from a request for a lease until there was one, or nothing to give."),
		looks:    histogram("lease_plan_seconds", "Time of one look for groups to deliver, the plan of the lease included."),
		waiting:  prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "icecore", Name: "lease_waiting", Help: "Requests for leases that wait or are planned."}),
		failures: counter("lease_stream_failures_total", "Streams of leases that were broken off."),
		rows:     counter("lease_rows_total", "Rows delivered under leases, repeated ones too."),
		tokens:   counter("lease_tokens_total", "Tokens of these rows."),
	}
	m.requests.WithLabelValues("given") // shown before the first request too
	return m
}

func (m *metrics) looked(took time.Duration) { m.looks.Observe(took.Seconds()) }

// answered counts how a request was answered: given, repeated (a key that had its
// lease already), empty, client_gone, or the code of its problem.
func (m *metrics) answered(h *held, err error, took time.Duration) {
	outcome := "empty"
	p, ok := errors.AsType[*problem.Problem](err)
	switch {
	case ok:
		outcome = string(p.Code)
	case err != nil:
		outcome = "client_gone"
	case h != nil && h.opened:
		outcome = "given"
	case h != nil:
		outcome = "repeated"
	}
	m.requests.WithLabelValues(outcome).Inc()
	m.seconds.Observe(took.Seconds())
}

func (m *metrics) sent(p *trajectory.Plan) {
	m.rows.Add(float64(len(p.Wants)))
	for i := range p.Wants {
		m.tokens.Add(float64(p.Wants[i].Length))
	}
}

// Collectors are the metrics of delivery, for a Prometheus registry.
func (a *API) Collectors() []prometheus.Collector {
	m := a.metrics
	return []prometheus.Collector{m.requests, m.seconds, m.looks, m.waiting, m.failures, m.rows, m.tokens}
}
