package gateway

import (
	"net/http"
	"sync"
	"time"

	"icecore/ingest/gateway/turn"
)

// busyAgain is when a harness may ask again after a limit. Codex gives up at a 429
// without such a time, so limits answer 503, which every harness asks again.
const busyAgain = time.Second

// gate counts calls that are open: from before their body is read until their traces
// are stored.
type gate struct {
	most, mostOf int
	mu           sync.Mutex
	open         int
	of           map[string]int
}

func newGate(most, mostOfRollout int) *gate {
	return &gate{most: most, mostOf: mostOfRollout, of: map[string]int{}}
}

func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.most > 0 && g.open >= g.most {
		return &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeOverloaded, RetryAfter: busyAgain,
			Message: "overloaded: too many calls are open; send this one again later"}
	}
	g.open++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open--
}

// enterRollout counts a call that has entered for its rollout as well.
func (g *gate) enterRollout(rollout string) error {
	if g.mostOf <= 0 {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of[rollout] >= g.mostOf {
		return &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeOverloaded, RetryAfter: busyAgain,
			Message: "overloaded: too many calls of this rollout are open; send this one again later"}
	}
	g.of[rollout]++
	return nil
}

func (g *gate) leaveRollout(rollout string) {
	if g.mostOf <= 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of[rollout]--; g.of[rollout] <= 0 {
		delete(g.of, rollout)
	}
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}
