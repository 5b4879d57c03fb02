package verify

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
)

// journalGroup is drained batches that are compared with the warehouse.
type journalGroup struct {
	v       *run
	batches map[int64]bool
	// damaged parts were told; there is nothing to compare with.
	damaged map[journalPart]bool
	rows    map[string]map[uint64]*seenRow
}

type journalPart struct {
	batch int64
	table string
}

// seenRow counts a row: up in the journal, down in the warehouse.
type seenRow struct {
	n    int
	what string
}

func newJournalGroup(v *run) *journalGroup {
	return &journalGroup{v, map[int64]bool{}, map[journalPart]bool{}, map[string]map[uint64]*seenRow{}}
}

func (g *journalGroup) add(p *part) {
	g.batches[p.batch] = true
	for i, row := range p.rows {
		if p.table == "bodies" {
			g.v.rememberBody(p, i)
		}
		g.count(p.table, p.columns, row, 1)
	}
}

// rememberBody keeps the hash of a body as it came; the warehouse holds it
// compressed.
func (v *run) rememberBody(p *part, i int) {
	key, _ := p.value(i, "trace_key").(int64)
	side, _ := p.value(i, "side").(string)
	data, _ := p.value(i, "data").([]byte)
	v.sent[bodyKey{key, side}] = sha256.Sum256(data)
}

func (g *journalGroup) count(table string, columns []string, row []any, n int) {
	if table == "bodies" {
		row = slices.Clone(row)
		for i, c := range columns {
			if c == "data" || c == "base_key" {
				row[i] = nil
			}
		}
	}
	f := fingerprint(row)
	if g.rows[table] == nil {
		g.rows[table] = map[uint64]*seenRow{}
	}
	s := g.rows[table][f]
	if s == nil {
		s = &seenRow{what: describe(columns, row)}
		g.rows[table][f] = s
	}
	s.n += n
}

// describe names a row by its first columns.
func describe(columns []string, row []any) string {
	var out string
	for i, c := range columns[:min(3, len(columns))] {
		if i > 0 {
			out += ", "
		}
		out += fmt.Sprintf("%s %v", c, row[i])
	}
	return out
}

func (g *journalGroup) compare(ctx context.Context) error {
	if len(g.batches) == 0 {
		return nil
	}
	var batches []int64
	for b := range g.batches {
		batches = append(batches, b)
	}
	first, last := slices.Min(batches), slices.Max(batches)
	return snapshot(ctx, g.v.src.Warehouse, func(q querier) error {
		for _, t := range drainedTables {
			err := q.all(ctx, func(columns []string, row []any) error {
				batch, _ := row[slices.Index(columns, "batch")].(int64)
				if g.batches[batch] && !g.damaged[journalPart{batch, t}] {
					g.count(t, columns, row, -1)
				}
				return nil
			}, `SELECT * FROM ice.`+t+` WHERE batch BETWEEN ? AND ?`, first, last)
			if err != nil {
				return err
			}
			for _, s := range g.rows[t] {
				switch {
				case s.n > 0:
					g.v.fail(checkJournal, "", "", "a row of %s (%s) is in the journal, but was not drained as it is there", t, s.what)
				case s.n < 0:
					g.v.fail(checkJournal, "", "", "a row of %s (%s) is in the warehouse, but not so, or not so often, in the journal's batch", t, s.what)
				}
			}
		}
		return nil
	})
}
