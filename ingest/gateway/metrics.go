package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"icecore/trace"
)

// metrics are the gateway's. Labels have few values: models are the engines' own.
type metrics struct {
	g           *Gateway
	calls       *prometheus.CounterVec
	refusals    *prometheus.CounterVec
	firstTokens *prometheus.HistogramVec
	seconds     *prometheus.HistogramVec
	sampled     *prometheus.CounterVec
	prompt      *prometheus.CounterVec
	flags       *prometheus.CounterVec
	labels      *prometheus.CounterVec
	splices     *prometheus.CounterVec
	retries     prometheus.Counter
	begin, put  prometheus.Histogram
	failures    *prometheus.CounterVec
	unstable    prometheus.Counter
	undelivered prometheus.Counter
	all         []prometheus.Collector
}

func newMetrics(g *Gateway) *metrics {
	m := &metrics{g: g}
	fast := prometheus.ExponentialBuckets(0.00025, 2, 16)
	slow := prometheus.ExponentialBuckets(0.01, 2, 17)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "icecore_gateway", Name: name, Help: help}, labels)
		m.all = append(m.all, c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "icecore_gateway", Name: name, Help: help, Buckets: buckets}, labels)
		m.all = append(m.all, h)
		return h
	}
	m.calls = counter("calls_total", "Calls that ended, by provider API, engine's model and status of the trace.", "api", "model", "status")
	m.refusals = counter("refused_total", "Requests that were answered before an engine was asked, by code.", "api", "code")
	m.firstTokens = histogram("first_token_seconds", "From a call's arrival to the engine's first token.", slow, "api", "model")
	m.seconds = histogram("call_seconds", "From a call's arrival to the engine's last token.", slow, "api", "model")
	m.sampled = counter("sampled_tokens_total", "Sampled ids in stored traces.", "model")
	m.prompt = counter("prompt_tokens_total", "Prompt ids in stored traces.", "model")
	m.flags = counter("flags_total", "Oddities of engines' answers, by flag.", "flag")
	m.labels = counter("continuity_total", "Prompts set against the sequences before them, by label.", "label")
	m.splices = counter("splices_total", "Calls of models with continuity, by whether held ids were used, or why not.", "result")
	m.failures = counter("capture_failures_total", "Failures to announce or store calls, by where.", "at")
	m.retries = counter("retries_total", "Calls that repeat an earlier one.").WithLabelValues()
	m.unstable = counter("unstable_prefix_total", "Calls whose system prompt begins with another billing line than the call before.").WithLabelValues()
	m.undelivered = counter("undelivered_total", "Answers whose traces were stored as ok, and whose end did not reach the harness.").WithLabelValues()
	m.begin, _ = histogram("begin_seconds", "Time to make a call's intent durable.", fast).WithLabelValues().(prometheus.Histogram)
	m.put, _ = histogram("put_seconds", "Time to make a call's traces durable.", fast).WithLabelValues().(prometheus.Histogram)
	gauge := func(name, help string, value func() float64) {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "icecore_gateway", Name: name, Help: help}, value))
	}
	gauge("open_calls", "Calls that are open.", func() float64 { return float64(g.gate.count()) })
	gauge("held_bytes", "Memory that the requests of open calls count for (limits.max_held).", func() float64 { return float64(g.budget.inUse()) })
	gauge("held_tokens", "Ids held for continuity.", func() float64 { _, n := g.memory.Size(); return float64(n) })
	gauge("engines_healthy", "Engines that answer.", func() float64 {
		n := 0
		for _, e := range g.engines.Status() {
			if e.Healthy {
				n++
			}
		}
		return float64(n)
	})
	return m
}

// Collectors are the gateway's metrics, for a Prometheus registry.
func (g *Gateway) Collectors() []prometheus.Collector { return g.metrics.all }

func (m *metrics) refused(api, code string)        { m.refusals.WithLabelValues(api, code).Inc() }
func (m *metrics) captureFailed(at string)         { m.failures.WithLabelValues(at).Inc() }
func (m *metrics) unstablePrefix()                 { m.unstable.Inc() }
func (m *metrics) beginTime(from time.Time) func() { return m.since(m.begin, from) }
func (m *metrics) putTime(from time.Time) func()   { return m.since(m.put, from) }
func (m *metrics) since(h prometheus.Histogram, from time.Time) func() {
	return func() { h.Observe(m.g.now().Sub(from).Seconds()) }
}

// call counts one that ended.
func (m *metrics) call(c *call, o *outcome, status trace.Status) {
	api := c.provider.API()
	m.calls.WithLabelValues(api, c.model, string(status)).Inc()
	if !o.firstToken.IsZero() {
		m.firstTokens.WithLabelValues(api, c.model).Observe(o.firstToken.Sub(c.started).Seconds())
	}
	m.seconds.WithLabelValues(api, c.model).Observe(o.ended.Sub(c.started).Seconds())
	for _, s := range o.sampled {
		if s == nil {
			continue
		}
		for _, flag := range s.Flags {
			m.flags.WithLabelValues(flag).Inc()
		}
	}
	for _, flag := range o.flags {
		m.flags.WithLabelValues(flag).Inc()
	}
	if o.drift.Label != "" {
		m.labels.WithLabelValues(o.drift.Label).Inc()
	}
	if result := o.drift.Why; result != "" || o.drift.Spliced {
		m.splices.WithLabelValues(first(result, "spliced")).Inc()
	}
	if c.link.of != "" {
		m.retries.Inc()
	}
}

// stored counts what is durable.
func (m *metrics) stored(traces []*trace.Trace) {
	for _, t := range traces {
		m.sampled.WithLabelValues(t.Attributes.Model).Add(float64(len(t.ResponseIDs)))
		m.prompt.WithLabelValues(t.Attributes.Model).Add(float64(t.PromptIDs.Len()))
	}
}
