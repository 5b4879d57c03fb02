package store

import (
	"context"
	"fmt"
	"slices"

	"icecore/trace"
)

// TracePlace is where the warehouse keeps a trace's ids, as its rows say and
// before anything is made of them.
type TracePlace struct {
	RolloutID                   string
	RolloutKey, TraceKey, Batch int64
	// Acknowledged is the content hash of the trace index, ContentHash that of
	// the warehouse's row, PromptHash the hash of the prompt (nil: not known).
	Acknowledged, ContentHash, PromptHash []byte
	// PromptLength and ResponseLength count ids; nil: not known.
	PromptLength, ResponseLength *int
	// TapeKey names the tape on which the ids lie; Tapes holds it and those that
	// it begins with, as far as they are there.
	TapeKey int64
	Tapes   map[int64]*TapeRow
}

// TapeRow is one tape: the first Fork ids of its parent (0: none), then its own.
type TapeRow struct {
	Parent int64
	Fork   int
	// Chunks are its own ids, by Start; Start counts from the tape's beginning.
	Chunks []TapeChunk
}

// TapeChunk is a piece of a tape.
type TapeChunk struct {
	Start int
	IDs   []int32
}

// Place reads where a trace is kept, after the drain of its batch. The error is
// ErrNotFound when no such trace was acknowledged.
func (s *Store) Place(ctx context.Context, traceID string) (*TracePlace, error) {
	x, err := s.lookup(ctx, traceID)
	if err != nil {
		return nil, err
	}
	p := &TracePlace{RolloutKey: x.rollout, TraceKey: x.trace, Batch: x.batch, Tapes: map[int64]*TapeRow{}}
	err = s.control.read.QueryRowContext(ctx, `SELECT content_hash FROM trace_index WHERE trace_hash = ?`, traceHash(traceID)).
		Scan(&p.Acknowledged)
	if err != nil {
		return nil, fmt.Errorf("look up trace %s: %w", traceID, err)
	}
	if err := s.WaitDrained(ctx, x.batch); err != nil {
		return nil, err
	}
	rows := 0
	err = s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		rows++
		p.RolloutID, p.ContentHash, p.PromptHash, p.TapeKey = c.str(), c.blob(), c.blob(), c.i64()
		if n, known := c.optI32(); known {
			p.PromptLength = &n
		}
		if n, known := c.optI32(); known {
			p.ResponseLength = &n
		}
		return nil
	}), `SELECT rollout_id, content_hash, prompt_hash, tape_key, prompt_length, response_length FROM ice.traces
		WHERE rollout_key = ? AND trace_key = ?`, x.rollout, x.trace)
	if err != nil {
		return nil, fmt.Errorf("read place of trace %s: %w", traceID, err)
	}
	if rows != 1 {
		return nil, fmt.Errorf("read place of trace %s: the warehouse holds it %d times: run icecore verify", traceID, rows)
	}
	return p, s.placeTapes(ctx, p)
}

// placeTapes reads the tape of a place and those that it begins with.
func (s *Store) placeTapes(ctx context.Context, p *TracePlace) error {
	all := map[int64]*TapeRow{}
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		all[c.i64()] = &TapeRow{Parent: c.i64(), Fork: c.i32()}
		return nil
	}), `SELECT tape_key, parent_key, fork FROM ice.tapes WHERE rollout_key = ?`, p.RolloutKey)
	if err != nil {
		return fmt.Errorf("read tapes: %w", err)
	}
	var keys []int64
	for key := p.TapeKey; all[key] != nil && p.Tapes[key] == nil; key = all[key].Parent {
		p.Tapes[key] = all[key]
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil
	}
	err = s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		t := p.Tapes[c.i64()]
		t.Chunks = append(t.Chunks, TapeChunk{c.i32(), slices.Clone(c.ids())})
		return nil
	}), `SELECT tape_key, start, token_ids FROM ice.tape_chunks WHERE rollout_key = ? AND tape_key IN `+inList(keys)+
		` ORDER BY tape_key, start`, p.RolloutKey)
	if err != nil {
		return fmt.Errorf("read tape chunks: %w", err)
	}
	return nil
}

// ContentHash is the hash that a trace's content has under the given hash of its
// prompt (nil: not known): the one that decides whether a trace sent again is a
// duplicate. Bodies must be there.
func ContentHash(t *trace.Trace, promptHash []byte) []byte {
	return contentHash(promptHash, attributesDigest(t))
}

// HashedPrompt is a prompt's stored length and hash.
type HashedPrompt struct {
	TraceID string
	Length  int
	Hash    []byte
}

// HashedPrompts lists the known prompts of a rollout by length.
func (s *Store) HashedPrompts(ctx context.Context, rolloutKey int64) ([]HashedPrompt, error) {
	var out []HashedPrompt
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		out = append(out, HashedPrompt{c.str(), c.i32(), c.blob()})
		return nil
	}), `SELECT trace_id, prompt_length, prompt_hash FROM ice.traces WHERE rollout_key = ? AND prompt_length IS NOT NULL
		ORDER BY prompt_length, trace_key`, rolloutKey)
	if err != nil {
		return nil, fmt.Errorf("read prompt hashes: %w", err)
	}
	return out, nil
}

// PublishedTrace is what the published merge of a policy made of one trace.
type PublishedTrace struct {
	MergedTrace
	// NearestID is the trace id of NearestKey, if it has one.
	NearestID string
	// Through is the newest batch whose traces the merge saw.
	Through int64
	// Into is the row in which the trace is trainable; nil: none.
	Into *MergedRow
}

// Published reads what policy made of a trace; nil: nothing is published of it.
func (s *Store) Published(ctx context.Context, rolloutKey, traceKey int64, policy string) (*PublishedTrace, error) {
	var p *PublishedTrace
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		p = &PublishedTrace{Through: c.i64()}
		t := &p.MergedTrace
		t.Key, t.Disposition, t.PreviousKey, t.Cut = traceKey, c.str(), c.i64(), c.i32()
		t.SpanStart, t.Row, t.Boundary, t.NearestKey, t.Shared = c.i32(), c.i32(), c.str(), c.i64(), c.i32()
		p.NearestID = c.str()
		if id := c.str(); id != "" {
			p.Into = &MergedRow{RolloutKey: rolloutKey, Through: p.Through, Row: t.Row, ID: id, Length: c.i32(), TrainedTokens: c.i32(),
				Rewritten: c.flag()}
		}
		return nil
	}), `SELECT g.through, m.disposition, coalesce(m.previous_key, 0), m.cut, coalesce(m.span_start, -1)::INTEGER,
			coalesce(m.row_index, -1)::INTEGER, m.boundary, coalesce(m.nearest_key, 0), coalesce(m.shared, 0)::INTEGER, near.trace_id,
			t.trajectory_id, coalesce(t.length, 0)::INTEGER, coalesce(t.trained_tokens, 0)::INTEGER, coalesce(t.history_rewritten, false)
		FROM (SELECT max(generation) AS generation, arg_max(through_batch, generation) AS through FROM ice.generations
			WHERE rollout_key = $1 AND policy = $2) g
		JOIN ice.merged_traces m ON m.generation = g.generation AND m.rollout_key = $1
		LEFT JOIN ice.trajectories t ON t.generation = g.generation AND t.rollout_key = $1 AND t.row_index = m.row_index
		LEFT JOIN ice.traces near ON near.rollout_key = $1 AND near.trace_key = m.nearest_key
		WHERE m.trace_key = $3`, rolloutKey, policy, traceKey)
	if err != nil {
		return nil, fmt.Errorf("read merge of trace %d: %w", traceKey, err)
	}
	return p, nil
}
