package gateway

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"icecore/ingest/gateway/body"
)

// What is remembered of calls, to find those that a harness sends again.
const (
	maxRollouts = 4096
	maxRecent   = 64
)

// fate is what became of a call.
type fate int

const (
	fateRuns fate = iota
	fateOK
	fateBroke
	// fateNever is of a call that was never begun: it has no trace.
	fateNever
)

// earlier is a call that a later one may repeat.
type earlier struct {
	traceID, group string
	hash           string
	attempt        int
	fate           fate
	// cancel ends the call, while it runs.
	cancel func()
}

// link says which call another one repeats.
type link struct {
	// of is the call before, group the first of them; empty: it repeats none.
	of, group string
	// attempt counts from 1.
	attempt int
	// running cancels the call before; nil: it has ended.
	running func()
}

// recents remembers the last calls of each rollout. It only ever links: what a harness
// sends is sampled, be it the same bytes (a harness may want two samples of them).
type recents struct {
	mu       sync.Mutex
	rollouts map[string]*list.Element
	order    list.List // of *recent, the newest in front
}

type recent struct {
	rollout string
	calls   []*earlier
	// billing is the last billing line of each thread.
	billing map[string]string
}

func newRecents() *recents { return &recents{rollouts: map[string]*list.Element{}} }

func (r *recents) of(rollout string) *recent {
	at, ok := r.rollouts[rollout]
	if !ok {
		at = r.order.PushFront(&recent{rollout: rollout, billing: map[string]string{}})
		r.rollouts[rollout] = at
		if r.order.Len() > maxRollouts {
			oldest := r.order.Back()
			delete(r.rollouts, r.order.Remove(oldest).(*recent).rollout)
		}
	}
	r.order.MoveToFront(at)
	return at.Value.(*recent)
}

// begin remembers a call and says which one it repeats: the last with the same hash,
// if that one did not end well, or still runs, or the harness marks this one as a
// retry. marked is how often the harness says that it sent it before.
func (r *recents) begin(rollout, traceID, hash string, marked int, cancel func()) (*earlier, link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.of(rollout)
	to := link{attempt: marked + 1}
	for i := len(known.calls) - 1; i >= 0; i-- {
		before := known.calls[i]
		if before.hash != hash {
			continue
		}
		if before.fate != fateOK || marked > 0 {
			to = link{of: before.traceID, group: before.group, attempt: max(before.attempt, marked) + 1}
			if before.fate == fateRuns {
				to.running = before.cancel
			}
		}
		break
	}
	e := &earlier{traceID: traceID, group: first(to.group, traceID), hash: hash, attempt: to.attempt, cancel: cancel}
	known.calls = append(known.calls, e)
	if len(known.calls) > maxRecent {
		known.calls = slices.Delete(known.calls, 0, 1)
	}
	return e, to
}

// end says what became of a call.
func (r *recents) end(rollout string, e *earlier, f fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.fate, e.cancel = f, nil
	if f == fateNever {
		known := r.of(rollout)
		known.calls = slices.DeleteFunc(known.calls, func(other *earlier) bool { return other == e })
	}
}

// unstable says whether the billing line of a thread is another than it was last: then
// no prompt of the thread begins like the one before it.
func (r *recents) unstable(rollout, thread, line string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.of(rollout)
	before, seen := known.billing[thread]
	if len(known.billing) >= maxRecent && !seen {
		clear(known.billing)
	}
	known.billing[thread] = line
	return seen && before != line
}

// hashOf is what two sendings of one call have in common: API, path without its
// method, and the members of the body in the order of their names, but for those that
// only say how the answer is to come. Claude Code, after a stream that broke, asks
// again without stream. Lists and texts, which are nearly all of a body, count as the
// bytes that came: who sends a call again writes them in the same way. Objects do not:
// Codex writes the members of client_metadata in another order each time.
func hashOf(api, path string, raw []byte) string {
	h := sha256.New()
	put := func(b []byte) {
		_, _ = h.Write(b) // a hash does not fail
		_, _ = h.Write([]byte{0})
	}
	path, _, _ = strings.Cut(path, ":")
	put([]byte(api))
	put([]byte(path))
	fields, err := body.Read(raw)
	if err != nil {
		put(raw)
		return hex.EncodeToString(h.Sum(nil))
	}
	members := slices.Clone(fields.All())
	slices.SortFunc(members, func(a, b body.Member) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range members {
		if m.Name != "stream" && m.Name != "stream_options" {
			put([]byte(m.Name))
			value := m.Value.Raw()
			if m.Value.Kind() == body.KindObject {
				if sorted, err := sortedJSON(value); err == nil {
					value = sorted
				}
			}
			put(value)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
