package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"

	"icecore/trace"
)

// Call is a stored trace as merging and delivery read it. Its ids share memory
// with those of the rollout's other calls.
type Call struct {
	Key           int64
	Batch         int64
	TraceID       string
	Seq           *int64
	Prompt        trace.Tokens
	Response      trace.Tokens
	HasLogprobs   bool
	IDsIncomplete bool
	PolicyVersion *int64
	Versions      []trace.VersionSpan
	Status        trace.Status
	FinishReason  string
	ChoiceGroup   string
	ChoiceIndex   *int64
	Kind          trace.Kind
	Model         string
	Sampling      []byte
}

// RolloutCalls are one rollout's calls, of all batches up to Through.
type RolloutCalls struct {
	Key     int64
	Through int64
	Calls   []Call

	tapes map[int64]*tape
}

// Drained is the newest batch that the warehouse holds.
func (s *Store) Drained() int64 {
	s.drainer.mu.Lock()
	defer s.drainer.mu.Unlock()
	return s.drainer.drained
}

// LoadCalls reads the calls of rollouts up to batch through, which must be
// drained. The result stands in the order of keys.
func (s *Store) LoadCalls(ctx context.Context, keys []int64, through int64) ([]*RolloutCalls, error) {
	out := make([]*RolloutCalls, len(keys))
	byKey := make(map[int64]*RolloutCalls, len(keys))
	for i, k := range keys {
		out[i] = &RolloutCalls{Key: k, tapes: map[int64]*tape{}}
		byKey[k] = out[i]
	}
	return out, s.load(ctx, keys, byKey, 0, through)
}

// ExtendCalls reads what came after r.Through, up to batch through. Tokens that
// were handed out stay valid.
func (s *Store) ExtendCalls(ctx context.Context, r *RolloutCalls, through int64) error {
	return s.load(ctx, []int64{r.Key}, map[int64]*RolloutCalls{r.Key: r}, r.Through, through)
}

// loadKeys bounds the keys named in one query.
const loadKeys = 512

func (s *Store) load(ctx context.Context, keys []int64, byKey map[int64]*RolloutCalls, from, through int64) error {
	for at := 0; at < len(keys); at += loadKeys {
		part := keys[at:min(at+loadKeys, len(keys))]
		// The range lets DuckDB skip row groups; rollouts of one time lie together.
		where := fmt.Sprintf("WHERE rollout_key BETWEEN %d AND %d AND rollout_key IN %s AND batch > %d AND batch <= %d",
			slices.Min(part), slices.Max(part), inList(part), from, through)
		if err := s.loadTapes(ctx, byKey, where); err != nil {
			return err
		}
		if err := s.loadTraces(ctx, byKey, where); err != nil {
			return err
		}
	}
	for _, k := range keys {
		byKey[k].Through = through
	}
	return nil
}

func (s *Store) loadTapes(ctx context.Context, byKey map[int64]*RolloutCalls, where string) error {
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		key, r, parent, fork := c.i64(), byKey[c.i64()], c.i64(), c.i32()
		t := &tape{key: key, fork: fork}
		if parent != 0 {
			if t.parent = r.tapes[parent]; t.parent == nil {
				return fmt.Errorf("tape %d: its parent %d is missing", key, parent)
			}
		}
		r.tapes[key] = t
		return nil
	}), `SELECT tape_key, rollout_key, parent_key, fork FROM ice.tapes `+where+` ORDER BY tape_key`)
	if err != nil {
		return fmt.Errorf("load tapes: %w", err)
	}
	return s.loadChunks(ctx, byKey, where)
}

// chunk is a piece of a tape in DuckDB's memory.
type chunk struct {
	tape  *tape
	start int
	ids   []int32
}

// loadChunks copies the ids of tapes out of DuckDB's memory, once. Sorting the
// few chunks here costs less than having DuckDB sort rows with lists.
func (s *Store) loadChunks(ctx context.Context, byKey map[int64]*RolloutCalls, where string) error {
	var chunks []chunk
	var held heldRecords
	defer held.release()
	err := s.wh().Query(ctx, held.eachRow(func(c *columnsOf) error {
		key, r, start := c.i64(), byKey[c.i64()], c.i32()
		t := r.tapes[key]
		if t == nil {
			return fmt.Errorf("tape %d is missing", key)
		}
		chunks = append(chunks, chunk{t, start, c.ids()})
		return nil
	}), `SELECT tape_key, rollout_key, start, token_ids FROM ice.tape_chunks `+where)
	if err != nil {
		return fmt.Errorf("load tapes: %w", err)
	}
	slices.SortFunc(chunks, func(a, b chunk) int {
		if a.tape != b.tape {
			return cmp.Compare(a.tape.key, b.tape.key)
		}
		return cmp.Compare(a.start, b.start)
	})
	for len(chunks) > 0 {
		n, ids := 1, len(chunks[0].ids)
		for n < len(chunks) && chunks[n].tape == chunks[0].tape {
			ids += len(chunks[n].ids)
			n++
		}
		t := chunks[0].tape
		t.own = slices.Grow(t.own, ids)
		for _, c := range chunks[:n] {
			if c.start != t.end() {
				return fmt.Errorf("load tapes: tape %d lacks the ids before position %d", t.key, c.start)
			}
			t.own = append(t.own, c.ids...)
		}
		chunks = chunks[n:]
	}
	return nil
}

func (s *Store) loadTraces(ctx context.Context, byKey map[int64]*RolloutCalls, where string) error {
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		r := byKey[c.i64()]
		call := Call{Key: c.i64(), Batch: c.i64(), TraceID: c.str(), Seq: c.optI64()}
		tapeKey := c.i64()
		prompt, hasPrompt := c.optI32()
		response, hasResponse := c.optI32()
		var ids trace.Tokens = trace.Tokens{}
		if prompt+response > 0 {
			t := r.tapes[tapeKey]
			if t == nil || t.end() < prompt+response {
				return fmt.Errorf("trace %s: tape %d does not hold its %d ids", call.TraceID, tapeKey, prompt+response)
			}
			ids = t.prefix(prompt + response)
		}
		if hasPrompt {
			call.Prompt = ids.Slice(0, prompt)
		}
		if hasResponse {
			call.Response = ids.Slice(prompt, prompt+response)
		}
		call.HasLogprobs = c.flag()
		call.IDsIncomplete = c.flag()
		call.PolicyVersion = c.optI64()
		call.Versions = c.versions()
		call.Status = trace.Status(c.str())
		call.FinishReason = c.str()
		call.ChoiceGroup = c.str()
		call.ChoiceIndex = c.optI64()
		call.Kind = trace.Kind(c.str())
		call.Model = c.str()
		call.Sampling = c.json()
		r.Calls = append(r.Calls, call)
		return nil
	}), `SELECT rollout_key, trace_key, batch, trace_id, seq, tape_key, prompt_length, response_length, has_logprobs, ids_incomplete,
		policy_version, policy_version_spans, status, finish_reason, choice_group, choice_index, kind, model, sampling
		FROM ice.traces `+where+` ORDER BY trace_key`)
	if err != nil {
		return fmt.Errorf("load traces: %w", err)
	}
	return nil
}

// LoadLogprobs reads the behaviour log-probabilities of all calls of rs, by
// trace key; a call without any is absent.
func (s *Store) LoadLogprobs(ctx context.Context, rs []*RolloutCalls) (map[int64]*trace.Logprobs, error) {
	out := map[int64]*trace.Logprobs{}
	calls := map[int64]*Call{}
	keys := make([]int64, 0, len(rs))
	for _, r := range rs {
		keys = append(keys, r.Key)
		for i := range r.Calls {
			if c := &r.Calls[i]; c.HasLogprobs {
				out[c.Key] = &trace.Logprobs{Values: make([]float32, 0, c.Response.Len())}
				calls[c.Key] = c
			}
		}
	}
	for at := 0; at < len(keys) && len(calls) > 0; at += loadKeys {
		if err := s.loadLogprobs(ctx, keys[at:min(at+loadKeys, len(keys))], calls, out); err != nil {
			return nil, fmt.Errorf("load log-probs: %w", err)
		}
	}
	for key, c := range calls {
		if n := out[key].Len(); n != c.Response.Len() {
			return nil, fmt.Errorf("load log-probs: trace %s has %d for %d ids", c.TraceID, n, c.Response.Len())
		}
	}
	return out, nil
}

// loadLogprobs copies the log-probs of calls out of DuckDB's memory, once. As in
// loadChunks, sorting them here costs less.
func (s *Store) loadLogprobs(ctx context.Context, keys []int64, calls map[int64]*Call, out map[int64]*trace.Logprobs) error {
	type piece struct {
		trace    int64
		start    int
		values   *array.Float32
		from, to int
	}
	var pieces []piece
	var held heldRecords
	defer held.release()
	err := s.wh().Query(ctx, held.eachRow(func(c *columnsOf) error {
		p := piece{trace: c.i64(), start: c.i32()}
		if p.values, p.from, p.to = c.floats(); calls[p.trace] != nil { // else nobody asked for the trace
			pieces = append(pieces, p)
		}
		return nil
	}), `SELECT trace_key, start, logprobs FROM ice.logprob_chunks WHERE `+
		fmt.Sprintf("rollout_key BETWEEN %d AND %d AND rollout_key IN ", slices.Min(keys), slices.Max(keys))+inList(keys))
	if err != nil {
		return err
	}
	slices.SortFunc(pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.trace, b.trace), cmp.Compare(a.start, b.start))
	})
	for _, p := range pieces {
		l := out[p.trace]
		if p.start != l.Len() {
			return fmt.Errorf("trace %s: those before position %d are missing", calls[p.trace].TraceID, p.start)
		}
		appendFloats(l, p.values, p.from, p.to)
	}
	return nil
}

// Tokens counts the ids that the rollout's tapes hold.
func (r *RolloutCalls) Tokens() int {
	n := 0
	for _, t := range r.tapes {
		n += len(t.own)
	}
	return n
}

// Until forgets the calls that came after batch through.
func (r *RolloutCalls) Until(through int64) {
	r.Calls = slices.DeleteFunc(r.Calls, func(c Call) bool { return c.Batch > through })
	r.Through = through
}

// VersionRange is the least and the greatest policy version that sampled some
// calls; nil while none is known.
type VersionRange struct{ Min, Max *int64 }

// Widen takes in the versions that sampled a call: those of its spans, or where
// it has none the one at dispatch.
func (r *VersionRange) Widen(c *Call) {
	spans := c.Versions
	if len(spans) == 0 && c.PolicyVersion != nil {
		spans = []trace.VersionSpan{{Version: *c.PolicyVersion}}
	}
	for _, s := range spans {
		r.include(s.Version)
	}
}

func (r *VersionRange) include(v int64) {
	if r.Min == nil || v < *r.Min {
		r.Min = &v
	}
	if r.Max == nil || v > *r.Max {
		r.Max = &v
	}
}
