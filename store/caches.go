package store

import (
	"container/list"
	"sync"
	"sync/atomic"

	"icecore/trace"
)

// rolloutCache keeps the rollouts that the committer touched last. Only the
// committer uses it.
type rolloutCache struct {
	byID map[string]*Rollout
}

// maxCachedRollouts bounds the cache; beyond it, everything is forgotten at
// once, which costs one look-up per live rollout.
const maxCachedRollouts = 8192

func newRolloutCache() *rolloutCache { return &rolloutCache{byID: map[string]*Rollout{}} }

func (c *rolloutCache) take(id string) *Rollout { return c.byID[id] }

func (c *rolloutCache) put(r *Rollout) {
	if len(c.byID) >= maxCachedRollouts {
		c.clear()
	}
	c.byID[r.ID] = r
}

func (c *rolloutCache) clear() { clear(c.byID) }

// headCache keeps the tapes of the rollouts that grew last.
type headCache struct {
	mu    sync.Mutex
	byKey map[int64]*list.Element
	order *list.List // front: used last
	// bytes is read without mu: a commit that hangs holds that.
	bytes atomic.Int64
}

type headEntry struct {
	key   int64
	heads *heads
	seen  int64 // heads.bytes when last counted
}

func newHeadCache() *headCache {
	return &headCache{byKey: map[int64]*list.Element{}, order: list.New()}
}

// get gives a rollout's heads, empty ones when there are none. mu must be held.
func (c *headCache) get(key int64) *heads {
	if e, ok := c.byKey[key]; ok {
		c.order.MoveToFront(e)
		return e.Value.(*headEntry).heads
	}
	h := newHeads()
	c.byKey[key] = c.order.PushFront(&headEntry{key: key, heads: h})
	return h
}

// drop forgets a rollout's heads. mu must be held.
func (c *headCache) drop(key int64) {
	if e, ok := c.byKey[key]; ok {
		c.bytes.Add(-e.Value.(*headEntry).seen)
		c.order.Remove(e)
		delete(c.byKey, key)
	}
}

// trim counts anew what the named rollouts' heads hold, and forgets those used
// longest ago beyond limit. mu must be held.
func (c *headCache) trim(touched map[string]*Rollout, limit int64) {
	for _, r := range touched {
		if e, ok := c.byKey[r.Key]; ok {
			h := e.Value.(*headEntry)
			c.bytes.Add(h.heads.bytes - h.seen)
			h.seen = h.heads.bytes
		}
	}
	for c.bytes.Load() > limit && c.order.Len() > 1 {
		c.drop(c.order.Back().Value.(*headEntry).key)
	}
}

// prefix gives the first n ids of a stored trace's prompt and response, when
// memory holds them.
func (c *headCache) prefix(rolloutKey, traceKey int64, n int) (ids trace.Tokens, total int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[rolloutKey]
	if !ok {
		return nil, 0, false
	}
	p, ok := e.Value.(*headEntry).heads.places[traceKey]
	if !ok {
		return nil, 0, false
	}
	total = p.prompt + p.response
	if n > total {
		return nil, total, true
	}
	if n == 0 {
		return trace.Tokens{}, total, true
	}
	return p.tape.prefix(n), total, true
}
