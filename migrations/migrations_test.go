package migrations

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"testing/fstest"

	_ "github.com/duckdb/duckdb-go/v2" // the "duckdb" driver
	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the "sqlite" driver
)

// each runs a test on both kinds of database.
func each(t *testing.T, do func(t *testing.T, open func() *sql.DB, up func(*sql.DB, func()) error)) {
	for driver, up := range map[string]func(*sql.DB, func()) error{"sqlite": Control, "duckdb": Warehouse} {
		t.Run(driver, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			do(t, func() *sql.DB {
				db, err := sql.Open(driver, path)
				require.NoError(t, err)
				t.Cleanup(func() { _ = db.Close() }) // some tests close it earlier
				if driver == "duckdb" {
					standIn(t, db)
				}
				return db
			}, up)
		})
	}
}

// standIn makes macros of the names and types of the functions that the
// warehouse's views are made of: those belong to the store, which is above.
func standIn(t *testing.T, db *sql.DB) {
	t.Helper()
	for function, result := range map[string]string{
		"ice_tape_ids(a, b, c)": "INTEGER[]", "ice_trace_logprobs(a, b)": "FLOAT[]",
		"ice_body_request(a, b)": "VARCHAR", "ice_body_response(a, b)": "VARCHAR",
		"ice_row_ids(a, b, c, d, e)": "INTEGER[]", "ice_row_mask(a, b, c, d, e)": "TINYINT[]",
		"ice_row_logprobs(a, b, c, d, e)": "FLOAT[]",
		"ice_row_spans(a, b, c, d, e)":    `STRUCT(trace_id VARCHAR, start INTEGER, "end" INTEGER, trainable BOOLEAN, policy_version BIGINT)[]`,
	} {
		_, err := db.Exec("CREATE OR REPLACE MACRO " + function + " AS NULL::" + result)
		require.NoError(t, err)
	}
}

func TestUpTwiceIsUpOnce(t *testing.T) {
	each(t, func(t *testing.T, open func() *sql.DB, up func(*sql.DB, func()) error) {
		db := open()
		require.NoError(t, up(db, nil))
		calls := 0
		require.NoError(t, up(db, func() { calls++ }))
		require.Zero(t, calls, "nothing is left to run")
	})
}

// A migration that ends halfway has not happened, and the next start does it.
func TestHalfAMigrationIsNone(t *testing.T) {
	each(t, func(t *testing.T, open func() *sql.DB, up func(*sql.DB, func()) error) {
		db := open()
		func() {
			defer func() { require.Equal(t, "dies here", recover()) }()
			_ = up(db, func() { panic("dies here") })
		}()
		var tables int
		require.NoError(t, db.Close())
		db = open()
		require.NoError(t, db.QueryRow(`SELECT count(*) FROM schema_version`).Scan(&tables))
		require.Zero(t, tables)
		require.NoError(t, up(db, nil))
	})
}

func TestNewerDatabaseIsNotTouched(t *testing.T) {
	each(t, func(t *testing.T, open func() *sql.DB, up func(*sql.DB, func()) error) {
		db := open()
		require.NoError(t, up(db, nil))
		_, err := db.Exec(`INSERT INTO schema_version VALUES (4711)`)
		require.NoError(t, err)
		require.ErrorIs(t, up(db, nil), ErrNewer)
	})
}

// Who only looks is told what is wrong with the schema.
func TestLookingNeedsTheSchemaOfToday(t *testing.T) {
	each(t, func(t *testing.T, open func() *sql.DB, up func(*sql.DB, func()) error) {
		db := open()
		require.NoError(t, up(db, nil))
		isCurrent := ControlIsCurrent
		if db.QueryRow(`SELECT 1 FROM duckdb_databases() LIMIT 1`).Err() == nil {
			isCurrent = WarehouseIsCurrent
		}
		require.NoError(t, isCurrent(db))
		_, err := db.Exec(`INSERT INTO schema_version VALUES (4711)`)
		require.NoError(t, err)
		require.ErrorIs(t, isCurrent(db), ErrNewer)
		_, err = db.Exec(`DELETE FROM schema_version WHERE version > 1`)
		require.NoError(t, err)
		require.ErrorIs(t, isCurrent(db), ErrOlder)
	})
}

// A migration with a fault leaves the ones before it in place and nothing of
// itself.
func TestFaultyMigrationRollsBack(t *testing.T) {
	each(t, func(t *testing.T, open func() *sql.DB, _ func(*sql.DB, func()) error) {
		db := open()
		run := func(second string) error {
			source, err := iofs.New(fstest.MapFS{
				"m/0001_one.up.sql": {Data: []byte(`CREATE TABLE one (a INTEGER)`)},
				"m/0002_two.up.sql": {Data: []byte(second)},
			}, "m")
			require.NoError(t, err)
			d, err := newDriver(db, nil)
			require.NoError(t, err)
			m, err := migrate.NewWithInstance("iofs", source, "m", d)
			require.NoError(t, err)
			return m.Up()
		}
		require.Error(t, run(`CREATE TABLE two (a INTEGER); CREATE TABLE one (a INTEGER)`))
		_, err := db.Exec(`SELECT * FROM two`)
		require.Error(t, err)
		require.NoError(t, run(`CREATE TABLE two (a INTEGER)`))
		require.True(t, errors.Is(run(`CREATE TABLE two (a INTEGER)`), migrate.ErrNoChange))
	})
}
