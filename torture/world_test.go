package torture

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"

	"icecore/trace"
	"icecore/wire"
)

// state is what the client knows of something it wants stored. The clock counts
// events, so that "sent after that was acknowledged" can be said.
type state struct {
	sent, acked int64 // first sent, first acknowledged; 0: never
	gone        bool  // a check found it absent since it was last sent
	busy        bool
	looked      bool // a check has seen it whole
}

// item is one trace, and how it may be sent.
type item struct {
	state
	t    *trace.Trace // whole
	base *item        // what prompt_prefix may name; nil: nothing
	cut  int
	in   *rollout
}

// small is everything else that is stored, by one request each.
type small struct {
	state
	method, path string
	body         string
	in           *rollout
	// What it means; one of them.
	intent string // trace id
	reward *trace.Reward
	patch  *patch
	finish *trace.Finish
}

// patch is a PUT.
type patch struct{ group, task, split string }

type rollout struct {
	id     string
	items  []*item
	smalls []*small
	looked bool // a check has seen it whole
}

// world is all that was made so far.
type world struct {
	mu       sync.Mutex
	r        *rand.Rand
	clock    int64
	rollouts []*rollout
	// open is what is not acknowledged.
	open       []*item
	openSmalls []*small
	stats      struct{ traces, resent, refusedRetry int }
}

func newWorld(seed uint64) *world { return &world{r: rand.New(rand.NewPCG(seed, 0xac))} }

func (w *world) add(r *rollout) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rollouts = append(w.rollouts, r)
	w.open = append(w.open, r.items...)
	w.openSmalls = append(w.openSmalls, r.smalls...)
	w.r.Shuffle(len(w.open), func(i, j int) { w.open[i], w.open[j] = w.open[j], w.open[i] })
	w.r.Shuffle(len(w.openSmalls), func(i, j int) { w.openSmalls[i], w.openSmalls[j] = w.openSmalls[j], w.openSmalls[i] })
}

func (w *world) grow(m *maker, rollouts, calls int) {
	for range rollouts {
		w.add(m.rollout(1 + m.r.IntN(2*calls)))
	}
}

func (w *world) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open) + len(w.openSmalls)
}

// finish turns drawn calls into a rollout.
func (g *rolloutMaker) finish() *rollout {
	ro := &rollout{id: g.id}
	for _, c := range g.calls {
		it := &item{t: c.t, in: ro}
		if g.chance(50) && c.p != nil {
			// Any call whose sequence begins as this prompt does can be named,
			// also a later one.
			for _, base := range ro.items {
				if base.t.PromptIDs == nil {
					continue
				}
				all := slices.Concat(base.t.PromptIDs.Flat(), base.t.ResponseIDs)
				if n := trace.CommonPrefix(all, c.p); n > it.cut {
					it.base, it.cut = base, n
				}
			}
		}
		if c.p != nil && (it.base != nil || g.chance(30)) {
			it.t.PromptHash = hashOf(c.p)
		}
		ro.items = append(ro.items, it)
	}
	g.beside(ro)
	return ro
}

func hashOf(ids []int32) []byte {
	h := sha256.New()
	for _, id := range ids {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(id))
		h.Write(b[:])
	}
	return h.Sum(nil)
}

// beside draws intents, attributes, a finish and rewards.
func (g *rolloutMaker) beside(ro *rollout) {
	add := func(s *small, method, path string, body any) {
		b, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		s.method, s.path, s.body, s.in = method, path, string(b), ro
		ro.smalls = append(ro.smalls, s)
	}
	escaped := url.PathEscape(ro.id)
	for _, it := range ro.items {
		if g.chance(20) {
			add(&small{intent: it.t.TraceID}, "POST", "/v1/traces/begin", []any{map[string]any{
				"trace_id": it.t.TraceID, "rollout_id": ro.id, "seq": it.t.Seq}})
		}
	}
	if g.chance(10) {
		ghost := ro.id + "-ghost"
		add(&small{intent: ghost}, "POST", "/v1/traces/begin", []any{map[string]any{"trace_id": ghost, "rollout_id": ro.id}})
	}
	if g.chance(50) {
		p := &patch{group: "put-" + g.tag, task: "put-task", split: "train"}
		add(&small{patch: p}, "PUT", "/v1/rollouts/"+escaped, map[string]any{"group_id": p.group, "task_id": p.task,
			"split": p.split, "group_size": 4, "metadata": map[string]any{"b": 1, "a": 9007199254740993}})
	}
	if g.chance(60) {
		f := &trace.Finish{Status: trace.FinishStatuses[g.r.IntN(len(trace.FinishStatuses))]}
		if f.Status == "error" {
			f.Error = "it broke"
		}
		body := map[string]any{"status": f.Status}
		if f.Error != "" {
			body["error"] = f.Error
		}
		add(&small{finish: f}, "POST", "/v1/rollouts/"+escaped+"/finish", body)
	}
	for revision := range g.r.IntN(4) {
		w := &trace.Reward{RewardID: fmt.Sprintf("%s-w%d", ro.id, revision), RolloutID: ro.id, Name: "outcome",
			Value: g.r.NormFloat64(), Revision: int64(revision)}
		body := map[string]any{"reward_id": w.RewardID, "rollout_id": ro.id, "value": w.Value, "revision": w.Revision}
		if g.chance(20) {
			w.Name, w.Source = "style", "judge"
			body["name"], body["source"] = w.Name, w.Source
		}
		add(&small{reward: w}, "POST", "/v1/rewards", []any{body})
	}
}

func encode(t *trace.Trace) []byte { return wire.EncodeTraceJSON(nil, t) }

// onWire is the trace as it goes over the wire.
func (it *item) onWire(byPrefix bool) *trace.Trace {
	if !byPrefix || it.base == nil {
		return it.t
	}
	t := *it.t
	t.PromptPrefix = &trace.PromptPrefix{TraceID: it.base.t.TraceID, Length: int64(it.cut)}
	t.PromptIDs = trace.TokensOf(t.PromptIDs.Flat()[it.cut:])
	return &t
}
