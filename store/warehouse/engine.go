package warehouse

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/duckdb/duckdb-go/v2"
)

const mib = 1 << 20

// Engine is DuckDB in this process. It is safe for concurrent use. Open a file
// once per process: DuckDB does not notice a second time.
type Engine struct {
	path string
	db   *sql.DB
	// writes is held by the one writer: DuckDB would let two run and fail one.
	writes sync.Mutex
	// use is held shared by whoever uses db, and alone to replace it.
	use    sync.RWMutex
	opts   Options
	broken atomic.Bool
}

// Close closes the file.
func (e *Engine) Close() error {
	e.use.RLock()
	defer e.use.RUnlock()
	if err := e.db.Close(); err != nil {
		return fmt.Errorf("close warehouse: %w", err)
	}
	return nil
}

// DB gives the database itself to whoever reads it in this process. It is
// replaced by Heal: hold it with Hold for as long as it is used.
func (e *Engine) DB() *sql.DB { return e.db }

// Hold keeps Heal from replacing the database until release is called.
func (e *Engine) Hold() (release func()) {
	e.use.RLock()
	return e.use.RUnlock
}

// Apply executes stmts and appends in one transaction. before, if set, is called
// before the commit; its error rolls back.
func (e *Engine) Apply(ctx context.Context, adds []Addition, before func() error, stmts ...string) error {
	e.writes.Lock()
	defer e.writes.Unlock()
	conn, giveBack, err := e.conn(ctx)
	if err != nil {
		return err
	}
	defer giveBack()
	if err := beginOn(ctx, conn, "BEGIN TRANSACTION"); err != nil {
		return e.noted(fmt.Errorf("begin in warehouse: %w", err))
	}
	err = func() error {
		for _, s := range stmts {
			if _, err := conn.ExecContext(ctx, s); err != nil {
				return fmt.Errorf("write to warehouse: %w", err)
			}
		}
		for _, a := range adds {
			if err := conn.Raw(func(dc any) error { return appendRecords(dc.(driver.Conn), a) }); err != nil {
				return err
			}
		}
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
			return fmt.Errorf("commit in warehouse: %w", err)
		}
		return nil
	}()
	if err != nil {
		err = errors.Join(err, rollBack(ctx, conn))
	}
	return e.noted(err)
}

// beginOn begins a transaction. It is not cut short when ctx ends: a transaction
// that began although its caller was told otherwise would stay with the
// connection and fail whoever gets that next.
func beginOn(ctx context.Context, conn *sql.Conn, text string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), text); err != nil {
		return errors.Join(fmt.Errorf("begin a transaction: %w", err), rollBack(ctx, conn))
	}
	return nil
}

// Query runs one SQL statement that reads and hands its result over batch by
// batch; a batch is valid during the call only, unless it is retained. The
// driver materialises the result: page what may be large.
func (e *Engine) Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error {
	conn, giveBack, err := e.conn(ctx)
	if err != nil {
		return err
	}
	defer giveBack()
	return e.noted(readOn(ctx, conn, each, text, args))
}

// readOn runs a statement that reads, in a transaction of its own.
func readOn(ctx context.Context, conn *sql.Conn, each func(arrow.RecordBatch) error, text string, args []any) error {
	// The driver prepares and then runs. Outside a transaction those are two
	// snapshots, and DuckDB drops a condition such as batch <= 7 for good when no
	// row breaks it while it prepares: rows committed in between would pass.
	if err := beginOn(ctx, conn, "BEGIN TRANSACTION READ ONLY"); err != nil {
		return fmt.Errorf("query warehouse: %w", err)
	}
	defer rollBack(ctx, conn) //nolint:errcheck // it changed nothing
	return conn.Raw(func(dc any) error {
		a, err := duckdb.NewArrowFromConn(dc.(driver.Conn))
		if err != nil {
			return fmt.Errorf("query warehouse: %w", err)
		}
		r, err := a.QueryContext(ctx, text, args...)
		if err != nil {
			return fmt.Errorf("query warehouse: %w", err)
		}
		defer r.Release()
		for r.Next() {
			if err := each(r.RecordBatch()); err != nil {
				return err
			}
		}
		if err := r.Err(); err != nil {
			return fmt.Errorf("query warehouse: %w", err)
		}
		return nil
	})
}

// Int runs a query of one row and column; NULL gives 0.
func (e *Engine) Int(ctx context.Context, text string) (int64, error) {
	conn, giveBack, err := e.conn(ctx)
	if err != nil {
		return 0, err
	}
	defer giveBack()
	var v sql.NullInt64
	if err := conn.QueryRowContext(ctx, text).Scan(&v); err != nil {
		return 0, e.noted(fmt.Errorf("query warehouse: %w", err))
	}
	return v.Int64, nil
}

// Checkpoint writes everything into the file itself. It reports whether the
// write-ahead log is empty afterwards, so that nothing depends on it.
func (e *Engine) Checkpoint(ctx context.Context) (clean bool, err error) {
	e.writes.Lock()
	defer e.writes.Unlock()
	conn, giveBack, err := e.conn(ctx)
	if err != nil {
		return false, err
	}
	defer giveBack()
	if _, err := conn.ExecContext(ctx, "CHECKPOINT"); err != nil {
		return false, e.noted(fmt.Errorf("checkpoint warehouse: %w", err))
	}
	info, err := os.Stat(e.path + ".wal")
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("checkpoint warehouse: %w", err)
	}
	return info.Size() == 0, nil
}
