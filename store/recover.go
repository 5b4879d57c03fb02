package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"icecore/store/warehouse"
)

// openWarehouse opens the DuckDB file. When the file, or its write-ahead log,
// cannot be read, or kills the process that opens it, that part is set aside
// with a report and the start goes on: whatever was not checkpointed is still in
// the journal. A fault that another start could not repair either (no
// permission, no space, a newer version) is returned instead.
func (s *Store) openWarehouse(ctx context.Context) (setAside bool, err error) {
	path := filepath.Join(s.opts.Dir, warehouseFile)
	// The log goes aside first, then the file: after both there is nothing left
	// that could be at fault.
	for tries := 0; ; tries++ {
		w, err := s.open(ctx, path)
		if err == nil {
			s.warehouse = w
			return setAside, nil
		}
		if tries == 2 || !errors.Is(err, warehouse.ErrUnreadable) {
			return false, err
		}
		aside, asideErr := s.setAside(path, err)
		if asideErr != nil {
			return false, errors.Join(err, asideErr)
		}
		setAside = setAside || aside
	}
}

// open opens the warehouse in this process, or in one of its own.
func (s *Store) open(ctx context.Context, path string) (waist, error) {
	o := s.opts.engine()
	if s.opts.Warehouse == nil {
		return warehouse.Open(path, o)
	}
	return warehouse.Start(ctx, path, o, warehouse.ChildOptions{Command: s.opts.Warehouse, Log: s.log,
		Patience: s.opts.WarehousePatience, MaxMemory: s.opts.ChildMemory, AskGrace: s.opts.AskGrace,
		Behind: func() bool { return s.drainer != nil && s.drainer.behind() }, OnRestart: s.metrics.restarted})
}

// engine is what DuckDB may have.
func (o Options) engine() warehouse.Options {
	return warehouse.Options{MemoryLimit: o.MemoryLimit, Threads: o.Threads, TempDir: o.TempDir,
		SpillLimit: o.SpillLimit, DiskFloor: o.DiskFloor, Functions: Functions()}
}

// setAside moves the write-ahead log out of the way, or, when there is none,
// the file itself, and writes a report beside it. whole says that the file
// itself went.
func (s *Store) setAside(path string, cause error) (whole bool, err error) {
	stamp := time.Now().UTC().Format("20060102T150405.000000000Z")
	what := path + ".wal"
	if info, err := os.Stat(what); err != nil || info.Size() == 0 {
		if _, err := os.Stat(path); err != nil {
			return false, fmt.Errorf("open warehouse: there is no file to set aside: %w", cause)
		}
		what, whole = path, true
	}
	if whole {
		// Should this process die before it has rebuilt the index, the next one
		// would find no trace of the file.
		if err := s.markRebuilding(context.Background(), true); err != nil {
			return whole, err
		}
	}
	to := what + ".aside-" + stamp
	if err := os.Rename(what, to); err != nil {
		return false, fmt.Errorf("set %s aside: %w", what, err)
	}
	// What DuckDB writes beside its log during a checkpoint belongs to that log.
	for _, end := range []string{".wal.checkpoint", ".wal.recovery"} {
		if err := os.Rename(path+end, to+end); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, fmt.Errorf("set %s aside: %w", path+end, err)
		}
	}
	consequence := "The batches it held are still in the journal and are drained again."
	if whole {
		consequence = "Traces that were in it are no longer known to this server; sending them again stores them again. " +
			"Those still in the journal are drained into the new file."
	}
	report := fmt.Sprintf("%s could not be read and was moved to %s.\nCause: %v\n%s\n", what, to, cause, consequence)
	if err := os.WriteFile(to+".report.txt", []byte(report), 0o644); err != nil {
		return false, fmt.Errorf("report what was set aside: %w", err)
	}
	s.report = report
	s.log.Error("warehouse set aside", "what", what, "to", to, "cause", cause)
	return whole, nil
}

// recover brings the control database in step with a warehouse that is not the
// one it knew.
func (s *Store) recover(ctx context.Context, setAside bool) error {
	drained, err := s.wh().Int(ctx, `SELECT max(last_batch) FROM ice.drains`)
	if err != nil {
		return err
	}
	next, err := metaOn(ctx, s.control.write, "next_batch")
	if err != nil {
		return err
	}
	rebuilding, err := metaOn(ctx, s.control.write, "rebuilding")
	if err != nil {
		return err
	}
	gap, err := s.gap(ctx, drained, next)
	if err != nil {
		return err
	}
	switch {
	case setAside || s.opts.RebuildIndex || rebuilding != 0:
		return s.rebuild(ctx, gap || setAside || rebuilding == rebuildingLost, drained >= max(next, 1))
	case drained >= max(next, 1):
		return fmt.Errorf("open store: the warehouse holds batch %d, but the control database has given out only %d: "+
			"%s is not the one that belongs to %s; put the right one back, or start once with --rebuild-index",
			drained, next-1, controlFile, warehouseFile)
	case gap:
		return fmt.Errorf("open store: the warehouse holds batches up to %d only, and the journal begins after that: "+
			"%s is missing or older than %s; put the right one back, or start once with --rebuild-index: "+
			"the traces that only it held are then no longer known, and can be sent again",
			drained, warehouseFile, controlFile)
	}
	return nil
}

// gap says whether batches are missing between what the warehouse holds and
// what the journal holds.
func (s *Store) gap(ctx context.Context, drained, next int64) (bool, error) {
	lost, err := metaOn(ctx, s.control.write, "lost_through")
	if err != nil {
		return false, err
	}
	var oldest sql.NullInt64
	if err := s.control.write.QueryRowContext(ctx, `SELECT min(batch) FROM journal`).Scan(&oldest); err != nil {
		return false, fmt.Errorf("read journal: %w", err)
	}
	if !oldest.Valid {
		oldest.Int64 = max(next, 1)
	}
	return oldest.Int64 > max(drained, lost)+1, nil
}
