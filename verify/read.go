package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// querier is one connection on which a transaction is open: what it reads is
// of one moment.
type querier struct{ conn *sql.Conn }

// snapshot runs do inside a read transaction. They are kept short: an open one
// keeps SQLite from shrinking its log and DuckDB from checkpointing fully.
func snapshot(ctx context.Context, db *sql.DB, do func(querier) error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close() //nolint:errcheck // gives the connection back to the pool
	if _, err := conn.ExecContext(ctx, "BEGIN TRANSACTION"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() {
		if _, e := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); e != nil && err == nil {
			err = fmt.Errorf("end reading: %w", e)
		}
	}()
	return do(querier{conn})
}

// each runs a query and calls do per row.
func (q querier) each(ctx context.Context, do func(scan) error, text string, args ...any) (err error) {
	rows, err := q.conn.QueryContext(ctx, text, args...)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := do(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	return nil
}

type scan func(dest ...any) error

// int reads one number; NULL gives 0.
func (q querier) int(ctx context.Context, text string, args ...any) (int64, error) {
	var v sql.NullInt64
	if err := q.conn.QueryRowContext(ctx, text, args...).Scan(&v); err != nil {
		return 0, fmt.Errorf("query: %w", err)
	}
	return v.Int64, nil
}

// all reads rows of any columns.
func (q querier) all(ctx context.Context, do func(columns []string, row []any) error, text string, args ...any) (err error) {
	rows, err := q.conn.QueryContext(ctx, text, args...)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return fmt.Errorf("read columns: %w", err)
	}
	row, to := make([]any, len(columns)), make([]any, len(columns))
	for i := range row {
		to[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return fmt.Errorf("read row: %w", err)
		}
		if err := do(columns, row); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	return nil
}

// idList takes a list of ids as the driver gives it; ok is false when an
// element is not an id.
func idList(v any) (ids []int32, ok bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	ids = make([]int32, len(list))
	for i, e := range list {
		if ids[i], ok = e.(int32); !ok {
			return nil, false
		}
	}
	return ids, true
}

// ptr gives nil for NULL.
func ptr(v sql.NullInt64) *int64 {
	if !v.Valid {
		return nil
	}
	return &v.Int64
}
