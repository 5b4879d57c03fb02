package continuity

import (
	"container/list"
	"slices"
	"sync"

	"icecore/ingest/gateway/turn"
)

const (
	// DefaultTokens is how many ids a Memory holds: 256 MiB.
	DefaultTokens = 64 << 20
	// perThread bounds the held calls of a thread: the newest, and some branches and
	// retries beside it.
	perThread = 8
	// sumCost and heldCost are what a message's hash and a held call take, in ids.
	sumCost  = 4
	heldCost = 64
)

// Memory holds finished calls by thread. It is bounded by ids; the thread that was
// used longest ago goes first. Safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	max     int64
	used    int64
	threads map[string]*list.Element
	order   *list.List // of *thread, used last in front
}

type thread struct {
	name    string
	entries []entry // newest last
	cost    int64
}

type entry struct {
	held *Held
	sums []sum
}

// NewMemory makes one of at most maxTokens ids; 0: DefaultTokens.
func NewMemory(maxTokens int64) *Memory {
	if maxTokens <= 0 {
		maxTokens = DefaultTokens
	}
	return &Memory{max: maxTokens, threads: map[string]*list.Element{}, order: list.New()}
}

// Put keeps a finished call. A call of the same trace is replaced. A call with more
// ids than the memory may have is not kept.
func (m *Memory) Put(name string, h *Held) {
	kept := h.like()
	if slices.Equal(kept.Rendered, kept.Tokens[:min(kept.PromptLen, len(kept.Tokens))]) {
		kept.Rendered = nil
	}
	one := entry{held: kept, sums: sums(h.Messages)}

	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.threads[name]
	if at == nil {
		at = m.order.PushFront(&thread{name: name})
		m.threads[name] = at
	}
	m.order.MoveToFront(at)
	t, _ := at.Value.(*thread)
	t.entries = slices.DeleteFunc(t.entries, func(e entry) bool { return e.held.TraceID == h.TraceID })
	if len(t.entries) >= perThread {
		t.entries = slices.Delete(t.entries, 0, len(t.entries)-perThread+1)
	}
	for i := range t.entries {
		t.entries[i].held = t.entries[i].held.sharing(kept)
	}
	t.entries = append(t.entries, one)
	m.count(t)
	for m.used > m.max {
		m.shrink()
	}
}

// shrink forgets the thread that was used longest ago; the last one loses its oldest.
func (m *Memory) shrink() {
	last := m.order.Back()
	t, _ := last.Value.(*thread)
	if m.order.Len() == 1 && len(t.entries) > 1 {
		t.entries = slices.Delete(t.entries, 0, 1)
		m.count(t)
		return
	}
	m.forget(last)
}

func (m *Memory) forget(at *list.Element) {
	t, _ := m.order.Remove(at).(*thread)
	m.used -= t.cost
	delete(m.threads, t.name)
}

// count sees what a thread takes. Sequences that share an array count once.
func (m *Memory) count(t *thread) {
	arrays := map[*int32]int{}
	cost := 0
	for _, e := range t.entries {
		for _, ids := range [][]int32{e.held.Tokens, e.held.Rendered} {
			if len(ids) > 0 {
				arrays[&ids[0]] = max(arrays[&ids[0]], len(ids))
			}
		}
		cost += heldCost + sumCost*len(e.sums)
	}
	for _, n := range arrays {
		cost += n
	}
	m.used += int64(cost) - t.cost
	t.cost = int64(cost)
}

// Forget drops a thread.
func (m *Memory) Forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := m.threads[name]; at != nil {
		m.forget(at)
	}
}

// Size is how many threads are held, and what they take in ids.
func (m *Memory) Size() (threads int, tokens int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.threads), m.used
}

// Candidates gives the held calls of a thread, the best match first: those that the
// request goes on from, then by how many messages are equal, then the newest.
func (m *Memory) Candidates(name string, r *turn.Request, model, toolsHash, paramsHash string) []*Match {
	m.mu.Lock()
	at := m.threads[name]
	if at == nil {
		m.mu.Unlock()
		return nil
	}
	m.order.MoveToFront(at)
	t, _ := at.Value.(*thread)
	entries := slices.Clone(t.entries)
	m.mu.Unlock()

	asked := sums(r.Messages)
	out := make([]*Match, 0, len(entries))
	for _, e := range slices.Backward(entries) {
		out = append(out, e.match(asked, model, toolsHash, paramsHash))
	}
	slices.SortStableFunc(out, func(a, b *Match) int { return b.rank() - a.rank() })
	return out
}

func (e *entry) match(asked []sum, model, toolsHash, paramsHash string) *Match {
	h := e.held
	x := &Match{
		Held:          h,
		SettingsEqual: h.Model == model && h.ToolsHash == toolsHash && h.ParamsHash == paramsHash,
		of:            len(e.sums),
	}
	both := min(len(asked), len(e.sums))
	for x.Through < both && asked[x.Through] == e.sums[x.Through] {
		x.Through++
	}
	for i := x.Through; i < both; i++ {
		x.met = x.met || asked[i] == e.sums[i]
	}
	x.MessagesEqual = x.Through == len(e.sums)
	x.within = x.Through == len(asked)
	return x
}

// rank orders matches: a call that can be gone on from, with the longest history.
func (x *Match) rank() int {
	rank := 4 * x.Through
	if x.MessagesEqual {
		rank += 2
		if x.SettingsEqual {
			rank += 1 << 40
		}
	}
	if x.SettingsEqual {
		rank++
	}
	return rank
}
