package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"icecore/store/warehouse"
)

// journalLoad is what one drain moves. cut says that the journal holds more.
// (What is committed meanwhile is no part of that: it wakes the drainer anew, and
// is drained together with what else comes within DrainInterval.)
type journalLoad struct {
	cut   bool
	last  int64
	bytes int64
	rows  int64
	parts map[string][]arrow.RecordBatch
}

func (l *journalLoad) release() {
	for _, recs := range l.parts {
		for _, r := range recs {
			r.Release()
		}
	}
}
func (l *journalLoad) rolloutKeys() []int64 {
	var keys []int64
	for _, rec := range l.parts[tableTraces.name] {
		keys = append(keys, rec.Column(1).(*array.Int64).Int64Values()...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
func (d *drainer) load(ctx context.Context) (*journalLoad, error) {
	d.mu.Lock()
	drained := d.drained
	d.mu.Unlock()
	l := &journalLoad{parts: map[string][]arrow.RecordBatch{}}
	rs, err := d.s.control.read.QueryContext(ctx,
		`SELECT batch, part, rows, payload FROM journal WHERE batch > ? ORDER BY batch, part`, drained)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	defer rs.Close() //nolint:errcheck // Err below says what went wrong
	for rs.Next() {
		var batch, rows int64
		var part string
		var payload []byte
		if err := rs.Scan(&batch, &part, &rows, &payload); err != nil {
			l.release()
			return nil, fmt.Errorf("read journal: %w", err)
		}
		if l.last != batch && l.bytes >= d.s.opts.DrainBytes {
			l.cut = true
			return l, nil
		}
		t := journalTable(part)
		if t == nil {
			l.release()
			return nil, fmt.Errorf("read journal: batch %d has rows for the unknown table %q", batch, part)
		}
		recs, err := decodeRecords(payload, t.schema)
		l.parts[part] = append(l.parts[part], recs...)
		if err != nil {
			l.release()
			return nil, fmt.Errorf("read journal batch %d: %w", batch, err)
		}
		l.last = batch
		l.bytes += int64(len(payload))
		l.rows += rows
	}
	if err := rs.Err(); err != nil {
		l.release()
		return nil, fmt.Errorf("read journal: %w", err)
	}
	return l, nil
}
func journalTable(name string) *table {
	for _, t := range journalled {
		if t.name == name {
			return t
		}
	}
	return nil
}

// additions joins the many small batches of each table to few large ones, packs
// bodies, and adds the record of the drain itself.
func (d *drainer) additions(l *journalLoad) ([]warehouse.Addition, error) {
	var adds []warehouse.Addition
	for _, t := range journalled {
		recs := l.parts[t.name]
		if len(recs) == 0 {
			continue
		}
		joined, err := concat(t.schema, recs)
		if err != nil {
			return nil, fmt.Errorf("join journal rows of %s: %w", t.name, err)
		}
		if t == tableBodies {
			packed, err := d.packer.pack(joined)
			joined.Release()
			if err != nil {
				return nil, err
			}
			joined = packed
		}
		adds = append(adds, warehouse.Addition{Table: t.name, Records: []arrow.RecordBatch{joined}})
	}
	r := tableDrains.rows()
	defer r.b.Release()
	r.i64(l.last)
	r.time(time.Now().UnixMicro())
	r.end()
	return append(adds, warehouse.Addition{Table: tableDrains.name, Records: []arrow.RecordBatch{r.record()}}), nil
}
func concat(schema *arrow.Schema, recs []arrow.RecordBatch) (arrow.RecordBatch, error) {
	if len(recs) == 1 {
		recs[0].Retain()
		return recs[0], nil
	}
	cols := make([]arrow.Array, schema.NumFields())
	defer func() {
		for _, c := range cols {
			if c != nil {
				c.Release()
			}
		}
	}()
	var n int64
	for _, r := range recs {
		n += r.NumRows()
	}
	for i := range cols {
		parts := make([]arrow.Array, len(recs))
		for j, r := range recs {
			parts[j] = r.Column(i)
		}
		c, err := array.Concatenate(parts, memory.DefaultAllocator)
		if err != nil {
			return nil, fmt.Errorf("concatenate %s: %w", schema.Field(i).Name, err)
		}
		cols[i] = c
	}
	return array.NewRecordBatch(schema, cols, n), nil
}
