// Package migrations brings both databases to the schema this binary knows.
//
// golang-migrate orders the numbered files; the driver here is ours because the
// stock SQLite driver leaves a database dirty when the process dies halfway, and
// DuckDB has none. Both databases roll DDL back, so one driver serves both: it
// keeps a migration and its version number in one transaction, and a migration
// that was killed has simply not happened.
package migrations

import (
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

//go:embed control/*.sql warehouse/*.sql
var files embed.FS

// ErrNewer says that the database was written by a newer icecore.
var ErrNewer = errors.New("the database has a newer schema than this icecore knows")

// ErrOlder says that the database was written by an older icecore.
var ErrOlder = errors.New("the database has the schema of an older icecore")

// Control migrates the control database (SQLite). hook, which may be nil, is
// called inside each migration's transaction; tests use it to die there.
func Control(db *sql.DB, hook func()) error { return up(db, "control", hook) }

// Warehouse migrates the warehouse (DuckDB); hook as for Control.
func Warehouse(db *sql.DB, hook func()) error { return up(db, "warehouse", hook) }

func up(db *sql.DB, dir string, hook func()) error {
	source, err := iofs.New(files, dir)
	if err != nil {
		return fmt.Errorf("read %s migrations: %w", dir, err)
	}
	newest, err := newestVersion(dir)
	if err != nil {
		return err
	}
	d, err := newDriver(db, hook)
	if err != nil {
		return fmt.Errorf("migrate the %s database: %w", dir, err)
	}
	defer d.rollback()
	if v, _, err := d.Version(); err != nil {
		return fmt.Errorf("migrate the %s database: %w", dir, err)
	} else if v > newest {
		return fmt.Errorf("migrate the %s database: %w (version %d, newest known %d): start a newer icecore", dir, ErrNewer, v, newest)
	}
	m, err := migrate.NewWithInstance("iofs", source, dir, d)
	if err != nil {
		return fmt.Errorf("migrate the %s database: %w", dir, err)
	}
	if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return fmt.Errorf("migrate the %s database: %w", dir, err)
	}
	return nil
}

// ControlIsCurrent and WarehouseIsCurrent say whether a database that is only looked at
// has the schema that this binary knows; the error wraps ErrOlder or ErrNewer.
func ControlIsCurrent(db *sql.DB) error { return current(db, "control") }

// WarehouseIsCurrent is ControlIsCurrent for the other database.
func WarehouseIsCurrent(db *sql.DB) error { return current(db, "warehouse") }

func current(db *sql.DB, dir string) error {
	newest, err := newestVersion(dir)
	if err != nil {
		return err
	}
	d := driver{db: db}
	v, _, err := d.Version()
	switch {
	case err != nil:
		return fmt.Errorf("look at the %s database: %w", dir, err)
	case v < newest:
		return fmt.Errorf("look at the %s database: %w (version %d, this one writes %d): let icecore serve open the directory once", dir, ErrOlder, v, newest)
	case v > newest:
		return fmt.Errorf("look at the %s database: %w (version %d, newest known %d): use a newer icecore", dir, ErrNewer, v, newest)
	}
	return nil
}

func newestVersion(dir string) (int, error) {
	entries, err := files.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("read %s migrations: %w", dir, err)
	}
	newest := 0
	for _, e := range entries {
		var v int
		if _, err := fmt.Sscanf(e.Name(), "%d_", &v); err != nil {
			return 0, fmt.Errorf("read %s migrations: %s has no number: %w", dir, e.Name(), err)
		}
		newest = max(newest, v)
	}
	return newest, nil
}
