package verify

import (
	"context"
	"database/sql"
	"fmt"
)

// maxList is the longest list that the warehouse may hold.
const maxList = 4096

// loadTapes reads a page's tapes and checks that they hang together.
func (v *run) loadTapes(ctx context.Context, q querier, p *page) error {
	err := q.each(ctx, func(s scan) error {
		var rolloutKey int64
		t := &tape{}
		if err := s(&t.key, &rolloutKey, &t.parentKey, &t.fork, &t.batch); err != nil {
			return err
		}
		r := p.byKey[rolloutKey]
		if r == nil {
			return nil // opened since the rollouts were listed
		}
		v.checked(checkTapes, 1)
		if r.tapes[t.key] != nil {
			return nil // told by duplicateKeys
		}
		r.tapes[t.key] = t
		v.linkTape(r, t)
		return nil
	}, `SELECT tape_key, rollout_key, parent_key, fork, batch FROM ice.tapes
		WHERE rollout_key BETWEEN ? AND ? AND batch <= ? ORDER BY tape_key`, p.first, p.last, v.through)
	if err != nil {
		return err
	}
	// Lists are read in order, so a tape's chunks come one after the other.
	newest := map[int64]int64{}
	err = q.each(ctx, func(s scan) error {
		var key, rolloutKey, batch int64
		var start int
		var list any
		if err := s(&key, &rolloutKey, &start, &list, &batch); err != nil {
			return err
		}
		r := p.byKey[rolloutKey]
		if r == nil {
			return nil
		}
		v.checked(checkTapes, 1)
		t := r.tapes[key]
		if t == nil {
			v.fail(checkTapes, r.name(), "", "tape %d: a chunk at %d lies on a tape that this rollout does not have", key, start)
			return nil
		}
		v.addChunk(r, t, start, list)
		if batch < max(t.batch, newest[key]) {
			v.fail(checkTapes, r.name(), "", "tape %d: the chunk at %d is of batch %d, before the tape's own or the chunk's before it", key, start, batch)
		}
		newest[key] = batch
		return nil
	}, `SELECT tape_key, rollout_key, start, token_ids, batch FROM ice.tape_chunks
		WHERE rollout_key BETWEEN ? AND ? AND batch <= ? ORDER BY tape_key, start`, p.first, p.last, v.through)
	if err != nil {
		return err
	}
	for _, r := range p.rollouts {
		v.sealTapes(r)
	}
	return nil
}

func (v *run) linkTape(r *rollout, t *tape) {
	fail := func(format string, args ...any) {
		t.broken = true
		v.fail(checkTapes, r.name(), "", "tape %d: "+format, append([]any{t.key}, args...)...)
	}
	switch {
	case t.parentKey == 0 && t.fork != 0:
		fail("forks at %d, but has no parent", t.fork)
	case t.fork < 0:
		fail("forks at %d", t.fork)
	case t.parentKey >= t.key:
		fail("its parent %d does not come before it", t.parentKey)
	case t.parentKey != 0:
		if t.parent = r.tapes[t.parentKey]; t.parent == nil {
			fail("its parent %d is not a tape of this rollout", t.parentKey)
		} else if t.parent.batch > t.batch {
			fail("is of batch %d, its parent %d of batch %d", t.batch, t.parentKey, t.parent.batch)
		}
	}
}

func (v *run) addChunk(r *rollout, t *tape, start int, list any) {
	ids, ok := idList(list)
	switch {
	case !ok:
		t.broken = true
		v.fail(checkTapes, r.name(), "", "tape %d: the chunk at %d holds something that is not an id", t.key, start)
		return
	case len(ids) > maxList || len(ids) == 0:
		v.fail(checkTapes, r.name(), "", "tape %d: the chunk at %d holds %d ids (1 to %d are allowed)", t.key, start, len(ids), maxList)
	case start > t.length():
		v.fail(checkTapes, r.name(), "", "tape %d: ids %d to %d are missing", t.key, t.length(), start)
		t.broken = true
		return
	case start < t.length():
		v.fail(checkTapes, r.name(), "", "tape %d: the chunk at %d overlaps what goes on to %d", t.key, start, t.length())
		t.broken = true
		return
	}
	for i, id := range ids {
		if id < 0 {
			v.fail(checkTapes, r.name(), "", "tape %d: the id at %d is %d", t.key, start+i, id)
			break
		}
	}
	t.own = append(t.own, ids...)
	v.Tokens += int64(len(ids))
}

// sealTapes checks forks against their parents' lengths and hashes what is
// sound. Parents have smaller keys.
func (v *run) sealTapes(r *rollout) {
	for _, key := range sortedKeys(r.tapes) {
		t := r.tapes[key]
		if t.parent != nil {
			if t.fork > t.parent.length() && !t.parent.broken {
				v.fail(checkTapes, r.name(), "", "tape %d: forks at %d, but its parent %d holds %d ids", t.key, t.fork, t.parentKey, t.parent.length())
				t.broken = true
			}
			t.broken = t.broken || t.parent.broken
		}
		if !t.broken {
			t.seal()
		}
	}
}

// loadLogprobs reads a page's log-probabilities onto its traces.
func (v *run) loadLogprobs(ctx context.Context, q querier, p *page) error {
	err := q.each(ctx, func(s scan) error {
		var key, rolloutKey int64
		var start int
		var list any
		if err := s(&key, &rolloutKey, &start, &list); err != nil {
			return err
		}
		r := p.byKey[rolloutKey]
		if r == nil {
			return nil
		}
		v.checked(checkLogprobs, 1)
		t := r.byKey[key]
		if t == nil {
			v.fail(checkLogprobs, r.name(), "", "log-probabilities at %d belong to trace_key %d, which this rollout does not have", start, key)
			return nil
		}
		values, _ := list.([]any)
		switch {
		case start > t.logprobs.n:
			v.fail(checkLogprobs, r.name(), t.id, "log-probabilities %d to %d are missing", t.logprobs.n, start)
			t.logprobs.broken = true
		case start < t.logprobs.n:
			v.fail(checkLogprobs, r.name(), t.id, "the log-probabilities at %d overlap what goes on to %d", start, t.logprobs.n)
			t.logprobs.broken = true
		case len(values) > maxList || len(values) == 0:
			v.fail(checkLogprobs, r.name(), t.id, "the chunk at %d holds %d log-probabilities (1 to %d are allowed)", start, len(values), maxList)
		}
		t.logprobs.add(values)
		return nil
	}, `SELECT trace_key, rollout_key, start, logprobs FROM ice.logprob_chunks
		WHERE rollout_key BETWEEN ? AND ? AND batch <= ? ORDER BY trace_key, start`, p.first, p.last, v.through)
	if err != nil {
		return err
	}
	for _, r := range p.rollouts {
		for _, t := range r.traces {
			v.checked(checkLogprobs, 1)
			switch n := t.logprobs.n; {
			case !t.hasLogprobs && n > 0:
				v.fail(checkLogprobs, r.name(), t.id, "has %d log-probabilities, though it says that it has none", n)
			case t.hasLogprobs && !t.responseLength.Valid:
				v.fail(checkLogprobs, r.name(), t.id, "has log-probabilities without a response")
			case t.hasLogprobs && !t.logprobs.broken && n != t.response():
				v.fail(checkLogprobs, r.name(), t.id, "has %d log-probabilities for %d response ids", n, t.response())
			}
		}
	}
	return nil
}

// loadBodies reads a page's compressed bodies.
func (v *run) loadBodies(ctx context.Context, q querier, p *page) error {
	return q.each(ctx, func(s scan) error {
		var rolloutKey int64
		var k bodyKey
		b := &body{}
		var raw sql.RawBytes
		if err := s(&k.trace, &rolloutKey, &k.side, &b.base, &b.size, &raw); err != nil {
			return err
		}
		b.data = append([]byte(nil), raw...)
		r := p.byKey[rolloutKey]
		if r == nil {
			return nil
		}
		v.Bodies++
		v.checked(checkBodies, 1)
		switch {
		case k.side != "request" && k.side != "response":
			v.fail(checkBodies, r.name(), "", "trace_key %d has a body on the side %q", k.trace, k.side)
		case r.byKey[k.trace] == nil:
			v.fail(checkBodies, r.name(), "", "a %s belongs to trace_key %d, which this rollout does not have", k.side, k.trace)
		case r.bodies[k] != nil:
			v.fail(checkBodies, r.name(), r.byKey[k.trace].id, "has more than one %s", k.side)
		default:
			r.bodies[k] = b
		}
		return nil
	}, `SELECT trace_key, rollout_key, side, base_key, raw_bytes, data FROM ice.bodies
		WHERE rollout_key BETWEEN ? AND ? AND batch <= ? ORDER BY trace_key, side`, p.first, p.last, v.through)
}

// loadTraces reads a page's trace rows.
func (v *run) loadTraces(ctx context.Context, q querier, p *page) error {
	return q.each(ctx, func(s scan) error {
		t := &traceRow{logprobs: newLogprobs()}
		if err := t.scan(s); err != nil {
			return fmt.Errorf("read trace: %w", err)
		}
		r := p.byKey[t.rolloutKey]
		if r == nil || r.byKey[t.key] != nil {
			return nil // newer than this run, or told by duplicateKeys
		}
		r.traces = append(r.traces, t)
		r.byKey[t.key] = t
		return nil
	}, `SELECT `+traceColumns+` FROM ice.traces WHERE rollout_key BETWEEN ? AND ? AND batch <= ? ORDER BY trace_key`,
		p.first, p.last, v.through)
}
