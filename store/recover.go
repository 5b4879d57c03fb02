package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"icecore/migrations"
)

// openWarehouse opens the DuckDB file. When the file, or its write-ahead log,
// cannot be read, that part is set aside with a report and the start goes on:
// whatever was not checkpointed is still in the journal. A fault that another
// start could not repair either (no permission, no space, a newer version) is
// returned instead.
func (s *Store) openWarehouse(hook func()) (setAside bool, err error) {
	path := filepath.Join(s.opts.Dir, warehouseFile)
	marker := path + ".opening"
	if _, err := os.Stat(marker); err == nil && s.opts.Probe != nil {
		// The last start died while opening. DuckDB can take the process down
		// when it replays a log, so let another process try first.
		if err := s.opts.Probe(path); err != nil {
			s.log.Error("an earlier start died while opening the warehouse, and so did a probe", "err", err)
			if aside, err := s.setAside(path, err); err != nil || aside {
				setAside = setAside || aside
				if err != nil {
					return false, err
				}
			}
		}
	}
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		return false, fmt.Errorf("open warehouse: %w", err)
	}
	// The log goes aside first, then the file: after both there is nothing left
	// that could be at fault.
	for tries := 0; ; tries++ {
		w, err := openWarehouse(path, s.opts)
		if err == nil {
			if err := migrations.Warehouse(w.db, hook); err != nil {
				return false, errors.Join(err, w.close(), removeIfThere(marker))
			}
			s.warehouse = w
			return setAside, removeIfThere(marker)
		}
		if tries == 2 || !unreadable(err) {
			return false, errors.Join(err, removeIfThere(marker))
		}
		aside, asideErr := s.setAside(path, err)
		if asideErr != nil {
			return false, errors.Join(err, asideErr)
		}
		setAside = setAside || aside
	}
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

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// recover brings the control database in step with a warehouse that is not the
// one it knew.
func (s *Store) recover(ctx context.Context, setAside bool) error {
	drained, err := s.wh().int(ctx, `SELECT max(last_batch) FROM ice.drains`)
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

// Probe opens a warehouse file and closes it again. Run it in a process of its
// own: replaying a damaged log can take the process down.
func Probe(ctx context.Context, path string) error {
	o := Options{TempDir: filepath.Join(filepath.Dir(path), "tmp")}.withDefaults()
	w, err := openWarehouse(path, o)
	if err != nil {
		return err
	}
	if _, err := w.int(ctx, `SELECT 1`); err != nil {
		return errors.Join(err, w.close())
	}
	return w.close()
}
