package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// salvager makes the journal stand by itself after the warehouse's file was
// lost, or came back from an old copy. A batch may go on from tapes that only
// the lost file held: its traces cannot be read any more, so they are taken out,
// and whoever sends them again has them stored again.
type salvager struct {
	*rebuilder
	tapes map[int64]*salvaged
	// dropped are the traces taken out.
	dropped map[int64]bool
}

// salvaged is how much of a tape is known.
type salvaged struct {
	parent *salvaged
	fork   int
	end    int
}

// holds says whether the first n ids are there.
func (t *salvaged) holds(n int) bool {
	for ; t != nil; t = t.parent {
		if n > t.end {
			return false
		}
		if n = min(n, t.fork); n == 0 {
			return true
		}
	}
	return n == 0
}

func (b *rebuilder) salvage(ctx context.Context) error {
	if !b.lost {
		return nil
	}
	s := &salvager{rebuilder: b, tapes: map[int64]*salvaged{}, dropped: map[int64]bool{}}
	if err := s.warehouseTapes(ctx); err != nil {
		return err
	}
	batches, err := s.batches(ctx)
	if err != nil {
		return err
	}
	for _, batch := range batches {
		for _, step := range []struct {
			of   *table
			keep func(rec arrow.RecordBatch, row int) bool
		}{
			// The first two look at what there is, the others take out.
			{tableTapes, s.opened}, {tableTapeChunks, s.grown}, {tableTapes, s.keepTape}, {tableTapeChunks, s.keepChunk},
			{tableTraces, s.keepTrace}, {tableLogprobChunks, s.keepOfTrace}, {tableBodies, s.keepOfTrace},
		} {
			if err := s.filter(ctx, batch, step.of, step.keep); err != nil {
				return err
			}
		}
	}
	if err := s.learnerPosts(ctx, batches); err != nil {
		return err
	}
	if len(s.dropped) > 0 {
		s.s.log.Error("traces in the journal go on from ids that are lost; they are no longer known", "traces", len(s.dropped))
	}
	if len(batches) > 0 {
		// What lies before the first of them is missing for good.
		if err := s.exec(ctx, setMetaText, "lost_through", batches[0]-1); err != nil {
			return err
		}
	}
	return nil
}

func (b *rebuilder) batches(ctx context.Context) (out []int64, err error) {
	rs, err := b.tx.QueryContext(ctx, `SELECT DISTINCT batch FROM journal ORDER BY batch`)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	defer rs.Close() //nolint:errcheck // Err below says what went wrong
	for rs.Next() {
		var batch int64
		if err := rs.Scan(&batch); err != nil {
			return nil, fmt.Errorf("read journal: %w", err)
		}
		out = append(out, batch)
	}
	return out, rs.Err()
}

func (s *salvager) warehouseTapes(ctx context.Context) error {
	return s.s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		s.tapes[c.i64()] = &salvaged{parent: s.tapes[c.i64()], fork: c.i32(), end: c.i32()}
		return nil
	}), `SELECT t.tape_key, t.parent_key, t.fork, (t.fork + coalesce(c.n, 0))::INTEGER FROM ice.tapes t
		LEFT JOIN (SELECT tape_key, sum(len(token_ids)) AS n FROM ice.tape_chunks GROUP BY 1) c USING (tape_key) ORDER BY 1`)
}

// filter rewrites one part of a batch without the rows that keep refuses.
func (b *rebuilder) filter(ctx context.Context, batch int64, t *table, keep func(arrow.RecordBatch, int) bool) error {
	var payload []byte
	err := b.tx.QueryRowContext(ctx, `SELECT payload FROM journal WHERE batch = ? AND part = ?`, batch, t.name).Scan(&payload)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	recs, err := decodeRecords(payload, t.schema)
	defer func() {
		for _, rec := range recs {
			rec.Release()
		}
	}()
	if err != nil {
		return err
	}
	kept, all := keepRows(recs, keep)
	defer func() {
		for _, rec := range kept {
			rec.Release()
		}
	}()
	switch {
	case all:
		return nil
	case len(kept) == 0:
		return b.exec(ctx, `DELETE FROM journal WHERE batch = ? AND part = ?`, batch, t.name)
	}
	joined, err := concat(t.schema, kept)
	if err != nil {
		return err
	}
	defer joined.Release()
	if payload, err = encodeRecord(joined); err != nil {
		return err
	}
	return b.exec(ctx, `UPDATE journal SET rows = ?, payload = ? WHERE batch = ? AND part = ?`, len(kept), payload, batch, t.name)
}

// keepRows gives the rows that keep wants, one to a record, and whether those
// are all. The caller releases them.
func keepRows(recs []arrow.RecordBatch, keep func(arrow.RecordBatch, int) bool) (kept []arrow.RecordBatch, all bool) {
	all = true
	for _, rec := range recs {
		for row := range int(rec.NumRows()) {
			if keep(rec, row) {
				kept = append(kept, rec.NewSlice(int64(row), int64(row)+1))
			} else {
				all = false
			}
		}
	}
	return kept, all
}

// cell reads a whole number of a row by the column's name.
func cell(rec arrow.RecordBatch, row int, name string) int64 {
	switch c := rec.Column(rec.Schema().FieldIndices(name)[0]).(type) {
	case *array.Int32:
		return int64(c.Value(row))
	case *array.Int64:
		return c.Value(row)
	}
	panic("store: column " + name + " is no whole number")
}

func (s *salvager) opened(rec arrow.RecordBatch, row int) bool {
	key, parent, fork := cell(rec, row, "tape_key"), cell(rec, row, "parent_key"), int(cell(rec, row, "fork"))
	if s.tapes[key] != nil { // it was drained
		return true
	}
	t := &salvaged{parent: s.tapes[parent], fork: fork, end: fork}
	if t.parent == nil && parent != 0 {
		t.end = -1 // holds nothing
	}
	s.tapes[key] = t
	return true
}

func (s *salvager) grown(rec arrow.RecordBatch, row int) bool {
	t := s.tapes[cell(rec, row, "tape_key")]
	from, to := rec.Column(rec.Schema().FieldIndices("token_ids")[0]).(*array.List).ValueOffsets(row)
	if t != nil && int(cell(rec, row, "start")) == t.end {
		t.end += int(to - from)
	}
	return true
}

// keepTape keeps a tape of which something can be read.
func (s *salvager) keepTape(rec arrow.RecordBatch, row int) bool {
	key := cell(rec, row, "tape_key")
	t := s.tapes[key]
	if t != nil && t.end >= t.fork && t.holds(t.fork) {
		return true
	}
	delete(s.tapes, key)
	return false
}

func (s *salvager) keepChunk(rec arrow.RecordBatch, row int) bool {
	t := s.tapes[cell(rec, row, "tape_key")]
	return t != nil && int(cell(rec, row, "start")) < t.end
}

func (s *salvager) keepTrace(rec arrow.RecordBatch, row int) bool {
	tape, n := cell(rec, row, "tape_key"), 0
	for _, name := range []string{"prompt_length", "response_length"} {
		if i := rec.Schema().FieldIndices(name)[0]; rec.Column(i).IsValid(row) {
			n += int(cell(rec, row, name))
		}
	}
	if tape == 0 || s.tapes[tape].holds(n) {
		return true
	}
	s.dropped[cell(rec, row, "trace_key")] = true
	return false
}

func (s *salvager) keepOfTrace(rec arrow.RecordBatch, row int) bool {
	return !s.dropped[cell(rec, row, "trace_key")]
}
