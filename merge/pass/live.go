package pass

import (
	"container/list"
	"context"

	"icecore/merge"
	"icecore/store"
)

// live is a rollout whose calls are linked already. A trace that comes later
// costs its own tokens, not the rollout's.
type live struct {
	calls  *store.RolloutCalls
	tree   *merge.Tree
	tokens int
}

// What a linked rollout, and each of its calls, takes beside ids, in ids.
const (
	liveCost = 256
	callCost = 128
)

// maxLiveTokens bounds the ids that linked rollouts keep in memory.
const maxLiveTokens = 16 << 20

type liveCache struct {
	byKey  map[int64]*list.Element
	order  *list.List
	tokens int
}

func newLiveCache() *liveCache {
	return &liveCache{byKey: map[int64]*list.Element{}, order: list.New()}
}

// load gives the rollouts linked up to batch through, in the order of keys.
func (c *liveCache) load(ctx context.Context, s *store.Store, keys []int64, through int64) ([]*live, error) {
	out := make([]*live, len(keys))
	var missing []int64
	for i, k := range keys {
		e, ok := c.byKey[k]
		if !ok {
			missing = append(missing, k)
			continue
		}
		c.order.MoveToFront(e)
		l := e.Value.(*live)
		if l.calls.Through < through {
			if err := s.ExtendCalls(ctx, l.calls, through); err != nil {
				c.drop(k) // it may be half extended
				return nil, err
			}
			c.link(l)
		}
		out[i] = l
	}
	defer c.trim()
	if len(missing) == 0 {
		return out, nil
	}
	loaded, err := s.LoadCalls(ctx, missing, through)
	if err != nil {
		return nil, err
	}
	at := 0
	for i := range out {
		if out[i] != nil {
			continue
		}
		l := &live{calls: loaded[at], tree: merge.NewTree()}
		at++
		c.byKey[l.calls.Key] = c.order.PushFront(l)
		c.link(l)
		out[i] = l
	}
	return out, nil
}

func (c *liveCache) trim() {
	for c.tokens > maxLiveTokens && c.order.Len() > 1 {
		c.drop(c.order.Back().Value.(*live).calls.Key)
	}
}

func (c *liveCache) drop(key int64) {
	if e, ok := c.byKey[key]; ok {
		c.tokens -= e.Value.(*live).tokens
		c.order.Remove(e)
		delete(c.byKey, key)
	}
}

// link adds the calls that the tree does not have yet.
func (c *liveCache) link(l *live) {
	for i := l.tree.Len(); i < len(l.calls.Calls); i++ {
		l.tree.Add(mergeCall(&l.calls.Calls[i]))
	}
	c.tokens -= l.tokens
	l.tokens = l.calls.Tokens() + liveCost + callCost*len(l.calls.Calls)
	c.tokens += l.tokens
}

func mergeCall(c *store.Call) merge.Call {
	return merge.Call{
		TraceID:       c.TraceID,
		Seq:           c.Seq,
		Prompt:        c.Prompt,
		Response:      c.Response,
		IDsIncomplete: c.IDsIncomplete,
		Status:        c.Status,
		FinishReason:  c.FinishReason,
		ChoiceGroup:   c.ChoiceGroup,
		ChoiceIndex:   c.ChoiceIndex,
	}
}
