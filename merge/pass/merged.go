package pass

import (
	"context"

	"icecore/merge"
	"icecore/store"
	"icecore/trace"
)

// Merged is one rollout's calls and what a policy makes of them.
type Merged struct {
	Calls  *store.RolloutCalls
	Result *merge.Result
}

// Tokens gives the ids of a row, sharing those of the calls.
func (m *Merged) Tokens(row int) trace.Tokens {
	var ids trace.Tokens
	for _, p := range m.Result.Pieces(row) {
		c := &m.Calls.Calls[p.Call]
		ids = ids.Concat(c.Prompt.Concat(c.Response).Slice(p.From, p.To))
	}
	return ids
}

// Merge gives what policy makes of one rollout, without publishing it. The
// calls are those of all batches drained when it is called.
func (r *Runner) Merge(ctx context.Context, key int64, policy merge.Policy) (*Merged, error) {
	r.merging.Lock()
	defer r.merging.Unlock()
	lives, err := r.live.load(ctx, r.s, []int64{key}, r.s.Drained())
	if err != nil {
		return nil, err
	}
	// The rollout goes on growing after the lock is given back.
	calls := *lives[0].calls
	return &Merged{Calls: &calls, Result: lives[0].tree.Run(policy)}, nil
}

// Run gives what policy makes of calls that were loaded for it alone.
func Run(calls *store.RolloutCalls, policy merge.Policy) *Merged {
	t := merge.NewTree()
	for i := range calls.Calls {
		t.Add(mergeCall(&calls.Calls[i]))
	}
	return &Merged{Calls: calls, Result: t.Run(policy)}
}
