package warehouse

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/duckdb/duckdb-go/v2"

	"icecore/migrations"
)

// lockPatience is how long Open waits for another process to let the file go: a
// child whose server was killed ends by itself, but not before it is scheduled.
const lockPatience = 10 * time.Second

// Open opens or makes the file, sets what must hold for every connection, and
// migrates. The error is ErrUnreadable when the file is at fault.
func Open(path string, o Options) (*Engine, error) {
	spill, err := spillDir(o.TempDir, path)
	if err == nil {
		err = sweepSpill(spill)
	}
	if err != nil {
		return nil, fmt.Errorf("open warehouse %s: %w", path, err)
	}
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
	spill, err := spillDir(o.TempDir, path)
	if err != nil {
		return nil, err
	}
	limit, err := o.spillLimit()
	if err != nil {
		return nil, err
	}
	// DuckDB makes the last directory only. Where this fails, whatever has to
	// spill will say so.
	_ = os.MkdirAll(o.TempDir, 0o755)
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
		fmt.Sprintf("SET temp_directory = '%s'", strings.ReplaceAll(spill, "'", "''")),
		fmt.Sprintf("SET max_temp_directory_size = '%dMiB'", limit/mib),
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
	text := strings.ToLower(err.Error())
	for _, other := range []string{"could not set lock", "permission denied", "no space left", "disk quota exceeded",
		"out of memory", "cannot allocate memory", "bad allocation", "bad_alloc", "resource temporarily unavailable",
		"is a directory", "read-only file system", "too many open files", "newer version", "version number"} {
		if strings.Contains(text, other) {
			return false
		}
	}
	return true
}
