package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
)

// learnerPost is what a learner said of one trajectory.
type learnerPost struct {
	key, version, batch    int64
	rolloutID, trajectory  string
	content                []byte
	length, trained, known int
	versionMin, versionMax sql.NullInt64
	of                     *rollout
	sum                    meaning
	spans                  int64 // where the last span ends
	isTrained, isKnown     int
	isMin, isMax           sql.NullInt64
	span                   int64
	trace                  *traceRow
	broken                 bool
	values                 *logprobs
}

// loadLearner checks a page's posts of learners: that each is there whole, lies
// as the log-probs of its traces do, and has its content hash.
func (v *run) loadLearner(ctx context.Context, q querier, p *page) error {
	posts := map[int64]*learnerPost{}
	err := q.each(ctx, func(s scan) error {
		var rolloutKey int64
		l := &learnerPost{sum: meaning{sha256.New()}}
		if err := s(&l.key, &rolloutKey, &l.rolloutID, &l.trajectory, &l.version, &l.content, &l.length, &l.trained, &l.known,
			&l.versionMin, &l.versionMax, &l.batch); err != nil {
			return err
		}
		if l.of = p.byKey[rolloutKey]; l.of == nil || posts[l.key] != nil {
			return nil // newer than this run, or told by duplicateKeys
		}
		v.checked(checkLearner, 1)
		posts[l.key] = l
		if l.of.id != "" && l.rolloutID != l.of.id {
			v.learnerFault(l, "says that its rollout is %q", l.rolloutID)
		}
		l.sum.field(1, true, binary.LittleEndian.AppendUint64(nil, uint64(l.length)))
		return nil
	}, `SELECT post_key, rollout_key, rollout_id, trajectory_id, policy_version, content_hash, length, trained_tokens, known_tokens,
		policy_version_min, policy_version_max, batch FROM ice.learner_posts
		WHERE rollout_key BETWEEN ? AND ? AND batch <= ? ORDER BY post_key`, p.first, p.last, v.through)
	if err != nil {
		return err
	}
	err = q.each(ctx, func(s scan) error {
		var key, rolloutKey, traceKey, span, batch int64
		var start int
		var list any
		if err := s(&key, &rolloutKey, &traceKey, &span, &start, &list, &batch); err != nil {
			return err
		}
		if p.byKey[rolloutKey] == nil {
			return nil
		}
		v.checked(checkLearner, 1)
		l := posts[key]
		if l == nil || l.of.key != rolloutKey || l.batch != batch {
			v.fail(checkLearner, p.byKey[rolloutKey].name(), "", "log-probs of post %d at %d belong to no post of the rollout and batch", key, start)
			return nil
		}
		values, _ := list.([]any)
		v.learnerChunk(l, traceKey, span, start, values)
		return nil
	}, `SELECT post_key, rollout_key, trace_key, span_start, start, logprobs, batch FROM ice.learner_logprob_chunks
		WHERE rollout_key BETWEEN ? AND ? AND batch <= ? ORDER BY post_key, span_start, start`, p.first, p.last, v.through)
	if err != nil {
		return err
	}
	for _, l := range posts {
		v.sealPost(l)
	}
	return nil
}

func (v *run) learnerFault(l *learnerPost, format string, args ...any) {
	l.broken = true
	v.fail(checkLearner, l.of.name(), "", "post %d of %s by version %d: "+format, append([]any{l.key, l.trajectory, l.version}, args...)...)
}

// learnerChunk takes in a chunk; they come in the order of their places.
func (v *run) learnerChunk(l *learnerPost, traceKey, span int64, start int, values []any) {
	if start == 0 {
		v.sealSpan(l)
		l.span, l.trace, l.values = span, l.of.byKey[traceKey], newLogprobs()
		switch {
		case l.trace == nil:
			v.learnerFault(l, "trace_key %d is not of the rollout", traceKey)
		case span < l.spans:
			v.learnerFault(l, "the span at %d begins inside the one before", span)
		default:
			l.widen(l.trace)
		}
	}
	switch {
	case l.trace == nil || l.values == nil || l.trace.key != traceKey || l.span != span || start != l.values.n:
		if !l.broken {
			v.learnerFault(l, "log-probs before place %d of the span at %d are missing", start, span)
		}
		return
	case len(values) != min(maxList, l.trace.response()-start):
		v.learnerFault(l, "the chunk at %d of trace %s holds %d log-probs", start, l.trace.id, len(values))
	}
	l.values.add(values)
	for _, e := range values {
		if e != nil {
			l.isKnown++
		}
	}
}

// sealSpan ends the span at hand.
func (v *run) sealSpan(l *learnerPost) {
	if l.values == nil || l.trace == nil {
		return
	}
	if l.values.n != l.trace.response() && !l.broken {
		v.learnerFault(l, "has %d log-probs of trace %s, whose response has %d ids", l.values.n, l.trace.id, l.trace.response())
	}
	place := binary.LittleEndian.AppendUint64(nil, uint64(l.trace.key))
	l.sum.field(2, true, binary.LittleEndian.AppendUint64(place, uint64(l.span)))
	l.sum.field(3, true, l.values.form)
	l.isTrained += l.values.n
	l.spans = l.span + int64(l.values.n)
	l.values = nil
}

func (v *run) sealPost(l *learnerPost) {
	v.sealSpan(l)
	if l.broken {
		return
	}
	switch {
	case l.spans > int64(l.length):
		v.learnerFault(l, "a span ends at %d of %d", l.spans, l.length)
	case l.isTrained != l.trained || l.isKnown != l.known:
		v.learnerFault(l, "holds %d log-probs, %d of them known, and says %d and %d", l.isTrained, l.isKnown, l.trained, l.known)
	case l.isMin != l.versionMin || l.isMax != l.versionMax:
		v.learnerFault(l, "says that versions %v to %v sampled it, and %v to %v did", l.versionMin, l.versionMax, l.isMin, l.isMax)
	case !bytes.Equal(l.sum.Sum(nil), l.content):
		v.learnerFault(l, "what is stored has the content hash %x, acknowledged was %x", l.sum.Sum(nil), l.content)
	}
}

// widen takes in the versions that sampled a trace.
func (l *learnerPost) widen(t *traceRow) {
	versions := []sql.NullInt64{t.policyVersion}
	if len(t.spans) > 0 {
		versions = versions[:0]
		for _, s := range t.spans {
			versions = append(versions, sql.NullInt64{Int64: s.version, Valid: true})
		}
	}
	for _, w := range versions {
		if w.Valid && (!l.isMin.Valid || w.Int64 < l.isMin.Int64) {
			l.isMin = w
		}
		if w.Valid && (!l.isMax.Valid || w.Int64 > l.isMax.Int64) {
			l.isMax = w
		}
	}
}

// learnerIndex compares the newest posts of the warehouse with those that the
// control database tells repeated ones by.
func (v *run) learnerIndex(ctx context.Context) error {
	type pair struct {
		trajectory string
		version    int64
	}
	type newest struct {
		content    string
		key, batch int64
	}
	index := map[pair]newest{}
	read := func(s scan) (p pair, n newest, err error) {
		var content []byte
		err = s(&p.trajectory, &p.version, &content, &n.key, &n.batch)
		n.content = string(content)
		return p, n, err
	}
	err := snapshot(ctx, v.src.Control, func(q querier) error {
		return q.each(ctx, func(s scan) error {
			p, n, err := read(s)
			index[p] = n
			return err
		}, `SELECT trajectory_id, policy_version, content_hash, post_key, batch FROM learner_posts`)
	})
	if err != nil {
		return err
	}
	err = snapshot(ctx, v.src.Warehouse, func(q querier) error {
		return q.each(ctx, func(s scan) error {
			p, n, err := read(s)
			if err != nil {
				return err
			}
			v.checked(checkLearner, 1)
			x, known := index[p]
			delete(index, p)
			// A newer one may have come since.
			if !known || x != n && (x.batch <= v.through || x.key <= n.key) {
				v.fail(checkLearner, "", "", "post %d of %s by version %d counts in the warehouse, and post %d in the index", n.key, p.trajectory, p.version, x.key)
			}
			return nil
		}, `SELECT trajectory_id, policy_version, content_hash, post_key, batch FROM ice.learner_posts WHERE batch <= ?
			QUALIFY row_number() OVER (PARTITION BY trajectory_id, policy_version ORDER BY post_key DESC) = 1`, v.through)
	})
	if err != nil {
		return err
	}
	for p, n := range index {
		if n.batch <= v.through {
			v.fail(checkLearner, "", "", "post %d of %s by version %d is indexed, but the warehouse does not hold it", n.key, p.trajectory, p.version)
		}
	}
	return nil
}
