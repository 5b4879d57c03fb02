package apptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// long is a statement that does not end while a test lasts.
const long = `SELECT sum(hash(a.range, b.range) % 7) FROM range(1000000000) a, range(1000000000) b`

// TestSQLTruncated: cut at the edge, and not one row before it.
func TestSQLTruncated(t *testing.T) {
	t.Parallel()
	s := start(t, "--sql-max-rows=5000", "--sql-max-bytes=100KB")
	for _, c := range []struct {
		rows, limit, got int
		truncated        bool
	}{
		{5, 0, 5, false}, {5, 6, 5, false}, {5, 5, 5, false}, {5, 4, 4, true}, {1, 1, 1, false}, {0, 1, 0, false},
		{2048, 2048, 2048, false}, {2049, 2048, 2048, true}, {4096, 4096, 4096, false}, {5000, 0, 5000, false}, {5001, 0, 5000, true},
	} {
		body := object{"sql": `SELECT range::INTEGER FROM range($1)`, "params": []any{c.rows}}
		if c.limit > 0 {
			body["limit"] = c.limit
		}
		r := s.sqlJSON(body)
		require.Equal(t, c.got, len(r.Rows), "%+v", c)
		require.Equal(t, c.truncated, r.Truncated, "%+v", c)
	}
	s.sql(typeJSON, object{"sql": "SELECT 1", "limit": 5001}).problem(422, "invalid_field")
	wide := s.sqlJSON(object{"sql": `SELECT repeat('x', 100) FROM range(5000)`})
	require.True(t, wide.Truncated)
	require.NotEmpty(t, wide.Rows)
	require.Less(t, len(wide.Rows), 5000)
}

// TestSQLPages: pages by LIMIT and OFFSET, and by key, give every row once.
func TestSQLPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	var all []call
	for i := range 25 {
		all = append(all, plain("r-"+itoa(i%4), "t-"+itoa(100+i), int64(i), ids(1, 2), ids(3)))
	}
	s.send("POST", "/v1/traces?ack=queryable", jsonArray(all), "Content-Type", typeJSON).items()
	var byOffset, byKey []string
	for offset := 0; ; offset += 10 {
		r := s.sqlJSON(object{"sql": `SELECT trace_id FROM traces ORDER BY trace_id LIMIT 10 OFFSET $1`, "params": []any{offset}})
		for _, row := range r.Rows {
			byOffset = append(byOffset, row[0].(string))
		}
		require.False(t, r.Truncated)
		if len(r.Rows) < 10 {
			break
		}
	}
	for last := ""; ; {
		r := s.sqlJSON(object{"sql": `SELECT trace_id FROM traces WHERE trace_id > $1 ORDER BY trace_id`, "params": []any{last}, "limit": 10})
		for _, row := range r.Rows {
			last = row[0].(string)
			byKey = append(byKey, last)
		}
		if !r.Truncated {
			break
		}
	}
	require.Len(t, byOffset, 25)
	require.Equal(t, byOffset, byKey)
}

// gauge is the one value of a metric.
func (s *server) gauge(name string) float64 {
	s.t.Helper()
	list := s.metrics()[name]
	require.Len(s.t, list, 1, name)
	return list[0].value
}

// asking sends a statement that the test can leave.
func (s *server) asking(all *sync.WaitGroup, sql string) (leave context.CancelFunc) {
	ctx, cancel := context.WithCancel(s.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/sql", bytes.NewReader(encode(object{"sql": sql})))
	require.NoError(s.t, err)
	all.Go(func() {
		resp, err := s.http.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			s.t.Errorf("an endless statement was answered %d", resp.StatusCode)
		} else if !errors.Is(err, context.Canceled) {
			s.t.Errorf("leave: %v", err)
		}
	})
	return cancel
}

// TestSQLLeaving: a client that leaves takes its statement with it, running or
// waiting, and the next has its turn.
func TestSQLLeaving(t *testing.T) {
	t.Parallel()
	s := start(t, "--sql-running=1", "--sql-waiting=2")
	var all sync.WaitGroup
	defer all.Wait()
	leaveFirst := s.asking(&all, long)
	eventually(t, "the first runs", func() bool { return s.gauge("icecore_sql_running") == 1 })
	leaveSecond := s.asking(&all, long)
	eventually(t, "the second waits", func() bool { return s.gauge("icecore_sql_waiting") == 1 })
	leaveThird := s.asking(&all, long)
	eventually(t, "the third waits", func() bool { return s.gauge("icecore_sql_waiting") == 2 })
	a := s.sql(typeJSON, object{"sql": "SELECT 1"})
	a.problem(429, "too_many_queries")
	require.NotEmpty(t, a.header.Get("Retry-After"))

	leaveSecond()
	eventually(t, "one waits", func() bool { return s.gauge("icecore_sql_waiting") == 1 })
	leaveFirst()
	eventually(t, "the third runs", func() bool { return s.gauge("icecore_sql_waiting") == 0 && s.gauge("icecore_sql_running") == 1 })
	leaveThird()
	eventually(t, "none runs", func() bool { return s.gauge("icecore_sql_running") == 0 })
	require.Equal(t, json.Number("1"), s.sqlJSON(object{"sql": "SELECT 1"}).Rows[0][0])
	s.healthy()
}

// TestSQLTimeout: a statement that does not end is ended.
func TestSQLTimeout(t *testing.T) {
	t.Parallel()
	s := start(t, "--sql-timeout=300ms", "--sql-max-timeout=1s")
	p := s.sql(typeJSON, object{"sql": long}).problem(422, "sql_timeout")
	require.Contains(t, p.Detail, "300ms")
	s.sql(typeJSON, object{"sql": long, "timeout_ms": 100}).problem(422, "sql_timeout")
	s.sql(typeJSON, object{"sql": long, "timeout_ms": 1001}).problem(422, "invalid_field")
	require.Zero(t, s.gauge("icecore_sql_running"))
	s.sqlJSON(object{"sql": "SELECT 1"})
}

// TestSQLLarge: a result that does not fit into memory's share comes whole, and
// nothing of it is left.
func TestSQLLarge(t *testing.T) {
	t.Parallel()
	s := start(t)
	a := s.sql(typeCSV, object{"sql": `SELECT range AS n, md5(range::VARCHAR) AS hash FROM range(300000) ORDER BY n`}).is(200)
	require.Equal(t, "300000", a.header.Get("Icecore-Row-Count"))
	require.Equal(t, 300001, bytes.Count(a.body, []byte("\r\n")))
	require.True(t, bytes.HasSuffix(a.body, []byte("299999,"+string(a.body[len(a.body)-34:]))))
	left, err := filepath.Glob(filepath.Join(s.dir, "tmp", "*"))
	require.NoError(t, err)
	for _, path := range left {
		info, err := os.Stat(path)
		if err == nil {
			require.NotContains(t, info.Name(), "sql-")
		}
	}
}

// TestSQLSlowReader: one who does not fetch holds neither the turn nor the
// writers of the warehouse.
func TestSQLSlowReader(t *testing.T) {
	t.Parallel()
	s := start(t, "--sql-running=1")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/sql",
		bytes.NewReader(encode(object{"sql": `SELECT range AS n, repeat('x', 100) AS x FROM range(300000)`})))
	require.NoError(t, err)
	req.Header.Set("Accept", typeCSV)
	slow := newHTTP()
	defer slow.CloseIdleConnections()
	resp, err := slow.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // it is not read to its end
	require.Zero(t, s.gauge("icecore_sql_running"))
	s.send("POST", "/v1/traces?ack=queryable", jsonArray([]call{plain("r-1", "t-1", 1, ids(1), ids(2))}), "Content-Type", typeJSON).items()
	require.Len(t, s.sqlJSON(object{"sql": "SELECT trace_id FROM traces"}).Rows, 1)
}
