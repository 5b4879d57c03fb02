package verify

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// part is one journal row.
type part struct {
	batch   int64
	table   string
	columns []string
	rows    [][]any
}

func (p *part) value(row int, column string) any {
	if i := slices.Index(p.columns, column); i >= 0 {
		return p.rows[row][i]
	}
	return nil
}

// decodePart reads an Arrow IPC stream. Arrow panics over some damaged input.
func decodePart(payload []byte) (p part, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("decode: %v", x)
		}
	}()
	r, err := ipc.NewReader(bytes.NewReader(payload))
	if err != nil {
		return p, fmt.Errorf("decode: %w", err)
	}
	defer r.Release()
	for _, f := range r.Schema().Fields() {
		p.columns = append(p.columns, f.Name)
	}
	for r.Next() {
		rec := r.RecordBatch()
		for i := range int(rec.NumRows()) {
			row := make([]any, rec.NumCols())
			for c := range row {
				v, err := plain(rec.Column(c), i)
				if err != nil {
					return p, err
				}
				switch v := v.(type) { // out of Arrow's memory
				case []byte:
					row[c] = bytes.Clone(v)
				case string:
					row[c] = string(append([]byte(nil), v...))
				default:
					row[c] = v
				}
			}
			p.rows = append(p.rows, row)
		}
	}
	if err := r.Err(); err != nil {
		return p, fmt.Errorf("decode: %w", err)
	}
	return p, nil
}

// groupBytes is about how much journal is compared at once.
const groupBytes = 8 << 20

// journal checks every batch that the journal still holds. The server deletes
// batches while this runs; one that is gone by then is in the warehouse.
func (v *run) journal(ctx context.Context) error {
	later := map[int64]int{} // index rows of batches beyond through
	type head struct{ batch, bytes int64 }
	var heads []head
	err := snapshot(ctx, v.src.Control, func(q querier) error {
		err := q.each(ctx, func(s scan) error {
			var h head
			err := s(&h.batch, &h.bytes)
			heads = append(heads, h)
			return err
		}, `SELECT batch, sum(length(payload)) FROM journal GROUP BY 1 ORDER BY 1`)
		if err != nil {
			return err
		}
		return q.each(ctx, func(s scan) error {
			var batch int64
			var n int
			err := s(&batch, &n)
			later[batch] = n
			return err
		}, `SELECT batch, count(*) FROM trace_index WHERE batch > ? GROUP BY 1`, v.through)
	})
	if err != nil {
		return err
	}
	group := newJournalGroup(v)
	var size int64
	for i, h := range heads {
		found, err := v.batch(ctx, h.batch, group)
		if err != nil {
			return err
		}
		later[h.batch] -= found
		if size += h.bytes; size >= groupBytes || i+1 == len(heads) {
			if err := group.compare(ctx); err != nil {
				return err
			}
			group, size = newJournalGroup(v), 0
		}
	}
	return v.laterBatches(ctx, later)
}

// batch reads one batch, all of its parts in one moment, and puts it into the
// group if it is drained. It counts the traces that are indexed.
func (v *run) batch(ctx context.Context, batch int64, group *journalGroup) (indexed int, err error) {
	err = snapshot(ctx, v.src.Control, func(q querier) error {
		var parts []part
		err := q.each(ctx, func(s scan) error {
			var table string
			var rows int
			var payload []byte
			if err := s(&table, &rows, &payload); err != nil {
				return err
			}
			p, ok := v.part(batch, table, rows, payload)
			if ok {
				parts = append(parts, p)
			} else {
				group.damaged[journalPart{batch, table}] = true
			}
			return nil
		}, `SELECT part, rows, payload FROM journal WHERE batch = ? ORDER BY part`, batch)
		if err != nil {
			return err
		}
		for i := range parts {
			p := &parts[i]
			if p.table == "traces" {
				if indexed, err = v.journalledTraces(ctx, q, p); err != nil {
					return err
				}
			}
			if batch <= v.through {
				group.add(p)
			}
		}
		return nil
	})
	return indexed, err
}

// laterBatches asks where index rows are whose batch is neither in the journal
// nor among those that are compared: drained since, or nowhere.
func (v *run) laterBatches(ctx context.Context, later map[int64]int) error {
	return snapshot(ctx, v.src.Warehouse, func(q querier) error {
		for batch, missing := range later {
			if missing <= 0 {
				continue
			}
			n, err := q.int(ctx, `SELECT count(*) FROM ice.traces WHERE batch = ?`, batch)
			if err != nil {
				return err
			}
			if n == 0 {
				v.fail(checkIndex, "", "", "%d traces of batch %d are indexed, but neither the journal nor the warehouse holds them", missing, batch)
			}
		}
		return nil
	})
}

// part decodes one journal row; ok is false when it is damaged.
func (v *run) part(batch int64, table string, rows int, payload []byte) (p part, ok bool) {
	v.checked(checkJournal, 1)
	if !slices.Contains(drainedTables, table) {
		v.fail(checkJournal, "", "", "batch %d has a part %q, which is no table", batch, table)
		return p, false
	}
	p, err := decodePart(payload)
	p.batch, p.table = batch, table
	if err != nil {
		v.fail(checkJournal, "", "", "batch %d, part %s cannot be read: %v", batch, table, err)
		return p, false
	}
	if len(p.rows) != rows {
		v.fail(checkJournal, "", "", "batch %d, part %s holds %d rows, but says %d", batch, table, len(p.rows), rows)
	}
	for i := range p.rows {
		if b, _ := p.value(i, "batch").(int64); b != batch {
			v.fail(checkJournal, "", "", "batch %d, part %s: row %d says that it is of batch %v", batch, table, i, p.value(i, "batch"))
		}
	}
	return p, true
}

// journalledTraces looks each trace up in the index and counts those found.
func (v *run) journalledTraces(ctx context.Context, q querier, p *part) (found int, err error) {
	for i := range p.rows {
		id, _ := p.value(i, "trace_id").(string)
		rollout, _ := p.value(i, "rollout_id").(string)
		key, _ := p.value(i, "trace_key").(int64)
		rolloutKey, _ := p.value(i, "rollout_key").(int64)
		content, _ := p.value(i, "content_hash").([]byte)
		is := indexRow{string(content), key, rolloutKey, p.batch}
		v.checked(checkIndex, 1)
		x, ok, err := lookUp(ctx, q, id)
		switch {
		case err != nil:
			return found, err
		case !ok:
			v.fail(checkIndex, rollout, id, "journal batch %d holds the trace, but it is not indexed", p.batch)
		case x != is:
			v.fail(checkIndex, rollout, id, "the index has %v, the journal %v", x, is)
		default:
			found++
		}
	}
	return found, nil
}
