package warehouse

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

// Statements that would read or change what is not theirs. Every one is refused
// before DuckDB has bound it; FILE stands for a file that is there.
func TestAttacksAreRefused(t *testing.T) {
	t.Parallel()
	e := asked(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "a.csv")
	require.NoError(t, os.WriteFile(file, []byte("secret\nswordfish\n"), 0o600))
	before := footprint(t, e, dir)
	for group, statements := range map[string][]string{
		"files": {
			`FROM 'FILE'`, `FROM "FILE"`, `SELECT * FROM 'FILE' t(a)`, `FROM ['FILE']`, `TABLE "FILE"`,
			`FROM read_csv('FILE')`, `FROM read_csv_auto('FILE')`, `FROM read_text('FILE')`, `FROM read_blob('FILE')`,
			`FROM read_parquet('FILE')`, `FROM parquet_scan('FILE')`, `FROM read_json('FILE')`, `FROM read_ndjson_objects('FILE')`,
			`FROM glob('/*')`, `FROM sniff_csv('FILE')`, `FROM parquet_metadata('FILE')`, `FROM parquet_schema('FILE')`,
			`FROM read_duckdb('FILE')`, `FROM main.read_csv('FILE')`, `FROM system.main.read_csv('FILE')`,
			`SELECT (SELECT secret FROM 'FILE')`, `WITH a AS (FROM 'FILE') FROM a`, `WITH "FILE" AS (FROM "FILE") FROM "FILE"`,
			`SELECT * FROM traces, LATERAL (FROM 'FILE')`, `SELECT count(*) FROM traces WHERE EXISTS (FROM 'FILE')`,
			`FROM traces UNION ALL FROM 'FILE'`, `FROM (VALUES ((SELECT secret FROM 'FILE')))`, `DESCRIBE 'FILE'`, `SUMMARIZE 'FILE'`,
			`SHOW 'FILE'`, `PIVOT 'FILE' ON secret IN (1) USING count(*)`, `UNPIVOT 'FILE' ON secret INTO NAME n VALUE v`,
			`SELECT ('FILE').read_text()`, `SELECT getenv('HOME')`,
			`COPY (SELECT 1) TO 'FILE'`, `COPY main.secrets FROM 'FILE'`, `COPY main.secrets TO 'FILE'`, `EXPORT DATABASE 'FILE.d'`,
			`IMPORT DATABASE 'FILE.d'`, `ATTACH 'FILE' AS x`, `ATTACH ':memory:' AS x`, `DETACH warehouse`, `USE main`,
			`COPY FROM DATABASE warehouse TO x`,
		},
		"network": {
			`FROM 's3://bucket/a.parquet'`, `FROM 'https://example.com/a.csv'`, `FROM read_csv('http://localhost/a')`,
			`INSTALL httpfs`, `LOAD httpfs`, `LOAD 'FILE'`, `FORCE INSTALL httpfs FROM community`, `UPDATE EXTENSIONS`,
			`ATTACH 'postgres://localhost/x' AS x (TYPE postgres)`, `CREATE SECRET s (TYPE s3)`, `FROM duckdb_secrets()`,
			`FROM which_secret('s3://x', 's3')`, `SELECT inet_server_addr()`,
		},
		"settings": {
			`SET threads = 1`, `SET GLOBAL memory_limit = '1TB'`, `RESET threads`, `SET VARIABLE a = 1`, `SET SCHEMA hidden`,
			`PRAGMA threads = 1`, `PRAGMA show_tables`, `PRAGMA database_list`, `PRAGMA enable_profiling`, `PRAGMA version`,
			`CALL pragma_version()`, `CALL enable_logging()`, `SELECT current_setting('temp_directory')`, `SELECT getvariable('a')`,
			`FROM duckdb_settings()`, `FROM pragma_database_size()`, `SELECT version()`, `SELECT current_database()`,
			`SELECT current_query()`, `SELECT txid_current()`, `SELECT get_block_size('warehouse')`, `SELECT setseed(0.5)`,
		},
		"what a SELECT can do": {
			`FROM checkpoint()`, `FROM force_checkpoint()`, `SELECT checkpoint()`, `FROM enable_logging()`, `FROM disable_logging()`,
			`FROM enable_profiling()`, `SELECT write_log('x')`, `FROM truncate_duckdb_logs()`, `FROM duckdb_logs`,
			`SELECT nextval('hidden.numbers')`, `SELECT currval('hidden.numbers')`, `SELECT sleep_ms(1000)`, `SELECT pg_sleep(1)`,
			`FROM query('FROM hidden.calls')`, `FROM query_table('hidden.calls')`, `FROM query_table(['traces', 'secrets'])`,
			`FROM json_execute_serialized_sql('{}')`, `SELECT json_serialize_plan('FROM hidden.calls')`,
			`SELECT json_serialize_sql('SELECT 1')`, `FROM histogram(secrets, s)`, `FROM histogram_values(secrets, s)`,
			`FROM summary(traces)`, `FROM seq_scan(secrets)`, `FROM arrow_scan(1, 2, 3)`, `SELECT sum(1) EXPORT_STATE`,
			`SELECT finalize('x'::BLOB)`, `FROM sql_auto_complete('SELECT ')`, `FROM enable_peg_parser()`, `FROM test_all_types()`,
			`SELECT __internal_decompress_string(1)`, `SELECT stats(seq) FROM traces`,
		},
		"writing": {
			`CREATE TABLE x (a INTEGER)`, `CREATE TEMP TABLE x AS SELECT 1`, `CREATE OR REPLACE TEMP VIEW traces AS SELECT 1`,
			`CREATE VIEW x AS SELECT 1`, `CREATE MACRO m(a) AS a`, `CREATE TEMP MACRO abs(a) AS a`, `CREATE TYPE x AS ENUM ('a')`,
			`CREATE SEQUENCE x`, `CREATE SCHEMA x`, `CREATE INDEX x ON main.secrets (s)`, `DROP TABLE main.secrets`,
			`DROP SCHEMA hidden CASCADE`, `ALTER TABLE main.secrets ADD COLUMN b INTEGER`, `INSERT INTO main.secrets VALUES ('x')`,
			`UPDATE main.secrets SET s = 'x'`, `DELETE FROM main.secrets`, `TRUNCATE main.secrets`, `VACUUM`, `ANALYZE`, `CHECKPOINT`,
			`FORCE CHECKPOINT`, `COMMENT ON TABLE main.secrets IS 'x'`, `SELECT 1 INTO x`,
			`MERGE INTO main.secrets USING traces ON true WHEN MATCHED THEN DELETE`,
			`WITH x AS (DELETE FROM main.secrets RETURNING *) FROM x`, `WITH x AS (INSERT INTO main.secrets VALUES ('x')) SELECT 1`,
			`FROM (INSERT INTO main.secrets VALUES ('x') RETURNING *)`,
			`EXPLAIN DELETE FROM main.secrets`, `EXPLAIN ANALYZE DELETE FROM main.secrets`, `EXPLAIN SELECT 1`,
			`PREPARE p AS DELETE FROM main.secrets`, `EXECUTE p`, `DEALLOCATE p`, `BEGIN`, `COMMIT`, `ROLLBACK`,
			`PIVOT traces ON harness USING count(*)`,
		},
		"several": {
			`SELECT 1; DROP TABLE main.secrets`, `SELECT 1; SELECT 2`, `; DROP TABLE main.secrets`, `SELECT 1;/**/;DROP TABLE main.secrets;`,
			"SELECT 1 -- x\n; DELETE FROM main.secrets", "SELECT '\u037e'; DELETE FROM main.secrets", "SELECT 1\u00a0;\u3000COMMIT",
			`COMMIT; DROP TABLE main.secrets`, `ROLLBACK; DROP TABLE main.secrets; BEGIN`, "SELECT $$;$$; COMMIT",
			"SELECT 1\x00; DROP TABLE main.secrets", `EXPLAIN SELECT 1; DROP TABLE main.secrets`,
		},
		"other tables": {
			`FROM hidden.calls`, `FROM secrets`, `FROM main.secrets`, `FROM warehouse.main.secrets`, `FROM warehouse.traces`,
			`FROM "hidden"."calls"`, `FROM HIDDEN.CALLS`, `SELECT hidden.calls FROM hidden.calls`, `DESCRIBE hidden.calls`,
			`SUMMARIZE hidden.calls`, `SHOW TABLES`, `SHOW ALL TABLES`, `SHOW DATABASES`, `DESCRIBE`, `SHOW TABLES FROM hidden`,
			`FROM information_schema.tables`, `FROM pg_catalog.pg_class`, `FROM pg_tables`, `FROM sqlite_master`, `FROM duckdb_tables`,
			`FROM duckdb_tables()`, `FROM duckdb_views()`, `FROM duckdb_functions()`, `FROM duckdb_columns`, `FROM system.information_schema.columns`,
			`FROM pragma_table_info('secrets')`, `FROM pragma_storage_info('secrets')`, `FROM pg_timezone_names()`,
			`SELECT pg_get_viewdef(1)`, `FROM schema_version`, `FROM temp.main.x`, `FROM traces AT (VERSION => 1)`,
			`WITH a AS (FROM hidden.calls) FROM a`, `WITH calls AS (SELECT 1) FROM hidden.calls`,
			`WITH RECURSIVE a AS (SELECT 1 i UNION ALL SELECT i FROM a, hidden.calls) FROM a`,
			`FROM traces POSITIONAL JOIN hidden.calls`, `FROM traces ASOF JOIN secrets USING (a)`, `FROM traces SEMI JOIN secrets USING (a)`,
			`SELECT COLUMNS(c -> (SELECT true FROM secrets)) FROM traces`, `SELECT list_transform([1], x -> (SELECT s FROM secrets))`,
			`FROM traces ORDER BY (SELECT s FROM secrets)`, `FROM traces LIMIT (SELECT count(*) FROM secrets)`,
			`SELECT sum(1) FILTER (EXISTS (FROM secrets))`, `SELECT * REPLACE ((SELECT s FROM secrets) AS seq) FROM traces`,
			`FROM unnest((SELECT list(s) FROM secrets))`, `SELECT 1 QUALIFY (SELECT true FROM secrets)`,
			`SELECT 1 GROUP BY (SELECT s FROM secrets)`, `SELECT ARRAY(SELECT s FROM secrets)`,
			`SELECT 'a' = ANY (SELECT s FROM secrets)`,
			`SELECT sum(1) OVER w FROM traces WINDOW w AS (ORDER BY (SELECT s FROM secrets))`,
		},
	} {
		for _, statement := range statements {
			statement = strings.ReplaceAll(statement, "FILE", file)
			_, _, err := answer(t.Context(), e, Ask{SQL: statement})
			var fault *Fault
			require.ErrorAs(t, err, &fault, "%s: %s", group, statement)
			require.Contains(t, []string{FaultRefused, FaultSyntax, FaultBinding}, fault.Code, "%s: %s: %s", group, statement, fault)
			require.NotContains(t, fault.Message, "swordfish")
		}
	}
	require.Equal(t, before, footprint(t, e, dir))
}

// footprint is what the attacks could change.
func footprint(t *testing.T, e *Engine, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := fmt.Sprint(len(entries))
	for _, q := range []string{
		`SELECT string_agg(concat_ws('.', database_name, schema_name, table_name, estimated_size), ',' ORDER BY concat_ws('.', database_name, schema_name, table_name, estimated_size)) FROM duckdb_tables()`,
		`SELECT string_agg(concat_ws('.', database_name, schema_name, view_name, sql), ',' ORDER BY concat_ws('.', database_name, schema_name, view_name, sql)) FROM duckdb_views()`,
		`SELECT count(*)::VARCHAR FROM duckdb_functions()`,
		`SELECT string_agg(concat_ws('.', name, value), ',' ORDER BY concat_ws('.', name, value)) FROM duckdb_settings()`,
		`SELECT string_agg(concat_ws('.', sequence_name, last_value), ',' ORDER BY concat_ws('.', sequence_name, last_value)) FROM duckdb_sequences()`,
		`SELECT string_agg(database_name, ',' ORDER BY database_name) FROM duckdb_databases()`,
		`SELECT count(*)::VARCHAR FROM main.secrets`,
	} {
		var text any
		require.NoError(t, e.db.QueryRowContext(t.Context(), q).Scan(&text), q)
		out += fmt.Sprintf("\n%v", text)
	}
	return out
}

// Behind the sandbox stand DuckDB's own locks: what passed it all the same could
// neither reach a file nor change anything.
func TestLocksBehindTheSandbox(t *testing.T) {
	t.Parallel()
	e := asked(t)
	file := filepath.Join(t.TempDir(), "a.csv")
	require.NoError(t, os.WriteFile(file, []byte("a\n1\n"), 0o600))
	for _, statement := range []string{
		`SELECT * FROM read_csv('` + file + `')`, `SELECT * FROM '` + file + `'`, `SELECT * FROM glob('` + file + `')`,
		`INSERT INTO main.secrets VALUES ('x')`, `CREATE TABLE main.x (a INTEGER)`,
		`SET threads = 1`, `SET enable_external_access = true`, `SET lock_configuration = false`,
		`LOAD httpfs`, `INSTALL httpfs`, `ATTACH '` + file + `' AS x`, `SELECT nextval('hidden.numbers')`,
	} {
		err := e.Query(t.Context(), func(arrow.RecordBatch) error { return nil }, statement)
		require.Error(t, err, statement)
	}
}

// Under the locks everything of ours works: appends, checkpoints, and spilling.
func TestLockedDownEngineWorks(t *testing.T) {
	t.Parallel()
	e := asked(t)
	require.NoError(t, lockdown(t.Context(), e.db), "twice is the same as once")
	require.NoError(t, e.Apply(t.Context(), nil, nil, `CREATE TABLE hidden.numbers2 AS SELECT range AS i FROM range(1000000)`))
	clean, err := e.Checkpoint(t.Context())
	require.NoError(t, err)
	require.True(t, clean)
	// 400 MB to sort in 256 MiB.
	_, reply, err := answer(t.Context(), e, Ask{SQL: `SELECT i, s FROM (SELECT range AS i, repeat(md5(range::VARCHAR), 8) AS s
		FROM range(1500000)) ORDER BY s`, MaxRows: 10})
	require.NoError(t, err)
	require.EqualValues(t, 10, reply.Rows)
}

func TestAskNeedsTheLocks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e, err := Open(filepath.Join(dir, "w.duckdb"), testOptions(dir))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	var locked bool
	require.NoError(t, e.db.QueryRowContext(t.Context(), `SELECT current_setting('lock_configuration')`).Scan(&locked))
	_, _, err = answer(t.Context(), e, Ask{SQL: `SELECT 1`})
	require.Equal(t, locked, err == nil, "%v", err)
}

// What is very large or very deep is answered or refused soon, and never ends the
// process. DuckDB takes minutes to plan a sum of 900, so the sandbox's own bound is
// lower than DuckDB's.
func TestBombs(t *testing.T) {
	t.Parallel()
	e := asked(t)
	times := strings.Repeat
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, sql := range map[string]string{
		"parentheses": `SELECT ` + times("(", 10_000) + `1` + times(")", 10_000),
		"sum":         `SELECT 1` + times(" + 1", 100_000),
		"short sum":   `SELECT 1` + times(" + 1", 400),
		"flat":        `SELECT coalesce(1` + times(", 1", 10_000) + `)`,
		"not":         `SELECT ` + times("NOT ", 100_000) + `true`,
		"and":         `SELECT true` + times(" AND true", 10_000),
		"in":          `SELECT 1 IN (0` + times(", 1", 10_000) + `)`,
		"lists":       `SELECT ` + times("[", 10_000) + `1` + times("]", 10_000),
		"types":       `SELECT 1::INTEGER` + times("[]", 10_000),
		"joins":       `SELECT count(*) FROM traces` + times(" JOIN traces USING (trace_id)", 1000),
		"crosses":     `SELECT 1 FROM traces` + times(", traces", 1000),
		"subqueries":  times("SELECT * FROM (", 5000) + `SELECT 1` + times(")", 5000),
		"exists":      times("SELECT EXISTS (", 5000) + `SELECT 1` + times(")", 5000),
		"unions":      `SELECT 1` + times(" UNION ALL SELECT 1", 1000),
		"unions many": `SELECT 1` + times(" UNION SELECT 1", 50_000),
		"cases":       `SELECT ` + times("CASE WHEN true THEN ", 10_000) + `1` + times(" END", 10_000),
		"calls":       `SELECT ` + times("abs(", 10_000) + `1` + times(")", 10_000),
		"chain":       `SELECT (1)` + times(".abs()", 10_000),
		"withs":       times("WITH a AS (", 5000) + `SELECT 1` + times(") FROM a", 5000),
		"columns":     `SELECT 1` + times(", 1", 20_000),
		"rows":        `VALUES (1)` + times(", (1)", 30_000),
		"long":        `SELECT '` + times("x", 1_000_000) + `'`,
	} {
		_, _, err := answer(ctx, e, Ask{SQL: sql})
		if err != nil {
			var fault *Fault
			require.ErrorAs(t, err, &fault, name)
			require.Less(t, len(fault.Message), 2000, name)
		}
	}
}
