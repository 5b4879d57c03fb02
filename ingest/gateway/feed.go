package gateway

import (
	"context"
	"sync"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// maxFeed is how much text may wait for a harness that reads slowly, in bytes. Beyond
// it the engine is read no further. An answer of less is read as fast as the engine
// makes it, so its times and versions are the engine's and not the harness's.
const maxFeed = 256 << 10

// deltaBytes is what a delta weighs besides its text.
const deltaBytes = 64

// feed takes deltas from the goroutine that reads the engine to the one that writes to
// the harness, many at a time.
type feed struct {
	mu     sync.Mutex
	deltas []turn.Delta
	bytes  int
	// announced: the call is durable; accepted: the engine has taken it.
	announced, accepted bool
	prompt              *int64
	// news and room hold one signal each: something came, something was taken.
	news, room chan struct{}
}

func newFeed() *feed {
	return &feed{news: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// announce says that the call is announced: its trace will come.
func (f *feed) announce() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.announced = true
}

// isAnnounced says whether the answer may begin, which names the trace.
func (f *feed) isAnnounced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.announced
}

// accept says that the engine has taken the call.
func (f *feed) accept() {
	f.mu.Lock()
	f.accepted = true
	f.mu.Unlock()
	signal(f.news)
}

// put hands a piece on; it waits while too much waits already, until ctx ends.
func (f *feed) put(ctx context.Context, p *engine.Piece) error {
	size := 0
	for i := range p.Deltas {
		size += weight(&p.Deltas[i])
	}
	f.mu.Lock()
	for f.bytes > maxFeed {
		f.mu.Unlock()
		select {
		case <-f.room:
		case <-ctx.Done():
			return ctx.Err()
		}
		f.mu.Lock()
	}
	f.bytes += size
	f.deltas = append(f.deltas, p.Deltas...)
	if p.PromptTokens != nil {
		f.prompt = p.PromptTokens
	}
	f.mu.Unlock()
	signal(f.news)
	return nil
}

func weight(d *turn.Delta) int {
	size := deltaBytes + len(d.Reasoning) + len(d.Text) + len(d.Refusal) + len(d.Logprobs)
	for i := range d.Calls {
		size += deltaBytes + len(d.Calls[i].Arguments)
	}
	return size
}

// take gives everything that waits, and lends the feed another slice to gather in.
func (f *feed) take(spare []turn.Delta) (deltas []turn.Delta, accepted bool, prompt *int64) {
	clear(spare)
	f.mu.Lock()
	deltas, f.deltas, f.bytes = f.deltas, spare[:0], 0
	accepted, prompt = f.accepted, f.prompt
	f.mu.Unlock()
	signal(f.room)
	return deltas, accepted, prompt
}
