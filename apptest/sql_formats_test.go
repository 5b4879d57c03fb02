package apptest

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	typeCSV     = "text/csv"
	typeParquet = "application/vnd.apache.parquet"
)

// sql runs a statement and gives its answer in a format.
func (s *server) sql(accept string, body object) *answer {
	s.t.Helper()
	return s.send("POST", "/v1/sql", encode(body), "Content-Type", typeJSON, "Accept", accept)
}

type sqlResult struct {
	Columns   []struct{ Name, Type string }
	Rows      [][]any
	RowCount  int64 `json:"row_count"`
	Truncated bool
}

// sqlJSON runs a statement that must succeed.
func (s *server) sqlJSON(body object) (r sqlResult) {
	s.t.Helper()
	a := s.sql(typeJSON, body).is(200)
	a.into(&r)
	require.Len(s.t, r.Rows, int(r.RowCount))
	require.Equal(s.t, fmt.Sprint(r.RowCount), a.header.Get("Icecore-Row-Count"))
	require.Equal(s.t, fmt.Sprint(r.Truncated), a.header.Get("Icecore-Truncated"))
	require.Equal(s.t, "true", a.trailer.Get("Icecore-Complete"))
	return r
}

// TestSQLFormats: every format is read back by a reader that is not ours, and
// all say the same.
func TestSQLFormats(t *testing.T) {
	t.Parallel()
	s := start(t)
	const rows = 5000
	statement := object{"sql": `SELECT i::INTEGER AS i, 9007199254740993 + i AS big, sum(i) OVER (ORDER BY i)::HUGEINT AS total, i / 4 AS quarter,
		CASE WHEN i % 3 = 0 THEN NULL ELSE 'text, "' || i END AS text, '' AS empty, [i, NULL] AS list, {'a': i, 'b': ['x']} AS pair,
		MAP {'k': i} AS map, TIMESTAMPTZ '2026-01-31 09:30:00+00' + to_seconds(i) AS at, i AS twice, -i AS twice
		FROM range($1) r(i) ORDER BY i`, "params": []any{rows}}

	r := s.sqlJSON(statement)
	require.Len(t, r.Rows, rows)
	require.Equal(t, []any{json.Number("7"), "9007199254741000", json.Number("28"), json.Number("1.75"), `text, "7`, "",
		[]any{json.Number("7"), nil}, map[string]any{"a": json.Number("7"), "b": []any{"x"}}, map[string]any{"k": json.Number("7")},
		"2026-01-31T09:30:07.000000Z", json.Number("7"), json.Number("-7")}, r.Rows[7])
	require.Equal(t, "twice", r.Columns[10].Name)
	require.Equal(t, "twice", r.Columns[11].Name)
	require.Equal(t, "STRUCT(a BIGINT, b VARCHAR[])", r.Columns[7].Type)

	a := s.sql(typeCSV, statement).is(200)
	require.Equal(t, "text/csv; charset=utf-8; header=present", a.header.Get("Content-Type"))
	records, err := csv.NewReader(bytes.NewReader(a.body)).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, rows+1)
	require.Equal(t, []string{"7", "9007199254741000", "28", "1.75", `text, "7`, "", "[7,null]", `{"a":7,"b":["x"]}`, `{"k":7}`,
		"2026-01-31T09:30:07.000000Z", "7", "-7"}, records[8])
	require.Contains(t, string(a.body), "\r\n3,9007199254740996,6,0.75,,\"\",")

	lines := strings.Split(strings.TrimSuffix(string(s.sql(typeNDJSON, statement).is(200).body), "\n"), "\n")
	require.Len(t, lines, rows)
	require.JSONEq(t, `{"i":7,"big":"9007199254741000","total":28,"quarter":1.75,"text":"text, \"7","empty":"","list":[7,null],"pair":{"a":7,"b":["x"]},
		"map":{"k":7},"at":"2026-01-31T09:30:07.000000Z","twice":7,"twice_1":-7}`, lines[7])

	const program = `
import sys, datetime, decimal, pyarrow as pa, pyarrow.parquet as pq
data = sys.stdin.buffer.read()
table = pq.read_table(pa.BufferReader(data)) if sys.argv[1] == "parquet" else pa.ipc.open_stream(data).read_all()
table.validate(full=True)
meta = table.schema.metadata
assert meta[b"icecore.row_count"] == b"5000" and meta[b"icecore.truncated"] == b"false", meta
assert table.column_names[-2:] == ["twice", "twice_1" if sys.argv[1] == "parquet" else "twice"]
for i, row in enumerate(zip(*(c.to_pylist() for c in table.columns))):
    want = (i, 9007199254740993 + i, decimal.Decimal(i * (i + 1) // 2), i / 4, None if i % 3 == 0 else 'text, "%d' % i, "", [i, None],
        {"a": i, "b": ["x"]}, [("k", i)], datetime.datetime(2026, 1, 31, 9, 30, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=i), i, -i)
    assert row == want, (row, want)
print(table.num_rows)
`
	plain := s.sql(typeArrow, statement).is(200)
	require.Equal(t, typeArrow, plain.header.Get("Content-Type"))
	require.Equal(t, strconv.Itoa(rows), plain.header.Get("Icecore-Row-Count"))
	require.Equal(t, "5000\n", py(t, program, plain.body, "arrow"))
	for _, codec := range []string{"zstd", "lz4"} {
		packed := s.sql(typeArrow+`; codecs="brotli, `+codec+`"`, statement).is(200)
		require.Equal(t, "5000\n", py(t, program, packed.body, "arrow"))
		require.Less(t, len(packed.body), len(plain.body))
	}
	require.Equal(t, "5000\n", py(t, program, s.sql(typeParquet, statement).is(200).body, "parquet"))
}

// TestSQLNothing: a result without rows has its columns, in every format.
func TestSQLNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	nothing := object{"sql": `SELECT 1 AS a, 'x' AS b WHERE false`}
	r := s.sqlJSON(nothing)
	require.Empty(t, r.Rows)
	require.Len(t, r.Columns, 2)
	require.Equal(t, "a,b\r\n", string(s.sql(typeCSV, nothing).is(200).body))
	require.Empty(t, s.sql(typeNDJSON, nothing).is(200).body)
	const program = `import sys, pyarrow as pa, pyarrow.parquet as pq
data = sys.stdin.buffer.read()
t = pq.read_table(pa.BufferReader(data)) if sys.argv[1] == "parquet" else pa.ipc.open_stream(data).read_all()
print(t.num_rows, t.column_names)`
	require.Equal(t, "0 ['a', 'b']\n", py(t, program, s.sql(typeArrow, nothing).is(200).body, "arrow"))
	require.Equal(t, "0 ['a', 'b']\n", py(t, program, s.sql(typeParquet, nothing).is(200).body, "parquet"))
}

// TestSQLParams: values arrive as they were sent.
func TestSQLParams(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.sqlJSON(object{"sql": `SELECT $1, $2, $3, $4, $5, typeof($3), $5 || $5`, "params": []any{nil, true, json.RawMessage("-9223372036854775808"), 0.1, "é\"'\n"}})
	require.Equal(t, []any{nil, true, "-9223372036854775808", json.Number("0.1"), "é\"'\n", "BIGINT", "é\"'\né\"'\n"}, r.Rows[0])
	r = s.sqlJSON(object{"sql": `SELECT ? + ?`, "params": []any{1, 2}})
	require.Equal(t, json.Number("3"), r.Rows[0][0])
	r = s.sqlJSON(object{"sql": `SELECT $name || '!' AS greeting, $n * 2`, "params": object{"n": 21, "name": "x"}})
	require.Equal(t, []any{"x!", json.Number("42")}, r.Rows[0])
	for _, wrong := range []object{{"sql": "SELECT $1"}, {"sql": "SELECT $1", "params": []any{1, 2}}, {"sql": "SELECT $a", "params": object{"b": 1}}} {
		s.sql(typeJSON, wrong).problem(422, "sql_binding")
	}
}

// TestSQLAsText: the statement may be the body itself.
func TestSQLAsText(t *testing.T) {
	t.Parallel()
	s := start(t)
	a := s.send("POST", "/v1/sql?limit=2&timeout_ms=60000", []byte("SELECT * FROM range(5) -- all\n;"), "Content-Type", "text/plain", "Accept", typeCSV).is(200)
	require.Equal(t, "range\r\n0\r\n1\r\n", string(a.body))
	require.Equal(t, "true", a.header.Get("Icecore-Truncated"))
}

// TestSQLSeesWhatIsStored: what was acknowledged as queryable is there, with its
// tokens.
func TestSQLSeesWhatIsStored(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.send("POST", "/v1/traces?ack=queryable", jsonArray([]call{plain("r-1", "t-1", 1, ids(1, 2, 3), ids(4, 5)),
		plain("r-1", "t-2", 2, ids(1, 2, 3, 4, 5, 6), ids(7))}), "Content-Type", typeJSON).items()
	r := s.sqlJSON(object{"sql": `SELECT trace_id, prompt_token_ids, response_token_ids, response_logprobs FROM traces WHERE rollout_id = $1 ORDER BY seq`, "params": []any{"r-1"}})
	n := func(list ...string) (out []any) {
		for _, v := range list {
			out = append(out, json.Number(v))
		}
		return out
	}
	require.Equal(t, [][]any{{"t-1", n("1", "2", "3"), n("4", "5"), n("-0.125", "-0.25")},
		{"t-2", n("1", "2", "3", "4", "5", "6"), n("7"), n("-0.125")}}, r.Rows)
	require.Equal(t, "INTEGER[]", r.Columns[1].Type)
}

// TestSQLTables: what the list names can be queried, and has those columns.
func TestSQLTables(t *testing.T) {
	t.Parallel()
	s := start(t)
	var list struct {
		Schema string
		Tables []struct {
			Name    string
			Comment *string
			Columns []struct {
				Name, Type string
				Comment    *string
			}
		}
	}
	s.get("/v1/sql/tables").is(200).into(&list)
	require.Equal(t, "v1", list.Schema)
	require.Greater(t, len(list.Tables), 5)
	for _, table := range list.Tables {
		require.NotNil(t, table.Comment, table.Name)
		var want, got []string
		for _, c := range table.Columns {
			want = append(want, c.Name)
			require.NotEmpty(t, c.Type)
		}
		for _, c := range s.sqlJSON(object{"sql": "SELECT * FROM v1." + table.Name + " LIMIT 0"}).Columns {
			got = append(got, c.Name)
		}
		require.Equal(t, want, got)
	}
	s.get("/v1/sql/tables?colour=red").problem(400, "invalid_parameter")
}
