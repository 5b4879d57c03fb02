package apptest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAnalyticsWait: analyses pass the same gate as statements of SQL. When it is
// full they are turned away as the OpenAPI document says, and when a statement
// leaves they are answered.
func TestAnalyticsWait(t *testing.T) {
	t.Parallel()
	s := start(t, "--sql-running=1", "--sql-waiting=0")
	var all sync.WaitGroup
	defer all.Wait()
	leave := s.asking(&all, long)
	defer leave()
	eventually(t, "the statement runs", func() bool { return s.gauge("icecore_sql_running") == 1 })
	paths := []string{"/v1/groups", "/v1/analytics/summary", "/v1/analytics/splits", "/v1/analytics/uplift?base=1&against=2"}
	for _, path := range paths {
		a := s.get(path)
		a.problem(429, "too_many_queries")
		require.NotEmpty(t, a.header.Get("Retry-After"), path)
	}
	leave()
	eventually(t, "none runs", func() bool { return s.gauge("icecore_sql_running") == 0 })
	for _, path := range paths {
		s.get(path).is(200)
	}
}

// TestAnalyticsTimeout: an analysis that takes too long is ended like a statement.
func TestAnalyticsTimeout(t *testing.T) {
	t.Parallel()
	s := start(t, "--sql-timeout=1ms", "--sql-max-timeout=1s")
	s.playSmall()
	s.get("/v1/analytics/summary").problem(422, "sql_timeout")
}
