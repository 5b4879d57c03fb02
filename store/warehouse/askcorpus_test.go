package warehouse

import (
	"context"
	_ "embed"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/analyst.sql
var analystSQL string

// What an analyst writes is accepted and runs.
func TestAnalystsStatementsRun(t *testing.T) {
	t.Parallel()
	e := asked(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, body, _ := strings.Cut(analystSQL, "\n\n")
	n := 0
	for statement := range strings.SplitSeq(body, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		n++
		got, _, err := answer(ctx, e, Ask{SQL: statement})
		if err != nil {
			t.Errorf("%s:\n%v", strings.TrimSpace(statement), err)
			continue
		}
		throughStream(t, got)
	}
	require.Greater(t, n, 150)
}
