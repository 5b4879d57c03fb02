package doctest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSQLColumnsPage: docs/sql-columns.md is what the server says of its views.
// With ICECORE_UPDATE=1 the page is written instead of compared.
func TestSQLColumnsPage(t *testing.T) {
	s := startServer(t, workDir(t), nil)
	defer s.stop(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr+"/v1/sql/tables", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // it was read
	var answer struct {
		Schema string
		Tables []struct {
			Name, Comment string
			Columns       []struct{ Name, Type, Comment string }
		}
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	require.NotEmpty(t, answer.Tables)
	var page strings.Builder
	page.WriteString("# Columns of the SQL views\n\nSchema `" + answer.Schema + "`. What each view is for: [sql.md](sql.md). This page is made from the comments in the database.\n")
	for _, table := range answer.Tables {
		require.NotEmpty(t, table.Comment, "view %s has no comment", table.Name)
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| column | type | |\n| --- | --- | --- |\n", table.Name, table.Comment)
		for _, c := range table.Columns {
			fmt.Fprintf(&page, "| `%s` | %s | %s |\n", c.Name, strings.ReplaceAll(c.Type, "|", `\|`), c.Comment)
		}
	}
	path := filepath.Join(root, "docs", "sql-columns.md")
	if os.Getenv("ICECORE_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(page.String()), 0o644))
	}
	require.Equal(t, page.String(), read(t, "docs", "sql-columns.md"), "run the test with ICECORE_UPDATE=1, and read what changed")
}
