package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"

	"icecore/trace"
)

// ItemStatus says what became of one item.
type ItemStatus string

// What can become of an item.
const (
	Stored    ItemStatus = "stored"
	Duplicate ItemStatus = "duplicate"
	Refused   ItemStatus = "refused"
)

// Outcome is the answer to one item; Err is set when it was refused.
type Outcome struct {
	Status   ItemStatus
	Err      *trace.Error
	Warnings []string
}

func refuse(e *trace.Error) Outcome { return Outcome{Status: Refused, Err: e} }

// PutTraces stores traces, each by itself: one refused leaves the others as
// they are. Traces must be valid (trace.Validate) and their PromptPrefix
// resolved (ResolvePrefix). When it returns without error, what it calls stored
// survives a power cut. It gives the batch after whose drain SQL sees them.
func (s *Store) PutTraces(ctx context.Context, ts []*trace.Trace) ([]Outcome, int64, error) {
	digests := make([][]byte, len(ts))
	size := 0
	for i, t := range ts {
		digests[i] = attributesDigest(t)
		size += 4*t.PromptIDs.Len() + 8*len(t.ResponseIDs) + len(t.RequestBody) + len(t.ResponseBody) + 512
	}
	out := make([]Outcome, len(ts))
	batch, err := s.committer.submit(ctx, size, func(ctx context.Context, k *commit) error {
		for i, t := range ts {
			o, err := k.putTrace(ctx, t, digests[i])
			if err != nil {
				return fmt.Errorf("store trace %s: %w", t.TraceID, err)
			}
			out[i] = o
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	s.metrics.items(out)
	return out, batch, nil
}

func (k *commit) putTrace(ctx context.Context, t *trace.Trace, attributes []byte) (Outcome, error) {
	key := traceHash(t.TraceID)
	have, err := k.findTrace(ctx, key)
	if err != nil {
		return Outcome{}, err
	}
	r, err := k.rollout(ctx, t.RolloutID)
	if err != nil {
		return Outcome{}, err
	}
	// A trace of a rollout that is not known yet cannot go on from anything.
	h := newHeads()
	if r != nil {
		h = k.c.s.heads.get(r.Key)
	}
	seq, promptLen := sequence(t)
	f := found{}
	if t.PromptIDs != nil {
		f = h.find(seq, promptLen)
	}
	var promptHash []byte
	var state hash.Cloner
	if t.PromptIDs != nil {
		promptHash, state = f.hash(seq, promptLen)
		if t.PromptHash != nil && !bytes.Equal(t.PromptHash, promptHash) {
			return refuse(wrongHash(t, promptHash)), nil
		}
	}
	content := contentHash(promptHash, attributes)
	if have != nil {
		if bytes.Equal(content, have) {
			return Outcome{Status: Duplicate}, nil
		}
		return refuse(&trace.Error{Code: trace.CodeConflict, Field: "trace_id",
			Message: "is stored already with other content; traces are immutable, so give a new one a new trace_id"}), nil
	}
	if r == nil {
		if r, err = k.needRollout(ctx, t.RolloutID); err != nil {
			return Outcome{}, err
		}
		h = k.c.s.heads.get(r.Key)
	}
	traceKey := k.c.next.trace
	k.c.next.trace++
	tapeKey := k.placeTrace(h, r, t, traceKey, seq, promptLen, f, state)
	k.traceRow(t, r, traceKey, tapeKey, content, promptHash)
	if _, err := k.c.st.putTrace.ExecContext(ctx, key, content, traceKey, r.Key, k.batch); err != nil {
		return Outcome{}, fmt.Errorf("index trace: %w", err)
	}
	return Outcome{Status: Stored}, k.touch(ctx, r, t, key)
}

// findTrace gives the content hash of a stored trace; nil: there is none.
func (k *commit) findTrace(ctx context.Context, key []byte) (content []byte, err error) {
	var rolloutKey, traceKey int64
	err = k.c.st.findTrace.QueryRowContext(ctx, key).Scan(&content, &rolloutKey, &traceKey)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("look up trace: %w", err)
	}
	return content, nil
}

func wrongHash(t *trace.Trace, is []byte) *trace.Error {
	if t.PromptPrefix != nil {
		return &trace.Error{Code: trace.CodeUnknownPrefix, Field: "prompt_hash",
			Message: "the prompt that prompt_prefix and prompt_token_ids make has SHA-256 " +
				hex.EncodeToString(is) + "; send the whole prompt"}
	}
	return &trace.Error{Code: trace.CodePromptHashMismatch, Field: "prompt_hash",
		Message: "the prompt has SHA-256 " + hex.EncodeToString(is)}
}

// sequence gives the ids that a trace puts on a tape, and how many of them are
// its prompt.
func sequence(t *trace.Trace) (trace.Tokens, int) {
	n := t.PromptIDs.Len()
	if len(t.ResponseIDs) == 0 {
		return t.PromptIDs, n
	}
	return t.PromptIDs.Concat(trace.TokensOf(t.ResponseIDs)), n
}

// placeTrace puts the trace's ids on a tape and gathers what that adds.
func (k *commit) placeTrace(h *heads, r *Rollout, t *trace.Trace, traceKey int64, seq trace.Tokens, promptLen int,
	f found, state hash.Cloner) int64 {
	newKey := func() int64 {
		k.c.next.tape++
		return k.c.next.tape - 1
	}
	n := seq.Len()
	if n == 0 {
		return 0
	}
	target := h
	if t.PromptIDs == nil {
		// What came before the response is not known, so nothing can share it.
		target = newHeads()
	}
	g := target.place(seq, f, newKey)
	if g.opened {
		parent := int64(0)
		if g.tape.parent != nil {
			parent = g.tape.parent.key
		}
		row := k.to(tableTapes)
		row.i64(g.tape.key)
		row.i64(r.Key)
		row.i64(parent)
		row.i32(g.tape.fork)
		row.i64(k.batch)
		row.end()
	}
	for at := 0; at < len(g.ids); at += maxList {
		row := k.to(tableTapeChunks)
		row.i64(g.tape.key)
		row.i64(r.Key)
		row.i32(g.start + at)
		row.ids(g.ids[at:min(at+maxList, len(g.ids))])
		row.i64(k.batch)
		row.end()
	}
	if t.PromptIDs != nil {
		h.remember(traceKey, place{g.tape, promptLen, n - promptLen}, state)
	}
	k.c.s.metrics.tokens(n, len(g.ids))
	return g.tape.key
}

// touch takes over what a stored trace changes in its rollout.
func (k *commit) touch(ctx context.Context, r *Rollout, t *trace.Trace, key []byte) error {
	r.Traces++
	r.LastBatch = k.batch
	r.dirty = true
	if r.Status != "" && !r.Reopened {
		r.Reopened, r.published = true, false
	}
	r.carry(t)
	r.number(t.Seq)
	var announcedIn int64
	err := k.c.st.dropIntent.QueryRowContext(ctx, key).Scan(&announcedIn)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("drop intent: %w", err)
	}
	return k.settleIntent(ctx, announcedIn, r)
}

// settleIntent counts an intent as followed by its trace. The trace may have
// gone to another rollout than was announced.
func (k *commit) settleIntent(ctx context.Context, announcedIn int64, r *Rollout) error {
	if r.Key != announcedIn {
		other, err := k.rolloutByKey(ctx, announcedIn)
		if err != nil || other == nil {
			return err
		}
		r = other
	}
	r.OpenIntents--
	r.dirty = true
	if r.Status != "" {
		r.published = false
	}
	return nil
}

func (k *commit) rolloutByKey(ctx context.Context, key int64) (*Rollout, error) {
	for _, r := range k.rollouts {
		if r.Key == key {
			return r, nil
		}
	}
	var id string
	err := k.c.conn.QueryRowContext(ctx, `SELECT rollout_id FROM rollouts WHERE rollout_key = ?`, key).Scan(&id)
	if err != nil {
		return nil, fmt.Errorf("look up rollout %d: %w", key, err)
	}
	return k.rollout(ctx, id)
}

// traceRow gathers the trace's own row, its log-probs and its bodies.
func (k *commit) traceRow(t *trace.Trace, r *Rollout, traceKey, tapeKey int64, content, promptHash []byte) {
	row := k.to(tableTraces)
	row.i64(traceKey)
	row.i64(r.Key)
	row.i64(k.batch)
	row.str(t.TraceID)
	row.str(t.RolloutID)
	row.blob(content)
	row.optI64(t.Seq)
	row.i64(tapeKey)
	row.optI32(t.PromptIDs.Len(), t.PromptIDs != nil)
	row.optI32(len(t.ResponseIDs), t.ResponseIDs != nil)
	row.blob(promptHash)
	row.flag(t.ResponseLogprobs != nil)
	row.flag(t.IDsIncomplete)
	row.optI64(t.PolicyVersion)
	row.versions(t.PolicyVersionSpans)
	row.str(string(t.Status))
	row.optStr(t.FinishReason)
	row.optStr(t.ChoiceGroup)
	row.optI64(t.ChoiceIndex)
	row.str(string(t.Kind))
	row.optStr(t.Attributes.TaskID)
	row.optStr(t.Attributes.GroupID)
	row.optI64(t.Attributes.SampleIndex)
	row.optStr(t.Attributes.Harness)
	row.optStr(t.Attributes.HarnessVersion)
	row.optStr(t.Attributes.Model)
	row.optStr(t.Tokenizer)
	row.optStr(t.API)
	row.optStr(t.ParentRolloutID)
	row.optStr(t.ChatTemplateHash)
	row.optStr(t.ToolsHash)
	row.optJSON(t.Sampling)
	row.optJSON(t.Usage)
	row.optJSON(t.Metadata)
	row.optJSON(t.Extra)
	row.optStr(t.Error)
	row.optTime(t.StartedAt)
	row.optTime(t.FirstTokenAt)
	row.optTime(t.FinishedAt)
	row.time(k.now)
	row.optI32(len(t.RequestBody), t.RequestBody != nil)
	row.optI32(len(t.ResponseBody), t.ResponseBody != nil)
	row.flag(t.TextRepaired)
	row.end()
	k.logprobRows(t, r, traceKey)
	k.bodyRow(r, traceKey, "request", t.RequestBody)
	k.bodyRow(r, traceKey, "response", t.ResponseBody)
}

func (k *commit) logprobRows(t *trace.Trace, r *Rollout, traceKey int64) {
	l := t.ResponseLogprobs
	if l == nil {
		return
	}
	for at := 0; at < l.Len(); at += maxList {
		to := min(at+maxList, l.Len())
		row := k.to(tableLogprobChunks)
		row.i64(traceKey)
		row.i64(r.Key)
		row.i32(at)
		if l.Known == nil {
			row.floats(l.Values[at:to], nil)
		} else {
			row.floats(l.Values[at:to], l.Known[at:to])
		}
		row.i64(k.batch)
		row.end()
	}
}

// bodyRow journals a body as it came; the drain compresses it.
func (k *commit) bodyRow(r *Rollout, traceKey int64, side string, body []byte) {
	if body == nil {
		return
	}
	row := k.to(tableBodies)
	row.i64(traceKey)
	row.i64(r.Key)
	row.str(side)
	row.i64(0)
	row.i32(len(body))
	row.blob(body)
	row.i64(k.batch)
	row.end()
}
