package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/golang-migrate/migrate/v4/database"
)

// driver is a golang-migrate database driver for any database/sql database
// whose DDL rolls back. golang-migrate calls SetVersion(v, dirty), Run,
// SetVersion(v, clean) for each file: the transaction opens at the first and
// commits at the last.
type driver struct {
	db   *sql.DB
	tx   *sql.Tx
	hook func()
}

func newDriver(db *sql.DB, hook func()) (*driver, error) {
	_, err := db.ExecContext(context.Background(),
		`CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)`)
	if err != nil {
		return nil, fmt.Errorf("create schema_version: %w", err)
	}
	return &driver{db: db, hook: hook}, nil
}

// Version implements database.Driver. It is never dirty.
func (d *driver) Version() (int, bool, error) {
	var v sql.NullInt64
	err := d.db.QueryRowContext(context.Background(), `SELECT max(version) FROM schema_version`).Scan(&v)
	if err != nil {
		return 0, false, fmt.Errorf("read schema_version: %w", err)
	}
	if !v.Valid {
		return database.NilVersion, false, nil
	}
	return int(v.Int64), false, nil
}

// SetVersion implements database.Driver.
func (d *driver) SetVersion(version int, dirty bool) error {
	ctx := context.Background()
	if dirty {
		tx, err := d.db.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("begin migration %d: %w", version, err)
		}
		d.tx = tx
		return nil
	}
	if d.tx == nil {
		return errors.New("migration ended without having begun")
	}
	if _, err := d.tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO schema_version VALUES (%d)`, version)); err != nil {
		return fmt.Errorf("record migration %d: %w", version, err)
	}
	if d.hook != nil {
		d.hook()
	}
	err := d.tx.Commit()
	d.tx = nil
	if err != nil {
		return fmt.Errorf("commit migration %d: %w", version, err)
	}
	return nil
}

// Run implements database.Driver.
func (d *driver) Run(migration io.Reader) error {
	text, err := io.ReadAll(migration)
	if err != nil {
		return fmt.Errorf("read migration: %w", err)
	}
	if _, err := d.tx.ExecContext(context.Background(), string(text)); err != nil {
		d.rollback()
		return fmt.Errorf("run migration: %w", err)
	}
	return nil
}

func (d *driver) rollback() {
	if d.tx != nil {
		_ = d.tx.Rollback() // the error that led here is the one to report
		d.tx = nil
	}
}

// Lock implements database.Driver: the data directory's lock already keeps
// other processes out.
func (d *driver) Lock() error { return nil }

// Unlock implements database.Driver.
func (d *driver) Unlock() error { return nil }

// Open implements database.Driver; drivers are made by newDriver only.
func (d *driver) Open(string) (database.Driver, error) {
	return nil, errors.New("open by URL is not supported")
}

// Close implements database.Driver; the database belongs to the caller.
func (d *driver) Close() error { return nil }

// Drop implements database.Driver; icecore never drops a database.
func (d *driver) Drop() error { return errors.New("drop is not supported") }
