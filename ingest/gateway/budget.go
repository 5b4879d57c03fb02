package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"icecore/ingest/gateway/turn"
)

// rate is what a request counts for in memory, in bytes for each of its body and for
// each of its JSON values: some bodies are little but values.
type rate struct{ bytes, values int64 }

var (
	// takenIn is a request until it is decoded: parts are there twice for a moment, and a
	// list has a value of 80 bytes for each item.
	takenIn = rate{6, 112}
	// waiting is one that waits for its engine: the body as it came, decoded, and as it
	// goes to the engine; TestWeightsAreTrue measures it.
	waiting = rate{4, 48}
)

func (r rate) of(bytes, values int64) int64 { return r.bytes*bytes + r.values*values }

const (
	// leastHeld is the least that the default of limits.max_held is: a request of the
	// default of limits.max_request has room in it.
	leastHeld = 512 << 20
	heldWait  = 2 * time.Second
)

// budget bounds the memory that requests hold, from before they are read until their
// traces are stored.
type budget struct {
	most int64
	// wait is how long a request waits for others to give memory back.
	wait time.Duration

	mu   sync.Mutex
	held int64
	// growing: one that holds something waits for more. A second one is refused at
	// once, or both would wait for each other.
	growing bool
	// freed is closed, and made anew, when memory is given back. All that wait try
	// again then: a small request does not stand behind a large one.
	freed chan struct{}
}

// newBudget makes one of most bytes; 0: an eighth of memory.
func newBudget(most, memory int64) *budget {
	if most <= 0 {
		most = max(memory/8, leastHeld)
	}
	return &budget{most: most, wait: heldWait, freed: make(chan struct{})}
}

var errGrowing = errors.New("another request waits for room to grow")

// take waits until there is room for so many bytes, and has them. grows: for somebody
// who holds some already.
func (b *budget) take(ctx context.Context, bytes int64, grows bool) error {
	ctx, cancel := context.WithTimeout(ctx, b.wait)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	if grows && b.held+bytes > b.most {
		if b.growing {
			return errGrowing
		}
		b.growing = true
		defer func() { b.growing = false }()
	}
	for b.held+bytes > b.most {
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
		b.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	b.held += bytes
	return nil
}

func (b *budget) giveBack(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= bytes
	close(b.freed)
	b.freed = make(chan struct{})
}

// inUse gives how much is held now, in bytes.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// share is what one request holds of a budget. It is given back when its last user has
// dropped it: its handler, or who stores its traces.
type share struct {
	b     *budget
	bytes int64
	users atomic.Int32
	// body and values are the request's own size.
	body, values int64
}

func (b *budget) share() *share {
	s := &share{b: b}
	s.users.Store(1)
	return s
}

// atLeast makes the share so large, and waits a little for that. The error is a
// *turn.Fault.
func (s *share) atLeast(ctx context.Context, bytes int64) error {
	more := bytes - s.bytes
	if more <= 0 {
		return nil
	}
	if bytes > s.b.most {
		return &turn.Fault{Status: http.StatusRequestEntityTooLarge, Code: turn.CodeTooLarge,
			Message: fmt.Sprintf("the request takes more memory than all requests may (limits.max_held: %d bytes)", s.b.most)}
	}
	if err := s.b.take(ctx, more, s.bytes > 0); err != nil {
		return &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeOverloaded, RetryAfter: busyAgain,
			Message: "overloaded: the requests of open calls hold too much memory; send this one again later", Cause: err}
	}
	s.bytes = bytes
	return nil
}

// weigh makes the share as large as a whole body is until it is decoded.
func (s *share) weigh(ctx context.Context, raw []byte) error {
	s.body, s.values = int64(len(raw)), values(raw)
	if err := s.atLeast(ctx, takenIn.of(s.body, s.values)); err != nil {
		return err
	}
	s.shrink(takenIn)
	return nil
}

// shrink gives back what the request does not count for any more.
func (s *share) shrink(to rate) {
	if less := s.bytes - to.of(s.body, s.values); less > 0 {
		s.giveBack(less)
	}
}

func (s *share) giveBack(bytes int64) {
	s.bytes -= bytes
	s.b.giveBack(bytes)
}

// use adds a user of what is held.
func (s *share) use() { s.users.Add(1) }

func (s *share) drop() {
	if s.users.Add(-1) == 0 {
		s.giveBack(s.bytes)
	}
}

// values counts the values of a JSON text, and the names among them. In what is no JSON
// it counts something.
func values(raw []byte) int64 {
	n := int64(1)
	for at := 0; at < len(raw); at++ {
		switch raw[at] {
		case ',', ':', '[', '{':
			n++
		case '"':
			at = quoteEnd(raw, at)
		}
	}
	return n
}

// quoteEnd gives where the text ends that begins at a place: at a quote before which stands
// an even number of backslashes.
func quoteEnd(raw []byte, at int) int {
	for {
		next := bytes.IndexByte(raw[at+1:], '"')
		if next < 0 {
			return len(raw)
		}
		begin := at
		at += next + 1
		slashes := 0
		for at-slashes-1 > begin && raw[at-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
	}
}
