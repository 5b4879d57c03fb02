package warehouse

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/duckdb/duckdb-go/v2"

	"icecore/migrations"
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

// lockPatience is how long Open waits for another process to let the file go: a
// child whose server was killed ends by itself, but not before it is scheduled.
const lockPatience = 10 * time.Second

// Open opens or makes the file, sets what must hold for every connection, and
// migrates. The error is ErrUnreadable when the file is at fault.
func Open(path string, o Options) (*Engine, error) {
	e, err := openWhenFree(path, o)
	if err != nil {
		if unreadable(err) {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		return nil, err
	}
	if o.AsItIs {
		return e, nil
	}
	if err := migrations.Warehouse(e.db, o.Hook); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func openWhenFree(path string, o Options) (*Engine, error) {
	pause := 10 * time.Millisecond
	for deadline := time.Now().Add(lockPatience); ; pause = min(2*pause, time.Second) {
		e, err := open(path, o)
		if err == nil || !strings.Contains(err.Error(), "Could not set lock") || time.Now().After(deadline) {
			return e, err
		}
		time.Sleep(pause) // nobody announces that a lock is free
	}
}

func open(path string, o Options) (*Engine, error) {
	connector, err := duckdb.NewConnector(path, nil)
	if err != nil {
		return nil, fmt.Errorf("open warehouse %s: %w", path, err)
	}
	e := &Engine{path: path, db: sql.OpenDB(connector), opts: o}
	e.db.SetMaxIdleConns(8)
	// Checkpoints are ours to time: they decide when the journal may shrink.
	for _, stmt := range []string{
		fmt.Sprintf("SET memory_limit = '%dMiB'", max(o.MemoryLimit/mib, 64)),
		fmt.Sprintf("SET threads = %d", o.Threads),
		fmt.Sprintf("SET temp_directory = '%s'", strings.ReplaceAll(o.TempDir, "'", "''")),
		"SET checkpoint_threshold = '1TB'",
		"SET preserve_insertion_order = false",
		"SET GLOBAL TimeZone = 'UTC'",
	} {
		if _, err := e.db.ExecContext(context.Background(), stmt); err != nil {
			_ = e.db.Close()
			return nil, fmt.Errorf("configure warehouse (%s): %w", stmt, err)
		}
	}
	if err := register(context.Background(), e.db, o.Functions); err != nil {
		_ = e.db.Close()
		return nil, err
	}
	if err := lockdown(context.Background(), e.db); err != nil {
		_ = e.db.Close()
		return nil, err
	}
	return e, nil
}

// unreadable tells a damaged file from circumstances that are not the file's
// fault.
func unreadable(err error) bool {
	text := err.Error()
	for _, other := range []string{"Could not set lock", "Permission denied", "No space left", "Out of Memory",
		"Is a directory", "Read-only file system", "Too many open files", "newer version", "version number"} {
		if strings.Contains(text, other) {
			return false
		}
	}
	return true
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
	if _, err := conn.ExecContext(ctx, "BEGIN TRANSACTION"); err != nil {
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
		_, rbErr := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		if rbErr != nil && !strings.Contains(rbErr.Error(), "no transaction is active") {
			err = errors.Join(err, fmt.Errorf("roll back in warehouse: %w", rbErr))
		}
	}
	return e.noted(err)
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
	if _, err := conn.ExecContext(ctx, "BEGIN TRANSACTION READ ONLY"); err != nil {
		return fmt.Errorf("query warehouse: %w", err)
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") //nolint:errcheck // it changed nothing
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
