package enginetest

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// control is what a trainer does to an engine: weights, pause, abort.
type control struct {
	mu      sync.Mutex
	version string
	paused  string // how; empty: not
	resumed chan struct{}
	calls   map[*call]bool // under way
}

func (c *control) init() {
	c.version, c.calls = "default", map[*call]bool{}
}

// SetVersion is new weights: what is sampled from now on is of this version.
func (e *Engine) SetVersion(v string) {
	e.control.mu.Lock()
	defer e.control.mu.Unlock()
	e.control.version = v
}

// Version is the version of the weights, "default" at first.
func (e *Engine) Version() string {
	e.control.mu.Lock()
	defer e.control.mu.Unlock()
	return e.control.version
}

// Pause stops sampling. Mode "abort" ends the calls under way with finish abort,
// "wait" lets them end, "keep" ("retract", "in_place") freezes them. New calls wait.
func (e *Engine) Pause(mode string) {
	c := &e.control
	c.mu.Lock()
	if c.paused == "" {
		c.resumed = make(chan struct{})
	}
	c.paused = mode
	running := slices.Collect(maps.Keys(c.calls))
	c.mu.Unlock()
	if mode == "abort" {
		for _, k := range running {
			k.abort()
		}
	}
}

// Resume goes on.
func (e *Engine) Resume() {
	c := &e.control
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused != "" {
		c.paused = ""
		close(c.resumed)
	}
}

// Paused gives the mode of the pause; empty: there is none.
func (e *Engine) Paused() string {
	e.control.mu.Lock()
	defer e.control.mu.Unlock()
	return e.control.paused
}

// Abort ends calls by their request ids with finish abort; none: all. It tells how
// many it found.
func (e *Engine) Abort(ids ...string) int {
	n := 0
	for _, k := range e.running() {
		if len(ids) == 0 || slices.Contains(ids, k.id) || slices.Contains(ids, k.answerID()) {
			k.abort()
			n++
		}
	}
	return n
}

// Restart breaks every connection under way, forgets a pause, and serves the weights
// that an engine starts with.
func (e *Engine) Restart() {
	e.Resume()
	e.SetVersion("default")
	for _, k := range e.running() {
		k.stop(errRestarted)
	}
}

// Running counts the calls under way.
func (e *Engine) Running() int { return len(e.running()) }

func (e *Engine) running() []*call {
	e.control.mu.Lock()
	defer e.control.mu.Unlock()
	return slices.Collect(maps.Keys(e.control.calls))
}

func (c *control) begin(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[k] = true
}

func (c *control) end(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, k)
}

// pass waits while the engine is paused. A call that runs already waits only where it
// is frozen.
func (c *control) pass(ctx context.Context, running bool) error {
	c.mu.Lock()
	frozen := c.paused != "" && (!running || c.paused != "wait" && c.paused != "abort")
	resumed := c.resumed
	c.mu.Unlock()
	if !frozen {
		return nil
	}
	select {
	case <-resumed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
