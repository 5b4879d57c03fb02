package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"icecore/trace"
)

// Filter selects rollouts. Empty fields select all; each list means "one of".
type Filter struct {
	RolloutIDs []string
	GroupIDs   []string
	TaskIDs    []string
	Harnesses  []string
	Splits     []string
	Models     []string
	Statuses   []string
	// Complete: finished, and no announced call missing.
	Complete *bool
}

func (f *Filter) where() (string, []any) {
	terms := []string{"1=1"}
	var args []any
	in := func(column string, values []string) {
		if len(values) == 0 {
			return
		}
		terms = append(terms, column+" IN (?"+strings.Repeat(",?", len(values)-1)+")")
		for _, v := range values {
			args = append(args, v)
		}
	}
	in("rollout_id", f.RolloutIDs)
	in("group_id", f.GroupIDs)
	in("task_id", f.TaskIDs)
	in("harness", f.Harnesses)
	in("split", f.Splits)
	in("model", f.Models)
	in("status", f.Statuses)
	if f.Complete != nil {
		complete := "(status IS NOT NULL AND open_intents = 0)"
		if !*f.Complete {
			complete = "NOT " + complete
		}
		terms = append(terms, complete)
	}
	return strings.Join(terms, " AND "), args
}

// CountRollouts counts what the filter selects.
func (s *Store) CountRollouts(ctx context.Context, f Filter) (total int64, err error) {
	where, args := f.where()
	if err := s.control.read.QueryRowContext(ctx, `SELECT count(*) FROM rollouts WHERE `+where, args...).Scan(&total); err != nil {
		return 0, fmt.Errorf("count rollouts: %w", err)
	}
	return total, nil
}

// Rollouts lists the rollouts after key, in the order in which they were
// opened, at most limit (0: all).
func (s *Store) Rollouts(ctx context.Context, f Filter, after int64, limit int) (list []Rollout, err error) {
	where, args := f.where()
	if limit <= 0 {
		limit = -1
	}
	rows, err := s.control.read.QueryContext(ctx, `SELECT `+rolloutColumns+` FROM rollouts WHERE `+where+
		` AND rollout_key > ? ORDER BY rollout_key LIMIT ?`, append(args, after, limit)...)
	if err != nil {
		return nil, fmt.Errorf("list rollouts: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	for rows.Next() {
		r, err := scanRollout(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, *r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list rollouts: %w", err)
	}
	return list, nil
}

// ErrNotFound says that no such rollout or trace is stored.
var ErrNotFound = errors.New("not found")

// Rollout reads one rollout.
func (s *Store) Rollout(ctx context.Context, id string) (*Rollout, error) {
	r, err := scanRollout(s.control.read.QueryRowContext(ctx, `SELECT `+rolloutColumns+` FROM rollouts WHERE rollout_id = ?`, id))
	if err == nil && r == nil {
		return nil, ErrNotFound
	}
	return r, err
}

// Rewards reads the newest revision of each reward of the rollouts, by rollout
// key.
func (s *Store) Rewards(ctx context.Context, keys []int64) (map[int64][]trace.Reward, error) {
	out := map[int64][]trace.Reward{}
	for at := 0; at < len(keys); at += loadKeys {
		if err := s.rewards(ctx, keys[at:min(at+loadKeys, len(keys))], out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Store) rewards(ctx context.Context, keys []int64, out map[int64][]trace.Reward) error {
	rows, err := s.control.read.QueryContext(ctx, `SELECT reward_id, rollout_key, trace_id, name, source, max(revision), value,
		at, coalesce(metadata, '') FROM rewards WHERE rollout_key IN `+inList(keys)+`
		GROUP BY rollout_key, trace_id, name, source ORDER BY rollout_key, trace_id, name, source`)
	if err != nil {
		return fmt.Errorf("read rewards: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	for rows.Next() {
		var w trace.Reward
		var key int64
		var metadata string
		if err := rows.Scan(&w.RewardID, &key, &w.TraceID, &w.Name, &w.Source, &w.Revision, &w.Value, &w.At, &metadata); err != nil {
			return fmt.Errorf("read rewards: %w", err)
		}
		if metadata != "" {
			w.Metadata = []byte(metadata)
		}
		out[key] = append(out[key], w)
	}
	return rows.Err()
}

// StoredTrace is a trace as it is kept, with what storing it added.
type StoredTrace struct {
	trace.Trace
	Key        int64
	ReceivedAt int64
	HasRequest bool
	HasAnswer  bool
	// PromptLen and AnswerLen count ids; nil: not known.
	PromptLen *int
	AnswerLen *int
}

const traceColumns = `trace_key, trace_id, rollout_id, seq, tape_key, prompt_length, response_length, prompt_hash, has_logprobs,
	ids_incomplete, policy_version, policy_version_spans, status, finish_reason, choice_group, choice_index, kind, task_id,
	group_id, sample_index, harness, harness_version, model, tokenizer, api, parent_rollout_id, chat_template_hash, tools_hash,
	sampling, usage, metadata, extra, error, started_at, first_token_at, finished_at, received_at, request_bytes,
	response_bytes, text_repaired`

// scanTrace reads everything but ids, log-probs and bodies.
func scanTrace(c *columnsOf) (t StoredTrace) {
	count := func() *int {
		if n, known := c.optI32(); known {
			return &n
		}
		return nil
	}
	t.Key, t.TraceID, t.RolloutID, t.Seq = c.i64(), c.str(), c.str(), c.optI64()
	c.i64()
	t.PromptLen, t.AnswerLen = count(), count()
	t.PromptHash = c.blob()
	c.flag() // has_logprobs: who wants them reads them
	t.IDsIncomplete = c.flag()
	t.PolicyVersion, t.PolicyVersionSpans = c.optI64(), c.versions()
	t.Status, t.FinishReason = trace.Status(c.str()), c.str()
	t.ChoiceGroup, t.ChoiceIndex, t.Kind = c.str(), c.optI64(), trace.Kind(c.str())
	a := &t.Attributes
	a.TaskID, a.GroupID, a.SampleIndex = c.str(), c.str(), c.optI64()
	a.Harness, a.HarnessVersion, a.Model = c.str(), c.str(), c.str()
	t.Tokenizer, t.API, t.ParentRolloutID = c.str(), c.str(), c.str()
	t.ChatTemplateHash, t.ToolsHash = c.str(), c.str()
	t.Sampling, t.Usage, t.Metadata, t.Extra, t.Error = c.json(), c.json(), c.json(), c.json(), c.str()
	t.StartedAt, t.FirstTokenAt, t.FinishedAt, t.ReceivedAt = c.optTime(), c.optTime(), c.optTime(), c.time()
	t.HasRequest, t.HasAnswer = count() != nil, count() != nil
	t.TextRepaired = c.flag()
	return t
}

// Traces lists a rollout's traces after trace key after, in the order of
// arrival, without ids, log-probs and bodies.
func (s *Store) Traces(ctx context.Context, r *Rollout, after int64, limit int) ([]StoredTrace, error) {
	if err := s.WaitDrained(ctx, r.LastBatch); err != nil {
		return nil, err
	}
	var out []StoredTrace
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		out = append(out, scanTrace(c))
		return nil
	}), `SELECT `+traceColumns+` FROM ice.traces WHERE rollout_key = ? AND trace_key > ? ORDER BY trace_key LIMIT ?`,
		r.Key, after, int64(limit))
	return out, err
}

// indexed is what the trace index says of a trace.
type indexed struct{ trace, rollout, batch int64 }

func (s *Store) lookup(ctx context.Context, id string) (x indexed, err error) {
	err = s.control.read.QueryRowContext(ctx, `SELECT trace_key, rollout_key, batch FROM trace_index WHERE trace_hash = ?`,
		traceHash(id)).Scan(&x.trace, &x.rollout, &x.batch)
	if errors.Is(err, sql.ErrNoRows) {
		return x, ErrNotFound
	}
	if err != nil {
		return x, fmt.Errorf("look up trace %s: %w", id, err)
	}
	return x, nil
}

// Trace reads one trace whole; bodies only when asked for.
func (s *Store) Trace(ctx context.Context, id string, bodies bool) (*StoredTrace, error) {
	x, err := s.lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.WaitDrained(ctx, x.batch); err != nil {
		return nil, err
	}
	var t *StoredTrace
	err = s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		v := scanTrace(c)
		t = &v
		return nil
	}), `SELECT `+traceColumns+` FROM ice.traces WHERE rollout_key = ? AND trace_key = ? LIMIT 1`, x.rollout, x.trace)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("read trace %s: the index knows it, the warehouse does not: run icecore verify", id)
	}
	rs, err := s.loadOne(ctx, x)
	if err != nil {
		return nil, err
	}
	t.PromptIDs, t.ResponseIDs = rs.Calls[0].Prompt, rs.Calls[0].Response.Flat()
	logprobs, err := s.LoadLogprobs(ctx, []*RolloutCalls{rs})
	if err != nil {
		return nil, err
	}
	t.ResponseLogprobs = logprobs[x.trace]
	if bodies {
		if t.RequestBody, err = s.body(ctx, x.rollout, x.trace, "request"); err != nil {
			return nil, err
		}
		if t.ResponseBody, err = s.body(ctx, x.rollout, x.trace, "response"); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// loadOne reads one trace's ids: a rollout with one call.
func (s *Store) loadOne(ctx context.Context, x indexed) (*RolloutCalls, error) {
	r := &RolloutCalls{Key: x.rollout, tapes: map[int64]*tape{}}
	byKey := map[int64]*RolloutCalls{x.rollout: r}
	rollout := fmt.Sprintf("WHERE rollout_key = %d AND batch <= %d", x.rollout, x.batch)
	if err := s.loadTapes(ctx, byKey, rollout); err != nil {
		return nil, err
	}
	if err := s.loadTraces(ctx, byKey, fmt.Sprintf("%s AND trace_key = %d", rollout, x.trace)); err != nil {
		return nil, err
	}
	if len(r.Calls) != 1 {
		return nil, fmt.Errorf("read trace %d: the warehouse holds it %d times: run icecore verify", x.trace, len(r.Calls))
	}
	return r, nil
}

// ResolvePrefix gives the first n ids of the prompt and response of a stored
// trace of the given rollout. The error is a *trace.Error with code
// unknown_prefix when there is no such trace, it belongs to another rollout, or
// it is shorter.
func (s *Store) ResolvePrefix(ctx context.Context, rolloutID, traceID string, n int) (trace.Tokens, error) {
	unknown := func(field, message string) error {
		return &trace.Error{Code: trace.CodeUnknownPrefix, Field: field, Message: message + "; send the whole prompt"}
	}
	x, err := s.lookup(ctx, traceID)
	if errors.Is(err, ErrNotFound) {
		return nil, unknown("prompt_prefix.trace_id", fmt.Sprintf("trace %q is not stored", traceID))
	}
	if err != nil {
		return nil, err
	}
	r, err := s.Rollout(ctx, rolloutID)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	if r == nil || r.Key != x.rollout {
		return nil, unknown("prompt_prefix.trace_id", fmt.Sprintf("trace %q is not of this rollout", traceID))
	}
	short := func(total int) error {
		return unknown("prompt_prefix.length", fmt.Sprintf("is %d, but trace %q has only %d ids", n, traceID, total))
	}
	if ids, total, ok := s.heads.prefix(x.rollout, x.trace, n); ok {
		if n > total {
			return nil, short(total)
		}
		return ids, nil
	}
	if err := s.WaitDrained(ctx, x.batch); err != nil {
		return nil, err
	}
	one, err := s.loadOne(ctx, x)
	if err != nil {
		return nil, err
	}
	c := &one.Calls[0]
	if c.Prompt == nil {
		return nil, unknown("prompt_prefix.trace_id", fmt.Sprintf("the prompt of trace %q is not known", traceID))
	}
	if total := c.Prompt.Len() + c.Response.Len(); n > total {
		return nil, short(total)
	}
	return c.Prompt.Concat(c.Response).Slice(0, n), nil
}

// RolloutID gives the id of a rollout by its key.
func (s *Store) RolloutID(ctx context.Context, key int64) (string, error) {
	var id string
	err := s.control.read.QueryRowContext(ctx, `SELECT rollout_id FROM rollouts WHERE rollout_key = ?`, key).Scan(&id)
	if err != nil {
		return "", fmt.Errorf("look up rollout %d: %w", key, err)
	}
	return id, nil
}
