package enginetest

import (
	"context"
	"sync"
)

// Gate holds an engine back until a test lets it go on: instead of sleeping. Its zero
// value is closed.
type Gate struct {
	mu      sync.Mutex
	steps   int // how many may pass now
	open    bool
	arrived int // how many have come, passed or not
	changed chan struct{}
}

// Step lets n more chunks pass.
func (g *Gate) Step(n int) { g.change(func() { g.steps += n }) }

// Open lets everything pass from now on.
func (g *Gate) Open() { g.change(func() { g.open = true }) }

// Close lets only what Step allows pass from now on.
func (g *Gate) Close() { g.change(func() { g.open, g.steps = false, 0 }) }

// Arrived waits until n chunks in all have come to the gate, passed or not. It gives
// the context's error when that ends first.
func (g *Gate) Arrived(ctx context.Context, n int) error {
	return g.wait(ctx, func() bool { return g.arrived >= n })
}

func (g *Gate) pass(ctx context.Context) error {
	if g == nil {
		return nil
	}
	g.change(func() { g.arrived++ })
	return g.wait(ctx, func() bool {
		if g.steps > 0 && !g.open {
			g.steps--
			return true
		}
		return g.open
	})
}

func (g *Gate) change(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	do()
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

func (g *Gate) wait(ctx context.Context, ready func() bool) error {
	for {
		g.mu.Lock()
		if ready() {
			g.mu.Unlock()
			return nil
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
