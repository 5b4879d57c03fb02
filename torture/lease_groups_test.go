package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"icecore/trace"
)

// fed is a rollout that learners are to be given: what rows it may have, and
// which rewards.
type fed struct {
	id, group string
	// rows that are always there, and rows of calls that came after the finish.
	rows, late [][]int32
	rewards    []float64
}

// feeder stores groups for learners, through every death of the server.
type feeder struct {
	home *home
	r    *rand.Rand
	// allowed is how many groups there may be; idle: so many are stored.
	allowed atomic.Int64
	idle    atomic.Bool

	mu       sync.Mutex
	groups   []string
	rollouts map[string]*fed
}

func newFeeder(h *home, seed uint64) *feeder {
	return &feeder{home: h, r: rand.New(rand.NewPCG(seed, 0xfeed)), rollouts: map[string]*fed{}}
}

// run makes groups, as many as allowed says at the time, and stores each until all
// of it is acknowledged, until ctx ends.
func (f *feeder) run(ctx context.Context) {
	for ctx.Err() == nil {
		if len(f.all()) >= int(f.allowed.Load()) {
			f.idle.Store(true)
			time.Sleep(2 * time.Millisecond)
			continue
		}
		f.idle.Store(false)
		for _, q := range f.group() {
			if !f.home.until(ctx, q) {
				return
			}
		}
	}
}

// more lets n more groups come.
func (f *feeder) more(n int) {
	f.idle.Store(false)
	f.allowed.Add(int64(n))
}

// group draws a group and the requests that store it.
func (f *feeder) group() (requests []request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := fmt.Sprintf("g%04d", len(f.groups))
	size := 1 + f.r.IntN(4)
	var after []request
	for i := range size {
		one, all, late := f.rollout(fmt.Sprintf("%s/r%d", name, i), name, i, size)
		f.rollouts[one.id] = one
		requests = append(requests, all...)
		after = append(after, late...)
	}
	f.groups = append(f.groups, name)
	return append(requests, after...)
}

// request is one that may be repeated until it is answered.
type request struct {
	method, path string
	body         []byte
}

func jsonOf(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of ours
	}
	return raw
}

// rollout draws a rollout, the requests that make it ready, in their order, and
// those that come late: another revision of the reward, another call.
func (f *feeder) rollout(id, group string, index, size int) (one *fed, requests, late []request) {
	one = &fed{id: id, group: group, rewards: []float64{float64(f.r.IntN(3))}}
	var traces []object
	call := func(prompt []int32) (whole []int32) {
		response := f.ids(1 + f.r.IntN(6))
		logprobs := make([]float64, len(response))
		for i := range logprobs {
			logprobs[i] = -float64(1+f.r.IntN(64)) / 16
		}
		traces = append(traces, object{"trace_id": fmt.Sprintf("%s/t%d", id, len(traces)), "rollout_id": id, "seq": len(traces), "policy_version": 3,
			"prompt_token_ids": prompt, "response_token_ids": response, "response_logprobs": logprobs, "finish_reason": "stop"})
		return slices.Concat(prompt, response)
	}
	// The agent's own calls extend each other; a sub-agent begins anew.
	whole := call(f.ids(4 + f.r.IntN(20)))
	for range f.r.IntN(3) {
		whole = call(slices.Concat(whole, f.ids(3)))
	}
	one.rows = append(one.rows, whole)
	if f.r.IntN(3) == 0 {
		one.rows = append(one.rows, call(f.ids(9)))
	}
	at := "/v1/rollouts/" + group + "%2Fr" + fmt.Sprint(index)
	requests = []request{{"POST", "/v1/traces", jsonOf(traces)},
		{"PUT", at, jsonOf(object{"group_id": group, "group_size": size, "sample_index": index, "harness": "codex", "split": "train"})}}
	ends := []request{{"POST", at + "/finish", jsonOf(object{"status": "succeeded"})}, {"POST", "/v1/rewards", f.reward(one, 0)}}
	f.r.Shuffle(2, func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
	requests = append(requests, ends...)
	if f.r.IntN(4) == 0 {
		one.rewards = append(one.rewards, 7)
		late = append(late, request{"POST", "/v1/rewards", f.reward(one, 1)})
	}
	if f.r.IntN(5) == 0 {
		traces = traces[:0:0]
		one.late = append(one.late, call(f.ids(11)))
		traces[0]["trace_id"] = id + "/late"
		late = append(late, request{"POST", "/v1/traces", jsonOf(traces)})
	}
	return one, requests, late
}

type object = map[string]any

func (f *feeder) reward(one *fed, revision int) []byte {
	return jsonOf(object{"reward_id": fmt.Sprintf("%s/w%d", one.id, revision), "rollout_id": one.id, "value": one.rewards[revision], "revision": revision})
}

func (f *feeder) ids(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = f.r.Int32N(1 << 20)
	}
	return out
}

// known gives what was stored of a rollout.
func (f *feeder) known(id string) *fed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rollouts[id]
}

func (f *feeder) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.groups)
}

// rowsOf checks the rows that a lease gave of a rollout: all that are always
// there once, of the late ones some, and nothing else.
func (one *fed) rowsOf(rows [][]int32) error {
	for _, want := range one.rows {
		if n := count(rows, want); n != 1 {
			return fmt.Errorf("rollout %s: the row of %d ids came %d times", one.id, len(want), n)
		}
	}
	n := len(one.rows)
	for _, late := range one.late {
		n += count(rows, late)
	}
	if n != len(rows) {
		return fmt.Errorf("rollout %s has %d rows, %d of them known", one.id, len(rows), n)
	}
	return nil
}

func count(rows [][]int32, row []int32) (n int) {
	for _, r := range rows {
		if trace.CommonPrefix(r, row) == len(row) && len(r) == len(row) {
			n++
		}
	}
	return n
}
