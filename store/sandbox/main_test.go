package sandbox

import (
	"context"
	"database/sql"
	"os"
	"testing"

	"github.com/duckdb/duckdb-go/v2"
	"github.com/stretchr/testify/require"
)

// db is DuckDB as it is linked, in memory.
var db *sql.DB

func TestMain(m *testing.M) {
	connector, err := duckdb.NewConnector("", nil)
	if err != nil {
		panic(err)
	}
	db = sql.OpenDB(connector)
	if _, err := db.ExecContext(context.Background(), TreeSetting); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = db.Close()
	os.Exit(code)
}

// treeOf parses a statement as the warehouse does.
func treeOf(t testing.TB, statement string) []byte {
	t.Helper()
	var tree string
	require.NoError(t, db.QueryRowContext(context.Background(), TreeSQL, statement).Scan(&tree))
	return []byte(tree)
}

var face = Face{Schemas: []string{"main", "v1"}, Tables: []string{"traces", "rollouts", "rewards"}}
