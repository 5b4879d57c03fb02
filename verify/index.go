package verify

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
)

// indexRow is what the index says of a trace.
type indexRow struct {
	content               string
	trace, rollout, batch int64
}

func (x indexRow) String() string {
	return fmt.Sprintf("(trace_key %d, rollout_key %d, batch %d, content %.8x)", x.trace, x.rollout, x.batch, x.content)
}

func indexKey(traceID string) string {
	sum := sha256.Sum256([]byte(traceID))
	return string(sum[:16])
}

func lookUp(ctx context.Context, q querier, traceID string) (x indexRow, ok bool, err error) {
	m, err := lookUpAll(ctx, q, []string{traceID})
	x, ok = m[indexKey(traceID)]
	return x, ok, err
}

// lookUpAtOnce bounds the parameters of one statement.
const lookUpAtOnce = 256

// lookUpAll reads index rows, by index key.
func lookUpAll(ctx context.Context, q querier, traceIDs []string) (map[string]indexRow, error) {
	out := make(map[string]indexRow, len(traceIDs))
	for at := 0; at < len(traceIDs); at += lookUpAtOnce {
		ids := traceIDs[at:min(at+lookUpAtOnce, len(traceIDs))]
		keys := make([]any, len(ids))
		for i, id := range ids {
			keys[i] = []byte(indexKey(id))
		}
		err := q.each(ctx, func(s scan) error {
			var hash, content []byte
			var x indexRow
			if err := s(&hash, &content, &x.trace, &x.rollout, &x.batch); err != nil {
				return err
			}
			x.content = string(content)
			out[string(hash)] = x
			return nil
		}, `SELECT trace_hash, content_hash, trace_key, rollout_key, batch FROM trace_index WHERE trace_hash IN (?`+
			strings.Repeat(",?", len(keys)-1)+`)`, keys...)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// index compares a page's traces with the index.
func (v *run) index(ctx context.Context, q querier, p *page) error {
	var ids []string
	for _, r := range p.rollouts {
		for _, t := range r.traces {
			ids = append(ids, t.id)
		}
	}
	have, err := lookUpAll(ctx, q, ids)
	if err != nil {
		return err
	}
	for _, r := range p.rollouts {
		found := map[int64]bool{}
		for _, t := range r.traces {
			v.checked(checkIndex, 1)
			x, ok := have[indexKey(t.id)]
			is := indexRow{string(t.contentHash), t.key, t.rolloutKey, t.batch}
			switch {
			case !ok:
				v.fail(checkIndex, r.name(), t.id, "the warehouse holds the trace, but it is not indexed")
			case x != is:
				v.fail(checkIndex, r.name(), t.id, "the index has %v, the warehouse %v", x, is)
			}
			if last := v.lastSeq[t.rolloutKey]; t.seq.Int64 > last {
				v.fail(checkRollouts, r.name(), t.id, "has seq %d, but last_seq of its rollout is %d: its number would be given twice", t.seq.Int64, last)
			}
			if ok {
				found[x.trace] = true
			}
		}
		if v.indexed[r.key] > len(found) {
			if err := v.onlyIndexed(ctx, q, r, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// onlyIndexed tells of index rows whose trace the warehouse lacks. It reads the
// whole index, which is worth it for a rollout with a fault only.
func (v *run) onlyIndexed(ctx context.Context, q querier, r *rollout, found map[int64]bool) error {
	return q.each(ctx, func(s scan) error {
		var hash string
		var key, batch int64
		if err := s(&hash, &key, &batch); err != nil {
			return err
		}
		if !found[key] {
			v.fail(checkIndex, r.name(), "", "trace_key %d (hash %s) of batch %d is indexed, but the warehouse lacks it", key, hash, batch)
		}
		return nil
	}, `SELECT hex(trace_hash), trace_key, batch FROM trace_index WHERE rollout_key = ? AND batch <= ? ORDER BY trace_key`, r.key, v.through)
}
