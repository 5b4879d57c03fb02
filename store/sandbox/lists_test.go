package sandbox

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every function that the linked DuckDB knows is on exactly one list. When this
// fails after an upgrade, somebody has to decide about the new ones: does it read
// settings, files, the environment, the catalog or state, or change anything?
func TestEveryFunctionIsOnOneList(t *testing.T) {
	t.Parallel()
	rows, err := db.QueryContext(context.Background(), `SELECT DISTINCT function_type IN ('table', 'table_macro'), function_name
		FROM duckdb_functions() WHERE function_type <> 'pragma' ORDER BY ALL`)
	require.NoError(t, err)
	defer rows.Close() //nolint:errcheck // Err says it
	known := list{functions: map[string]bool{}, tables: map[string]bool{}}
	for rows.Next() {
		var table bool
		var name string
		require.NoError(t, rows.Scan(&table, &name))
		name = lower(name)
		yes, no := allowed.functions[name], refused.functions[name]
		known.functions[name] = known.functions[name] || !table
		if table {
			yes, no = allowed.tables[name], refused.tables[name]
			known.tables[name] = true
		}
		require.True(t, yes || no, "%s (in FROM: %v) is on neither list", name, table)
		require.False(t, yes && no, "%s (in FROM: %v) is on both lists", name, table)
	}
	require.NoError(t, rows.Err())
	require.Greater(t, len(known.functions), 500)

	for _, l := range []list{allowed, refused} {
		for name := range l.functions {
			require.True(t, known.functions[name] || name == "unnest", "DuckDB has no function %s", name)
		}
		for name := range l.tables {
			require.True(t, known.tables[name], "DuckDB has no table function %s", name)
		}
	}
}

// The bodies of macros that may be called call nothing that may not, and read no
// table.
func TestBodiesOfMacrosPass(t *testing.T) {
	t.Parallel()
	rows, err := db.QueryContext(context.Background(), `SELECT function_name, macro_definition FROM duckdb_functions()
		WHERE function_type = 'macro'`)
	require.NoError(t, err)
	defer rows.Close() //nolint:errcheck // Err says it
	n := 0
	for rows.Next() {
		var name, body string
		require.NoError(t, rows.Scan(&name, &body))
		if !allowed.functions[lower(name)] {
			continue
		}
		n++
		require.NoError(t, Check(treeOf(t, "SELECT "+body), Face{}), "%s: %s", name, body)
	}
	require.NoError(t, rows.Err())
	require.Greater(t, n, 50)
}

// The same for types.
func TestEveryTypeIsKnown(t *testing.T) {
	t.Parallel()
	rows, err := db.QueryContext(context.Background(), `SELECT DISTINCT lower(type_name) FROM duckdb_types()`)
	require.NoError(t, err)
	defer rows.Close() //nolint:errcheck // Err says it
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		if name != "variant" && name != "geometry" && name != "type" {
			require.True(t, typeNames[name], "type %s is on no list", name)
		}
	}
	require.NoError(t, rows.Err())
}

// What only new versions of DuckDB know is in the tree too: without TreeSetting
// it would be left out.
func TestTreeIsComplete(t *testing.T) {
	t.Parallel()
	require.Contains(t, string(treeOf(t, `WITH t AS MATERIALIZED (SELECT 1) FROM t`)), "CTE_MATERIALIZE_ALWAYS")
	require.Contains(t, string(treeOf(t, `FROM t PIVOT (sum(a) FOR b IN (abs(1)))`)), "abs")
}
