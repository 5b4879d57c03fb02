package apptest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSQLBadBodies: what is wrong with a request is named, and nothing runs.
func TestSQLBadBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		body, kind string
		status     int
		code       string
	}{
		{"", typeJSON, 400, "invalid_json"},
		{`{"sql"`, typeJSON, 400, "invalid_json"},
		{`[]`, typeJSON, 422, "not_an_object"},
		{`{}`, typeJSON, 422, "missing_field"},
		{`{"sql": 1}`, typeJSON, 422, "invalid_field"},
		{`{"sql": "SELECT 1", "colour": "red"}`, typeJSON, 422, "invalid_field"},
		{`{"sql": "SELECT 1", "sql": "SELECT 2"}`, typeJSON, 422, "duplicate_field"},
		{`{"sql": "SELECT $1", "params": [[1]]}`, typeJSON, 422, "invalid_field"},
		{`{"sql": "SELECT $1", "params": "x"}`, typeJSON, 422, "invalid_field"},
		{`{"sql": "SELECT 1\u0000"}`, typeJSON, 422, "invalid_field"},
		{"{\"sql\": \"SELECT '\xff'\"}", typeJSON, 400, "invalid_json"},
		{strings.Repeat("[", 100_000), typeJSON, 400, "invalid_json"},
		{`{"sql": "SELECT 1", "params": ` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, typeJSON, 422, "invalid_field"},
		{`{"sql": "` + strings.Repeat("-", 5<<20) + `"}`, typeJSON, 413, "request_too_large"},
		{"SELECT 1", "application/sql", 415, "unsupported_media_type"},
		{"  ", "text/plain", 422, "missing_field"},
	} {
		s.send("POST", "/v1/sql", []byte(c.body), "Content-Type", c.kind).problem(c.status, c.code)
	}
	s.send("POST", "/v1/sql?limit=1", []byte(`{"sql": "SELECT 1"}`), "Content-Type", typeJSON).problem(400, "invalid_parameter")
	s.send("POST", "/v1/sql", []byte(`{"sql": "SELECT 1"}`), "Content-Type", typeJSON, "Accept", "image/png").problem(406, "not_acceptable")
	s.send("POST", "/v1/sql", gzipped([]byte(`{"sql": "SELECT 1"}`)), "Content-Type", typeJSON, "Content-Encoding", "gzip").is(200)
	s.send("POST", "/v1/sql", []byte(`{"sql": "SELECT 1"}`), "Content-Type", typeJSON, "Content-Encoding", "br").problem(415, "unsupported_encoding")
	s.healthy()
}

// TestSQLFaults: each kind of fault has its code, and its place where DuckDB says
// one.
func TestSQLFaults(t *testing.T) {
	t.Parallel()
	s := start(t)
	type placed struct {
		Position     *int
		Line, Column int
	}
	place := func(a *answer) (p placed) {
		a.into(&p)
		return p
	}
	at := func(position, line, column int) placed { return placed{&position, line, column} }
	for _, c := range []struct {
		sql, code string
		place     *placed
	}{
		{"SELECT colour\nFROM traces", "sql_binding", ptr(at(7, 1, 8))},
		{"SELECT 'ü',\n  colour FROM traces", "sql_binding", ptr(at(15, 2, 3))},
		{"SELECT * FROM nowhere", "sql_binding", nil},
		{"SELECT FROM WHERE", "sql_syntax", nil},
		{"SELECT 1; SELECT 2", "sql_refused", nil},
		{"DROP VIEW traces", "sql_refused", nil},
		{"SELECT * FROM read_csv('/etc/passwd')", "sql_refused", nil},
		{"COPY traces TO 'x.csv'", "sql_refused", nil},
		{"SELECT 'x'::INTEGER", "sql_failed", nil},
	} {
		a := s.sql(typeJSON, object{"sql": c.sql})
		a.is(422)
		var p struct{ Code string }
		a.into(&p)
		require.Contains(t, []string{c.code, "sql_syntax"}, p.Code, c.sql)
		if c.place != nil {
			require.Equal(t, *c.place, place(a), "%s", a.body)
		}
	}
	require.Equal(t, json.Number("1"), s.sqlJSON(object{"sql": "SELECT 1"}).Rows[0][0])
}

// TestSQLSecrets: the values of a statement are nobody's who reads the log.
func TestSQLSecrets(t *testing.T) {
	t.Parallel()
	s := start(t, "--log-level=debug")
	s.sqlJSON(object{"sql": "SELECT $1", "params": []any{"sesame-7"}})
	s.sql(typeJSON, object{"sql": "SELECT $1::INTEGER", "params": []any{"12"}}).is(200)
	require.Contains(t, s.stderr.String(), "SELECT $1")
	require.NotContains(t, s.stderr.String(), "sesame-7")
}
