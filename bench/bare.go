package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/duckdb/duckdb-go/v2"

	"icecore/query/analytics"
)

// bareDuckDB is DuckDB in this process, with nothing of icecore around it.
type bareDuckDB struct {
	db   *sql.DB
	conn *sql.Conn
}

// bareCopy opens a copy of the server's warehouse. The views name functions that
// only icecore has; no statement here selects their columns, so anything may
// stand in for them.
func bareCopy(s *server) (*bareDuckDB, error) {
	to := filepath.Join(s.dir, "copy.duckdb")
	for _, end := range []string{"", ".wal"} { // nothing is written now
		raw, err := os.ReadFile(filepath.Join(s.dir, "data", "warehouse.duckdb"+end))
		if err == nil {
			err = os.WriteFile(to+end, raw, 0o644)
		}
		if err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("copy warehouse: %w", err)
		}
	}
	db, err := sql.Open("duckdb", to)
	if err != nil {
		return nil, fmt.Errorf("open copy: %w", err)
	}
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open copy: %w", err)
	}
	for _, stmt := range []string{
		"CREATE TEMP MACRO ice_tape_ids(a, b, c) AS NULL::INTEGER[]", "CREATE TEMP MACRO ice_trace_logprobs(a, b) AS NULL::FLOAT[]",
		"CREATE TEMP MACRO ice_row_ids(a, b, c, d, e) AS NULL::INTEGER[]", "CREATE TEMP MACRO ice_row_mask(a, b, c, d, e) AS NULL::TINYINT[]",
		"CREATE TEMP MACRO ice_row_logprobs(a, b, c, d, e) AS NULL::FLOAT[]", "CREATE TEMP MACRO ice_row_spans(a, b, c, d, e) AS NULL::INTEGER[]",
		"SET preserve_insertion_order = false", // as the server has it
	} {
		if _, err := conn.ExecContext(ctx, stmt); err != nil {
			return nil, fmt.Errorf("prepare copy: %w", err)
		}
	}
	return &bareDuckDB{db, conn}, nil
}

func (b *bareDuckDB) close() {
	_ = b.conn.Close()
	_ = b.db.Close()
}

// Query implements analytics.Warehouse.
func (b *bareDuckDB) Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error {
	err := b.conn.Raw(func(dc any) error {
		a, err := duckdb.NewArrowFromConn(dc.(driver.Conn))
		if err != nil {
			return fmt.Errorf("query: %w", err)
		}
		r, err := a.QueryContext(ctx, text, args...)
		if err != nil {
			return fmt.Errorf("query: %w", err)
		}
		defer r.Release()
		for r.Next() {
			if err := each(r.RecordBatch()); err != nil {
				return err
			}
		}
		return r.Err()
	})
	if err != nil {
		return fmt.Errorf("bare DuckDB: %w", err)
	}
	return nil
}

// each reads a result away.
func (b *bareDuckDB) each(ctx context.Context, text string) error {
	return b.Query(ctx, func(arrow.RecordBatch) error { return nil }, text)
}

func rangeOf(from, to int64) analytics.Range { return analytics.Range{Min: &from, Max: &to} }
