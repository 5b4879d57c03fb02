package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/duckdb/duckdb-go/v2"
	"github.com/duckdb/duckdb-go/v2/arrowmapping"
	"github.com/duckdb/duckdb-go/v2/mapping"
)

// warehouse is the narrow waist around DuckDB: append record batches, run SQL,
// get record batches. Nothing else in icecore touches DuckDB.
type warehouse struct {
	path string
	db   *sql.DB
	// writes is held by the one writer: DuckDB would let two run and fail one.
	writes sync.Mutex
	// use is held shared by whoever uses db, and alone to replace it.
	use    sync.RWMutex
	opts   Options
	broken atomic.Bool
}

// openWarehouse opens or makes the file and sets what must hold for every
// connection. It does not migrate.
func openWarehouse(path string, o Options) (*warehouse, error) {
	connector, err := duckdb.NewConnector(path, nil)
	if err != nil {
		return nil, fmt.Errorf("open warehouse %s: %w", path, err)
	}
	w := &warehouse{path: path, db: sql.OpenDB(connector), opts: o}
	w.db.SetMaxIdleConns(8)
	// Checkpoints are ours to time: they decide when the journal may shrink.
	for _, stmt := range []string{
		fmt.Sprintf("SET memory_limit = '%dMiB'", max(o.MemoryLimit/mib, 64)),
		fmt.Sprintf("SET threads = %d", o.Threads),
		fmt.Sprintf("SET temp_directory = '%s'", strings.ReplaceAll(o.TempDir, "'", "''")),
		"SET checkpoint_threshold = '1TB'",
		"SET preserve_insertion_order = false",
		"SET GLOBAL TimeZone = 'UTC'",
	} {
		if _, err := w.db.ExecContext(context.Background(), stmt); err != nil {
			_ = w.db.Close()
			return nil, fmt.Errorf("configure warehouse (%s): %w", stmt, err)
		}
	}
	return w, nil
}

func (w *warehouse) close() error { return w.db.Close() }

// addition is rows to append to one table.
type addition struct {
	table *table
	recs  []arrow.RecordBatch
}

// apply appends and executes in one transaction. before, if set, is called
// before the commit.
func (w *warehouse) apply(ctx context.Context, adds []addition, before func() error, stmts ...string) error {
	w.writes.Lock()
	defer w.writes.Unlock()
	conn, giveBack, err := w.conn(ctx)
	if err != nil {
		return err
	}
	defer giveBack()
	if _, err := conn.ExecContext(ctx, "BEGIN TRANSACTION"); err != nil {
		return w.noted(fmt.Errorf("begin in warehouse: %w", err))
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
	return w.noted(err)
}

// vectorRows is how many rows a DuckDB data chunk holds.
const vectorRows = 2048

// appendRecords hands record batches to DuckDB's appender as data chunks. The
// driver's own Arrow path (RegisterView) leaves a persistent view over freed
// memory behind.
func appendRecords(dc driver.Conn, a addition) (err error) {
	conn := rawConnection(dc)
	var app mapping.Appender
	if mapping.AppenderCreateExt(conn, "", "ice", a.table.name, &app) == mapping.StateError {
		err := appenderError(app)
		mapping.AppenderDestroy(&app)
		return fmt.Errorf("append to ice.%s: %w", a.table.name, err)
	}
	defer mapping.AppenderDestroy(&app)
	schema, ed := arrowmapping.SchemaFromArrow(conn, a.table.schema)
	if err := takeError(ed); err != nil {
		return fmt.Errorf("append to ice.%s: %w", a.table.name, err)
	}
	defer arrowmapping.DestroyArrowConvertedSchema(&schema)
	for _, rec := range a.recs {
		for from := int64(0); from < rec.NumRows(); from += vectorRows {
			slice := rec.NewSlice(from, min(from+vectorRows, rec.NumRows()))
			chunk, ed := arrowmapping.DataChunkFromArrow(conn, slice, schema)
			slice.Release()
			if err := takeError(ed); err != nil {
				return fmt.Errorf("append to ice.%s: %w", a.table.name, err)
			}
			state := mapping.AppendDataChunk(app, chunk)
			mapping.DestroyDataChunk(&chunk)
			if state == mapping.StateError {
				return fmt.Errorf("append to ice.%s: %w", a.table.name, appenderError(app))
			}
		}
	}
	if mapping.AppenderFlush(app) == mapping.StateError {
		return fmt.Errorf("append to ice.%s: %w", a.table.name, appenderError(app))
	}
	return nil
}

// rawConnection reads the driver's unexported handle: the driver has no other
// way to append an Arrow batch. The versions are pinned, and a test reads it.
func rawConnection(dc driver.Conn) mapping.Connection {
	ptr := reflect.ValueOf(dc).Elem().FieldByName("conn").FieldByName("Ptr")
	return mapping.Connection{Ptr: ptr.UnsafePointer()}
}

func appenderError(a mapping.Appender) error {
	ed := mapping.AppenderErrorData(a)
	if err := takeError(ed); err != nil {
		return err
	}
	return errors.New("unknown appender error")
}

func takeError(ed mapping.ErrorData) error {
	defer mapping.DestroyErrorData(&ed)
	if ed.Ptr == nil || !mapping.ErrorDataHasError(ed) {
		return nil
	}
	return errors.New(mapping.ErrorDataMessage(ed))
}

// query runs one SQL statement and hands its result over batch by batch; a
// batch is valid during the call only. The driver materialises the result: page
// what may be large.
func (w *warehouse) query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error {
	conn, giveBack, err := w.conn(ctx)
	if err != nil {
		return err
	}
	defer giveBack()
	// The driver prepares and then runs. Outside a transaction those are two
	// snapshots, and DuckDB drops a condition such as batch <= 7 for good when no
	// row breaks it while it prepares: rows committed in between would pass.
	if _, err := conn.ExecContext(ctx, "BEGIN TRANSACTION READ ONLY"); err != nil {
		return w.noted(fmt.Errorf("query warehouse: %w", err))
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") //nolint:errcheck // it changed nothing
	return w.noted(conn.Raw(func(dc any) error {
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
	}))
}

// int runs a query of one row and column; NULL gives 0.
func (w *warehouse) int(ctx context.Context, text string) (int64, error) {
	conn, giveBack, err := w.conn(ctx)
	if err != nil {
		return 0, err
	}
	defer giveBack()
	var v sql.NullInt64
	if err := conn.QueryRowContext(ctx, text).Scan(&v); err != nil {
		return 0, w.noted(fmt.Errorf("query warehouse: %w", err))
	}
	return v.Int64, nil
}

// checkpoint writes everything into the file itself. It reports whether the
// write-ahead log is empty afterwards, so that nothing depends on it.
func (w *warehouse) checkpoint(ctx context.Context) (clean bool, err error) {
	w.writes.Lock()
	defer w.writes.Unlock()
	conn, giveBack, err := w.conn(ctx)
	if err != nil {
		return false, err
	}
	defer giveBack()
	if _, err := conn.ExecContext(ctx, "CHECKPOINT"); err != nil {
		return false, w.noted(fmt.Errorf("checkpoint warehouse: %w", err))
	}
	info, err := os.Stat(w.path + ".wal")
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("checkpoint warehouse: %w", err)
	}
	return info.Size() == 0, nil
}
