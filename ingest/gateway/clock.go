package gateway

import (
	"context"
	"time"
)

// backoff is the time between tries of something that fails.
type backoff struct{ next time.Duration }

const (
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

func newBackoff() *backoff { return &backoff{firstBackoff} }

// sleep waits for the next try; false: ctx ended.
func (b *backoff) sleep(ctx context.Context) bool {
	t := time.NewTimer(b.next)
	defer t.Stop()
	b.next = min(2*b.next, lastBackoff)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// limitFirstByte gives an engine the time that it has to begin; what it returns ends
// that time.
func (c *call) limitFirstByte() (stop func()) {
	limit := c.g.settings.Limits.FirstByte
	if limit <= 0 {
		return func() {}
	}
	t := time.AfterFunc(limit, func() { c.cancel(errFirstByte) })
	return func() { t.Stop() }
}
