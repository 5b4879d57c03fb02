package sandbox

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever tree passes holds no name of a function or table that is not on the
// lists, wherever it stands: looked for without knowing what a tree is made of.
func FuzzCheck(f *testing.F) {
	for _, statement := range []string{
		`SELECT a, sum(b) OVER (ORDER BY c) FROM traces WHERE d IN (SELECT e FROM v1.rollouts) GROUP BY ALL`,
		`WITH RECURSIVE t AS (SELECT 1 i UNION ALL SELECT i + 1 FROM t) FROM t, range(3)`,
		`PIVOT traces ON a IN (1) USING sum(b)`,
		`FROM ice.traces`, `FROM read_csv('x')`, `SELECT nextval('s')`, `DESCRIBE traces`, `SELECT x::DECIMAL(3, 1)[]`,
		`SELECT list_filter([1], lambda x: x > 1), * EXCLUDE (a) REPLACE (b AS c) FROM traces`,
	} {
		f.Add(treeOf(f, statement))
	}
	f.Fuzz(func(t *testing.T, tree []byte) {
		if Check(tree, face) != nil {
			return
		}
		var all any
		if json.Unmarshal(tree, &all) != nil {
			return // trailing bytes: DuckDB makes none
		}
		ctes := map[string]bool{}
		each(all, func(n map[string]any) {
			for _, field := range []string{"key", "cte_name"} {
				if name, ok := n[field].(string); ok {
					ctes[lower(name)] = true
				}
			}
		})
		each(all, func(n map[string]any) {
			if name, ok := n["function_name"].(string); ok {
				require.True(t, allowed.functions[lower(name)] || allowed.tables[lower(name)], name)
			}
			if name, ok := n["table_name"].(string); ok {
				require.True(t, slices.Contains(face.Tables, lower(name)) || ctes[lower(name)], name)
			}
			require.NotContains(t, n, "export_state")
			require.NotContains(t, n, "pivot_enum")
		})
	})
}

// each visits all objects.
func each(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			each(e, visit)
		}
	case map[string]any:
		visit(v)
		for _, e := range v {
			each(e, visit)
		}
	}
}
