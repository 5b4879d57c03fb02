package engine

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"time"

	"icecore/ingest/gateway/turn"
)

// An engine is clearly more loaded than another from twice its open calls on, and
// never for fewer than slack: a prefix cache that is missed costs more than a few
// calls beside.
const slack = 8

// Pick gives an engine that serves the model: a healthy one, or, where there is none,
// one that is unwell and not down. The same affinity gives the same engine while that
// is healthy, below its bound, and not clearly more loaded than the least loaded; else
// the next in the affinity's own order. An empty affinity gives the least loaded.
// Engines named in exclude are left out. The error is a *turn.Fault: unknown_model,
// engine_unreachable or overloaded.
func (p *Pool) Pick(model, affinity string, exclude ...string) (*Engine, error) {
	var able, unwell []*Engine
	known, silent := false, false
	for _, e := range p.engines {
		switch serves, healthy, usable, listed := e.state(model); {
		case !serves:
			silent = silent || !listed
		case !usable || slices.Contains(exclude, e.name):
			known = true
		case !healthy:
			unwell = append(unwell, e)
		default:
			able = append(able, e)
		}
	}
	if len(able) == 0 {
		able = unwell
	}
	if len(able) == 0 {
		return nil, p.none(model, known || silent)
	}
	least := able[0].open.Load()
	for _, e := range able {
		least = min(least, e.open.Load())
	}
	slices.SortStableFunc(able, func(a, b *Engine) int {
		if affinity == "" {
			return int(a.open.Load() - b.open.Load())
		}
		if rank(affinity, a.name) > rank(affinity, b.name) {
			return -1
		}
		return 1
	})
	for _, e := range able {
		open := e.open.Load()
		if e.full(open) || len(able) > 1 && open > 2*least+slack {
			continue
		}
		return e, nil
	}
	for _, e := range able { // those that are left out for their load alone
		if !e.full(e.open.Load()) {
			return e, nil
		}
	}
	return nil, &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeOverloaded, RetryAfter: time.Second,
		Message: fmt.Sprintf("overloaded: every engine of model %q has as many calls open as it may", model)}
}

func (p *Pool) none(model string, may bool) *turn.Fault {
	if may {
		return &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeEngineUnreachable, RetryAfter: time.Second,
			Message: fmt.Sprintf("overloaded: no engine that may serve model %q can be reached now", model)}
	}
	return &turn.Fault{Status: http.StatusNotFound, Code: turn.CodeUnknownModel, Field: "model",
		Message: fmt.Sprintf("no engine serves model %q", model)}
}

func (e *Engine) full(open int64) bool {
	return e.cfg.MaxConcurrent > 0 && open >= int64(e.cfg.MaxConcurrent)
}

// state says whether the engine serves a model, is healthy or at least usable, and has
// told what models it has.
func (e *Engine) state(model string) (serves, healthy, usable, listed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.cfg.Models) > 0 {
		return slices.Contains(e.cfg.Models, model), e.healthy, e.usable, true
	}
	for i := range e.listed {
		if e.listed[i].Name == model {
			return true, e.healthy, e.usable, true
		}
	}
	return false, e.healthy, e.usable, len(e.listed) > 0
}

// rank orders engines for one affinity, in the same way after every restart.
func rank(affinity, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(affinity))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(name))
	x := h.Sum64() // FNV alone leaves the ranks of like names alike
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
