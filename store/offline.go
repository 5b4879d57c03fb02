package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"icecore/migrations"
	"icecore/store/warehouse"
)

// Offline opens the databases of a data directory that no server uses, to be
// looked at: nothing is migrated, recovered or drained. It holds the
// directory's lock until close is called.
func Offline(ctx context.Context, dir, owner string) (control, inProcess *sql.DB, drained int64, closeAll func() error, err error) {
	for _, name := range []string{controlFile, warehouseFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return nil, nil, 0, nil, fmt.Errorf("open %s: it is no data directory of icecore: %w", dir, err)
		}
	}
	lock, err := lockDir(dir, owner)
	if err != nil {
		return nil, nil, 0, nil, err
	}
	c, err := openControl(filepath.Join(dir, controlFile))
	if err != nil {
		return nil, nil, 0, nil, errors.Join(err, lock.release())
	}
	o := Options{Dir: dir, TempDir: filepath.Join(dir, "tmp")}.withDefaults()
	engine := o.engine()
	engine.AsItIs = true
	w, err := warehouse.Open(filepath.Join(dir, warehouseFile), engine)
	if err != nil {
		return nil, nil, 0, nil, errors.Join(err, c.close(), lock.release())
	}
	closeAll = func() error { return errors.Join(w.Close(), c.close(), lock.release()) }
	if err := errors.Join(migrations.ControlIsCurrent(c.read), migrations.WarehouseIsCurrent(w.DB())); err != nil {
		return nil, nil, 0, nil, errors.Join(err, closeAll())
	}
	if drained, err = w.Int(ctx, `SELECT max(last_batch) FROM ice.drains`); err != nil {
		return nil, nil, 0, nil, errors.Join(err, closeAll())
	}
	return c.read, w.DB(), drained, closeAll, nil
}
