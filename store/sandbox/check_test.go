package sandbox

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the scope of WITH, the names of tables and the lists of functions let
// pass. The whole of it against a running engine is in package warehouse.
func TestPasses(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{
		`SELECT 1`,
		`FROM traces`,
		`SELECT * FROM Main.TRACES JOIN v1.rollouts USING (rollout_id)`,
		`WITH a AS (SELECT 1), b AS (FROM a) FROM b`,
		`WITH a AS (SELECT 1) SELECT (SELECT count(*) FROM a), x FROM (FROM A) t(x) ORDER BY (SELECT max(1) FROM a)`,
		`WITH RECURSIVE t AS (SELECT 1 i UNION ALL SELECT i + 1 FROM t WHERE i < 3) FROM t`,
		`WITH RECURSIVE t(i) USING KEY (i) AS (SELECT 1 UNION SELECT i + 1 FROM recurring.t WHERE i < 3) FROM t`,
		`WITH traces AS (SELECT 1) FROM traces`,
		`WITH a AS (WITH a AS (SELECT 1) FROM a) FROM a`,
		`WITH a AS (SELECT 1) FROM a UNION ALL FROM a`,
		`DESCRIBE traces`,
		`SUMMARIZE (SELECT 1)`,
		`SELECT main.abs(1), ABS(2), ([1]).list_sum(), ('a').upper().lower(), a.upper(), traces.a.upper() FROM traces`,
		`FROM range(3) t(i), unnest([i]), json_each('[]')`,
		`SELECT x::JSON, y::DECIMAL(10, 2)[], z::STRUCT(a INTEGER, b MAP(VARCHAR, UUID)), 'a'::ENUM('a', 'b') FROM traces`,
		`PIVOT traces ON harness IN ('a', 'b') USING count(*)`,
		`SELECT lead(a) OVER (), lag(a, -9007199254740992) OVER (), LEAD(a, 9007199254740992, 0) OVER () FROM traces`,
		`SELECT json_transform(a, '{"x": "INTEGER"}'), a.from_json('["VARCHAR"]'), ('[]').from_json_strict('["JSON"]') FROM traces`,
		`SELECT t.user, t.current_schema, users FROM (SELECT 1, 2, 3) t(user, current_schema, users)`,
	} {
		require.NoError(t, Check(treeOf(t, statement), face), statement)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		statement string
		kind      Kind
		// said is part of the message.
		said string
		// at is the text at the position that is told; empty: none is told.
		at string
	}{
		{``, Syntax, "no statement", ""},
		{`-- nothing`, Syntax, "no statement", ""},
		{`SELECT 1 FROM`, Syntax, "end of input", ""},
		{`SELEC 1`, Syntax, "syntax error", "SELEC"},
		{`SELECT 1; SELECT 2`, Refused, "2 statements", ""},
		{`SELECT 1; DROP TABLE x`, Refused, "only one SELECT", ""},
		{`PIVOT traces ON harness USING count(*)`, Refused, "lists its values", ""},

		// Tables.
		{`FROM nosuch`, Unknown, "there are: traces, rollouts, rewards", "nosuch"},
		{`SELECT 1 WHERE 1 IN (SELECT a FROM ice.traces)`, Refused, `"ice.traces"`, "ice"},
		{`FROM warehouse.main.traces`, Refused, "databases", "warehouse"},
		{`FROM 'a.csv'`, Refused, "files", "'a.csv'"},
		{`FROM "s3://b/a.parquet"`, Refused, "files", `"s3`},
		{`FROM information_schema.tables`, Refused, "may not be read", "information_schema"},
		{`FROM main.pg_class`, Refused, "may not be read", "main"},
		{`FROM pg_class`, Unknown, "no table", "pg_class"},
		{`SHOW TABLES`, Refused, "DESCRIBE one of", ""},
		{`DESCRIBE ice.traces`, Refused, "may not be read", "ice"},
		{`SUMMARIZE 'a.csv'`, Refused, "files", "'a.csv'"},
		{`FROM traces AT (TIMESTAMP => now())`, Refused, "AT CLAUSE", "traces"},
		{`UNPIVOT ice.traces ON a INTO NAME n VALUE v`, Refused, "may not be read", "ice"},
		{`FROM traces PIVOT (sum(a) FOR b IN some_enum)`, Refused, "PIVOT ENUM", ""},

		// Scopes of WITH: where a name is no CTE, DuckDB looks elsewhere.
		{`WITH a AS (FROM a) FROM a`, Unknown, "no table a", ""},
		{`WITH a AS (FROM b), b AS (SELECT 1) FROM a`, Unknown, "no table b", ""},
		{`SELECT (WITH a AS (SELECT 1) SELECT 1 FROM a) FROM a`, Unknown, "no table a", ""},
		{`WITH RECURSIVE t AS (SELECT i FROM t UNION ALL SELECT i FROM t) FROM t`, Unknown, "no table t", ""},
		{`WITH a AS (SELECT 1) FROM main.a`, Refused, `"main.a"`, ""},
		{`WITH a AS (SELECT 1) FROM recurring.a`, Refused, `"recurring.a"`, ""},
		{`WITH "a.csv" AS (FROM "a.csv") FROM "a.csv"`, Refused, "cannot make a table", ""},
		{"WITH \u212A AS (SELECT 1) FROM k", Unknown, "no table k", ""},

		// Functions.
		{`SELECT getenv('HOME')`, Unknown, "no function getenv", "getenv"},
		{`SELECT current_setting('x')`, Refused, "current_setting", "current_setting"},
		{`SELECT pg_catalog.pg_typeof(1)`, Refused, "pg_typeof", "pg_catalog"},
		{`SELECT system.main.current_database()`, Refused, "current_database", "system"},
		{`SELECT a.b.current_setting() FROM traces`, Refused, "current_setting", "a.b"},
		{`SELECT ('x').current_setting()`, Refused, "current_setting", ""},
		{`SELECT user`, Refused, "function user", "user"},
		{`SELECT 1 WHERE "Current_User" = 'x'`, Refused, "function Current_User", `"Current_User"`},
		{`SELECT session_user`, Refused, "session_user", "session_user"},
		{`SELECT current_role`, Refused, "current_role", "current_role"},
		{`SELECT [current_catalog]`, Refused, "current_catalog", ""},
		{`SELECT current_schema`, Refused, "current_schema", "current_schema"},
		{`SELECT list_transform([1], lambda x: nextval('s'))`, Refused, "nextval", "nextval"},
		{`SELECT sum(1) FILTER (WHERE nextval('s') > 0)`, Refused, "nextval", "nextval"},
		{`SELECT sum(1 ORDER BY nextval('s'))`, Refused, "nextval", "nextval"},
		{`SELECT sum(1) OVER (PARTITION BY nextval('s'))`, Refused, "nextval", "nextval"},
		{`SELECT sum(1) OVER (ROWS nextval('s') PRECEDING)`, Refused, "nextval", "nextval"},
		{`SELECT 1 LIMIT nextval('s')`, Refused, "nextval", "nextval"},
		{`SELECT * REPLACE (nextval('s') AS a) FROM traces`, Refused, "nextval", "nextval"},
		{`SELECT COLUMNS(c -> nextval('s') > 0) FROM traces`, Refused, "nextval", "nextval"},
		{`SELECT DISTINCT ON (nextval('s')) 1`, Refused, "nextval", "nextval"},
		{`VALUES (nextval('s'))`, Refused, "nextval", "nextval"},
		{`SELECT CASE WHEN nextval('s') > 1 THEN 1 END`, Refused, "nextval", "nextval"},
		{`SELECT 1 GROUP BY nextval('s') HAVING true`, Refused, "nextval", "nextval"},
		{`FROM traces a JOIN traces b ON nextval('s') = 1`, Refused, "nextval", "nextval"},
		{`FROM range(nextval('s'))`, Refused, "nextval", "nextval"},
		{`PIVOT traces ON a IN (1) USING sum(nextval('s'))`, Refused, "nextval", "nextval"},
		{`SELECT sum(1) EXPORT_STATE`, Refused, "EXPORT STATE", ""},
		{`SELECT "table unnest"([1])`, Unknown, "no function", `"table`},
		{`FROM read_csv('a.csv')`, Refused, "table function read_csv", "read_csv"},
		{`FROM query('SELECT 1')`, Refused, "table function query", "query"},
		{`FROM histogram(traces, a)`, Refused, "table function histogram", "histogram"},
		{`FROM abs(1)`, Unknown, "no table function abs", "abs"},

		{`FROM traces PIVOT (sum(a) FOR b IN (nextval('s')))`, Refused, "nextval", "nextval"},
		{`FROM traces PIVOT (sum(a) FOR b IN (SELECT 1))`, Syntax, "syntax error", "SELECT 1"},

		// Arguments that crash the process.
		{`SELECT lead(a, -9223372036854775808) OVER () FROM traces`, Refused, "offset of lead", "lead"},
		{`SELECT LAG(a, -(9223372036854775807) - 1) OVER () FROM traces`, Refused, "offset of lag", "LAG"},
		{`SELECT lag(a, 9007199254740993) OVER () FROM traces`, Refused, "offset of lag", "lag"},
		{`SELECT lag(a, '-9223372036854775808') OVER () FROM traces`, Refused, "offset of lag", "lag"},
		{`SELECT lag(a, 9223372036854775808) OVER () FROM traces`, Refused, "offset of lag", "lag"},
		{`SELECT lead(a, $1) OVER () FROM traces`, Refused, "offset of lead", "lead"},
		{`SELECT json_structure('[]')`, Refused, "json_structure", "json_structure"},
		{`SELECT json_group_structure(a) FROM traces`, Refused, "json_group_structure", "json_group_structure"},
		{`SELECT json_merge_patch('{}', '{}')`, Refused, "json_merge_patch", "json_merge_patch"},
		{`SELECT json_contains('[]', '1')`, Refused, "json_contains", "json_contains"},
		{`SELECT json_transform('[]', a) FROM traces`, Refused, "type that json_transform", "json_transform"},
		{`SELECT json_transform_strict('[]', repeat('[', 100000))`, Refused, "type that json_transform_strict", "json_transform_strict"},
		{`SELECT a.from_json($1) FROM traces`, Refused, "type that from_json", ""},
		{`SELECT From_JSON_Strict('[]', '` + strings.Repeat("[", 1000) + `')`, Refused, "type that from_json_strict", "From_JSON"},

		// Types.
		{`SELECT 1::nosuch`, Unknown, "no type nosuch", ""},
		{`SELECT 1::"AGGREGATE_STATE"`, Unknown, "no type", ""},
		{`SELECT NULL::STRUCT(a nosuch)[]`, Unknown, "no type nosuch", ""},
		{`SELECT 1::VARIANT`, Unknown, "no type", ""},

		{`SELECT DEFAULT`, Refused, `"DEFAULT"`, ""},
		{`SELECT ` + strings.Repeat("(", 10000) + `1` + strings.Repeat(")", 10000), Refused, "nested too deep", ""},
		{`SELECT 1` + strings.Repeat("+1", 5000), Refused, "nested too deep", ""},
		{`SELECT 1` + strings.Repeat(" UNION SELECT 1", 4000), Refused, "too many queries", ""},
		{`FROM traces` + strings.Repeat(", traces", 100), Refused, "too many tables", ""},
		{`SELECT 1 IN (0` + strings.Repeat(",1", 200_000) + `)`, Refused, "too complex", ""},
	} {
		err := Check(treeOf(t, c.statement), face)
		var bad *Error
		require.ErrorAs(t, err, &bad, "%.100s", c.statement)
		require.Equal(t, c.kind, bad.Kind, "%.100s: %s", c.statement, bad)
		require.Contains(t, bad.Message, c.said, "%.100s", c.statement)
		if c.at != "" {
			require.Equal(t, strings.Index(c.statement, c.at), bad.Position, "%.100s: %s", c.statement, bad)
		}
	}
}

// A tree that no parser made is refused, whatever is wrong with it.
func TestRefusesStrangeTrees(t *testing.T) {
	t.Parallel()
	around := func(from string) string {
		return fmt.Sprintf(`{"statements": [{"node": {"type": "SELECT_NODE", "from_table": %s}}]}`, from)
	}
	require.NoError(t, Check([]byte(around(`{"type": "EMPTY"}`)), face))
	for _, tree := range []string{
		``, `null`, `[]`, `{}`, `{"statements": [null]}`, `{"statements": [{}, {}]}`, `{"error": true}`,
		`{"statements": [{"node": 1}]}`, `{"statements": [{"node": {"type": "CTE_NODE"}}]}`,
		`{"statements": [{"nodes": {}}]}`,
		around(`7`), around(`{}`), around(`{"type": "COLUMN_DATA"}`), around(`{"type": "EMPTY", "new": 1}`),
		around(`{"type": "EMPTY", "alias": {"class": "FUNCTION"}}`),
		around(`{"type": "TABLE_FUNCTION"}`), around(`{"type": "TABLE_FUNCTION", "function": {"class": "STAR"}}`),
		around(`{"type": "BASE_TABLE"}`), around(`{"type": "JOIN", "ref_type": "DEPENDENT"}`),
		around(`{"type": "SHOW_REF", "show_type": "DESCRIBE"}`),
		around(`{"type": "SHOW_REF", "show_type": "DESCRIBE", "query": {"type": "SELECT_NODE"}, "table_name": "x"}`),
	} {
		require.Error(t, Check([]byte(tree), face), tree)
	}
	require.Error(t, Check([]byte(around(strings.Repeat("[", 20000))), face))
}
