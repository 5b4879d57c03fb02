package table

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/csv"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/duckdb/duckdb-go/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// write runs a statement in a DuckDB of its own and writes its result.
func write(t require.TestingT, f Format, sql string) []byte {
	connector, err := duckdb.NewConnector("", nil)
	require.NoError(t, err)
	defer connector.Close() //nolint:errcheck // in memory
	conn, err := connector.Connect(context.Background())
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // in memory
	_, err = conn.(driver.ExecerContext).ExecContext(context.Background(), "SET TimeZone = 'UTC'", nil)
	require.NoError(t, err)
	a, err := duckdb.NewArrowFromConn(conn)
	require.NoError(t, err)
	r, err := a.QueryContext(context.Background(), sql)
	require.NoError(t, err)
	defer r.Release()
	var out bytes.Buffer
	w, err := New(&out, f, r.Schema(), Info{Rows: 2, Truncated: true})
	require.NoError(t, err)
	for r.Next() {
		require.NoError(t, w.Write(r.RecordBatch()))
	}
	require.NoError(t, r.Err())
	require.NoError(t, w.Close())
	return out.Bytes()
}

// value gives the type of an expression, and its value as JSON and as CSV.
func value(t *testing.T, expression string) (kind, asJSON, asCSV string) {
	t.Helper()
	sql := "SELECT " + expression + " AS v"
	var j struct {
		Columns []Column
		Rows    [][]json.RawMessage
	}
	raw := write(t, Format{Media: JSON}, sql)
	require.NoError(t, json.Unmarshal(raw, &j), "%s", raw)
	var line struct{ V json.RawMessage }
	require.NoError(t, json.Unmarshal(write(t, Format{Media: NDJSON}, sql), &line))
	require.Equal(t, string(j.Rows[0][0]), string(line.V))
	text := string(write(t, Format{Media: CSV}, sql))
	return j.Columns[0].Type, string(j.Rows[0][0]), strings.TrimSuffix(strings.TrimPrefix(text, "v\r\n"), "\r\n")
}

func TestValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ expression, kind, json, csv string }{
		{"NULL", "INTEGER", "null", ""},
		{"true", "BOOLEAN", "true", "true"},
		{"(-128)::TINYINT", "TINYINT", "-128", "-128"},
		{"255::UTINYINT", "UTINYINT", "255", "255"},
		{"9007199254740992", "BIGINT", "9007199254740992", "9007199254740992"},
		{"9007199254740993", "BIGINT", `"9007199254740993"`, "9007199254740993"},
		{"(-9223372036854775808)::BIGINT", "BIGINT", `"-9223372036854775808"`, "-9223372036854775808"},
		{"18446744073709551615::UBIGINT", "UBIGINT", `"18446744073709551615"`, "18446744073709551615"},
		{"12::HUGEINT", "DECIMAL(38,0)", "12", "12"},
		{"170141183460469231731687303715884105727::HUGEINT", "DECIMAL(38,0)", `"170141183460469231731687303715884105727"`, "170141183460469231731687303715884105727"},
		{"-1.05::DECIMAL(10,2)", "DECIMAL(10,2)", "-1.05", "-1.05"},
		{"0.001::DECIMAL(4,3)", "DECIMAL(4,3)", "0.001", "0.001"},
		{"123456789012345678.12::DECIMAL(30,2)", "DECIMAL(30,2)", `"123456789012345678.12"`, "123456789012345678.12"},
		{"0.1::FLOAT", "FLOAT", "0.1", "0.1"},
		{"1e300::DOUBLE", "DOUBLE", "1e+300", "1e+300"},
		{"'-0.0'::DOUBLE", "DOUBLE", "-0.0", "-0.0"},
		{"'-0.0'::FLOAT", "FLOAT", "-0.0", "-0.0"},
		{"0.0::DOUBLE", "DOUBLE", "0", "0"},
		{"(-9007199254740992)::BIGINT", "BIGINT", "-9007199254740992", "-9007199254740992"},
		{"'nan'::DOUBLE", "DOUBLE", `"NaN"`, "NaN"},
		{"'inf'::FLOAT", "FLOAT", `"Infinity"`, "Infinity"},
		{"'-inf'::DOUBLE", "DOUBLE", `"-Infinity"`, "-Infinity"},
		{"''", "VARCHAR", `""`, `""`},
		{`'a"b,' || chr(10) || chr(1) || '\ü'`, "VARCHAR", `"a\"b,\n\u0001\\ü"`, "\"a\"\"b,\n\x01\\ü\""},
		{"'\\x00\\xFF'::BLOB", "BLOB", `"AP8="`, "AP8="},
		{"'4ac7a9e9-607c-4c8a-84f3-843f0191e3fd'::UUID", "VARCHAR", `"4ac7a9e9-607c-4c8a-84f3-843f0191e3fd"`, "4ac7a9e9-607c-4c8a-84f3-843f0191e3fd"},
		{"'b'::ENUM('a', 'b')", "ENUM", `"b"`, "b"},
		{"NULL::ENUM('a', 'b')", "ENUM", "null", ""},
		{"DATE '2026-01-31'", "DATE", `"2026-01-31"`, "2026-01-31"},
		{"'infinity'::DATE", "DATE", `"infinity"`, "infinity"},
		{"'24:00:00'::TIME", "TIME", `"24:00:00.000000"`, "24:00:00.000000"},
		{"TIME '09:30:00.5'", "TIME", `"09:30:00.500000"`, "09:30:00.500000"},
		{"TIMESTAMPTZ '2026-01-31 09:30:00.000001+02'", "TIMESTAMP WITH TIME ZONE", `"2026-01-31T07:30:00.000001Z"`, "2026-01-31T07:30:00.000001Z"},
		{"TIMESTAMP '1969-12-31 23:59:59.999999'", "TIMESTAMP", `"1969-12-31T23:59:59.999999Z"`, "1969-12-31T23:59:59.999999Z"},
		{"'2026-01-31 09:30:00.123456789'::TIMESTAMP_NS", "TIMESTAMP_NS", `"2026-01-31T09:30:00.123456789Z"`, "2026-01-31T09:30:00.123456789Z"},
		{"'2026-01-31'::TIMESTAMP_S", "TIMESTAMP_S", `"2026-01-31T00:00:00.000000Z"`, "2026-01-31T00:00:00.000000Z"},
		{"'2026-01-31 00:00:00.25'::TIMESTAMP_MS", "TIMESTAMP_MS", `"2026-01-31T00:00:00.250000Z"`, "2026-01-31T00:00:00.250000Z"},
		{"'-infinity'::TIMESTAMP", "TIMESTAMP", `"-infinity"`, "-infinity"},
		{"INTERVAL '14 months 3 days 4 hours 5 minutes 6.5 seconds'", "INTERVAL", `"P1Y2M3DT4H5M6.5S"`, "P1Y2M3DT4H5M6.5S"},
		{"INTERVAL '-1.5 seconds'", "INTERVAL", `"PT-1.5S"`, "PT-1.5S"},
		{"INTERVAL '0 days'", "INTERVAL", `"PT0S"`, "PT0S"},
		{"INTERVAL '1 hour'", "INTERVAL", `"PT1H"`, "PT1H"},
		{"[1, NULL, 3]", "INTEGER[]", "[1,null,3]", `"[1,null,3]"`},
		{"[]::BIGINT[]", "BIGINT[]", "[]", "[]"},
		{"NULL::BIGINT[]", "BIGINT[]", "null", ""},
		{"[1, 2]::INTEGER[2]", "INTEGER[2]", "[1,2]", `"[1,2]"`},
		{"[['a'], []]", "VARCHAR[][]", `[["a"],[]]`, `"[[""a""],[]]"`},
		{`{'a': 1, 'b c': ['x']}`, `STRUCT(a INTEGER, "b c" VARCHAR[])`, `{"a":1,"b c":["x"]}`, `"{""a"":1,""b c"":[""x""]}"`},
		{"row(1, 'x')", "STRUCT(INTEGER, VARCHAR)", `[1,"x"]`, `"[1,""x""]"`},
		{"MAP {'k': 1, 'l': NULL}", "MAP(VARCHAR, INTEGER)", `{"k":1,"l":null}`, `"{""k"":1,""l"":null}"`},
		{"MAP {1: 'x'}", "MAP(INTEGER, VARCHAR)", `[{"key":1,"value":"x"}]`, `"[{""key"":1,""value"":""x""}]"`},
		{"union_value(n := 1)", "UNION(n INTEGER)", "1", "1"},
		{`'{"a": 1}'::JSON`, "VARCHAR", `"{\"a\": 1}"`, `"{""a"": 1}"`},
	} {
		kind, asJSON, asCSV := value(t, c.expression)
		require.Equal(t, c.kind, kind, c.expression)
		require.Equal(t, c.json, asJSON, c.expression)
		require.Equal(t, c.csv, asCSV, c.expression)
	}
}

func TestDuplicateNames(t *testing.T) {
	t.Parallel()
	const sql = `SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a`
	require.JSONEq(t, `{"columns": [{"name":"a","type":"INTEGER"},{"name":"a","type":"INTEGER"},{"name":"a_1","type":"INTEGER"},{"name":"a","type":"INTEGER"}],
		"rows": [[1,2,3,4]], "row_count": 1, "truncated": true}`, string(write(t, Format{Media: JSON}, sql)))
	require.Equal(t, "a,a,a_1,a\r\n1,2,3,4\r\n", string(write(t, Format{Media: CSV}, sql)))
	require.Equal(t, `{"a":1,"a_2":2,"a_1":3,"a_3":4}`+"\n", string(write(t, Format{Media: NDJSON}, sql)))
}

// TestUniqueNames: no name comes twice, the first of each stays as it is, and
// 10,000 columns of one name take no time.
func TestUniqueNames(t *testing.T) {
	t.Parallel()
	schema := func(names []string) *arrow.Schema {
		fields := make([]arrow.Field, len(names))
		for i, name := range names {
			fields[i] = arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64}
		}
		return arrow.NewSchema(fields, nil)
	}
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOf(rapid.SampledFrom([]string{"", "_1", "a", "a_1", "a_2", "a_1_1", "b"})).Draw(t, "names")
		met, given := map[string]bool{}, map[string]bool{}
		for i, name := range uniqueNames(schema(names)) {
			require.False(t, given[name], name)
			require.True(t, met[names[i]] || name == names[i])
			met[names[i]], given[name] = true, true
		}
	})
	many := make([]string, 200_000)
	require.Equal(t, "_199999", uniqueNames(schema(many))[len(many)-1])
}

// TestText: whatever a text holds, Go's readers get it back.
func TestText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.StringMatching(`[a",\x00-\x1f\\é😀 ]{0,20}`).Draw(t, "text")
		var got string
		require.NoError(t, json.Unmarshal(appendQuoted(nil, want), &got))
		require.Equal(t, want, got)
		if strings.Contains(want, "\r") {
			return // Go's CSV reader changes \r\n inside of quotes
		}
		c := &csvWriter{}
		c.field(0, []byte(want))
		c.field(1, []byte("x"))
		record, err := csv.NewReader(bytes.NewReader(c.buf)).Read()
		require.NoError(t, err)
		require.Equal(t, []string{want, "x"}, record)
	})
	require.Equal(t, "\"a\uFFFDb\"", string(appendQuoted(nil, "a\xffb")))
}

// everything is a row of every type that has a form in Parquet, and of those
// that have none.
const everything = `SELECT 1::TINYINT AS i8, 2::USMALLINT AS u16, 9007199254740993 AS i64, 18446744073709551615::UBIGINT AS u64,
	12345678901234567890123456789012345678::HUGEINT AS huge, 1.25::DECIMAL(10,2) AS dec, 0.5::FLOAT AS f32, 'nan'::DOUBLE AS f64,
	'x' AS text, '\x00\xFF'::BLOB AS blob, 'b'::ENUM('a', 'b') AS enum, ['b']::ENUM('a', 'b')[] AS enums, DATE '2026-01-31' AS day, TIME '09:30:00.5' AS clock,
	TIMESTAMPTZ '2026-01-31 09:30:00.000001+00' AS at, TIMESTAMP '2026-01-31 09:30:00' AS naive, '2026-01-31 09:30:00.123456789'::TIMESTAMP_NS AS ns,
	INTERVAL '1 month' AS span, [1, NULL] AS list, [1, 2]::INTEGER[2] AS fixed, {'a': 1, 'b': ['x']} AS struct, row(1, 2) AS bare,
	MAP {'k': 1} AS map, union_value(n := 1) AS uni, NULL AS nothing, true AS yes, 1 AS again, 2 AS again`

// TestPyarrow: another reader finds the same values in Arrow and Parquet.
func TestPyarrow(t *testing.T) {
	t.Parallel()
	python := "../../.venv/bin/python"
	if exec.Command(python, "-c", "import pyarrow").Run() != nil {
		t.Skip("no Python with pyarrow: make venv")
	}
	const program = `
import sys, pyarrow as pa, pyarrow.parquet as pq, datetime as d, decimal, math
data, parquet = sys.stdin.buffer.read(), sys.argv[1] == "parquet"
table = pq.read_table(pa.BufferReader(data)) if parquet else pa.ipc.open_stream(data).read_all()
table.validate(full=True)
assert table.num_rows == 2, table.num_rows
assert table.schema.metadata[b"icecore.row_count"] == b"2" and table.schema.metadata[b"icecore.truncated"] == b"true", table.schema.metadata
names = table.column_names
assert names[-2:] == (["again", "again_1"] if parquet else ["again", "again"]), names
for row in range(2):
    v = {n: table.column(i)[row] for i, n in enumerate(names)}
    ns = v.pop("ns"); assert ns.value == 1769851800123456789, ns
    span = v.pop("span"); uni = v.pop("uni"); bare = v.pop("bare"); enums = v.pop("enums")
    if parquet: assert (span.as_py(), uni.as_py(), bare.as_py(), enums.as_py()) == ("P1M", "1", "[1,2]", '["b"]'), (span, uni, bare, enums)
    else: assert uni.as_py() == 1 and span.as_py().months == 1 and enums.as_py() == ["b"]
    v = {n: x.as_py() for n, x in v.items()}
    assert math.isnan(v.pop("f64"))
    at = d.datetime(2026, 1, 31, 9, 30, 0, 1, d.timezone.utc)
    assert v.pop("at") == at
    assert v.pop("huge") == decimal.Decimal("12345678901234567890123456789012345678")
    want = dict(i8=1, u16=2, i64=9007199254740993, u64=2**64 - 1, dec=decimal.Decimal("1.25"), f32=0.5, text="x", blob=b"\x00\xff", enum="b",
        day=d.date(2026, 1, 31), clock=d.time(9, 30, 0, 500000), naive=d.datetime(2026, 1, 31, 9, 30), list=[1, None], fixed=[1, 2],
        struct=dict(a=1, b=["x"]), map=[("k", 1)], nothing=None, yes=True)
    for n, x in want.items(): assert v[n] == x, (n, v[n], x)
print("same")
# pyarrow may abort when the interpreter takes its threads down after a Parquet
# file was read from a Python object (apache/arrow #34314, #50482).
import os
sys.stdout.flush()
os._exit(0)
`
	for _, f := range []Format{{Media: Arrow}, {Media: Arrow, Codec: "zstd"}, {Media: Arrow, Codec: "lz4"}, {Media: Parquet}} {
		cmd := exec.Command(python, "-c", program, map[bool]string{true: "parquet", false: "arrow"}[f.Media == Parquet])
		cmd.Stdin = bytes.NewReader(write(t, f, everything+" FROM range(2)"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", f, out)
		require.Equal(t, "same\n", string(out))
	}
}

// TestParquetRowGroups: a large result is several row groups, an empty one none.
func TestParquetRowGroups(t *testing.T) {
	t.Parallel()
	big := write(t, Format{Media: Parquet}, "SELECT i, repeat(md5(i::VARCHAR), 40) AS s FROM range(60000) r(i)")
	none := write(t, Format{Media: Parquet}, "SELECT 1 AS i WHERE false")
	for raw, rows := range map[string]int64{string(big): 60000, string(none): 0} {
		n, groups := parquetRows(t, []byte(raw))
		require.Equal(t, rows, n)
		require.Equal(t, rows > 0, groups > 1, "%d groups", groups)
	}
}

// TestBreak: no reader takes a broken result for a whole one.
func TestBreak(t *testing.T) {
	t.Parallel()
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	broken := func(media string) []byte {
		var out bytes.Buffer
		w, err := New(&out, Format{Media: media}, schema, Info{})
		require.NoError(t, err)
		w.Break()
		return out.Bytes()
	}
	require.False(t, json.Valid(broken(JSON)))
	require.False(t, json.Valid(broken(NDJSON)))
	_, err := csv.NewReader(bytes.NewReader(broken(CSV))).ReadAll()
	require.Error(t, err)
	r, err := ipc.NewReader(bytes.NewReader(broken(Arrow)))
	if err == nil {
		for r.Next() {
			t.Fatal("a batch")
		}
		err = r.Err()
	}
	require.Error(t, err)
}

func TestNegotiate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		accept string
		want   Format
		ok     bool
	}{
		{"", Format{Media: JSON}, true},
		{"*/*", Format{Media: JSON}, true},
		{"application/*", Format{Media: JSON}, true},
		{"text/*", Format{Media: CSV}, true},
		{"text/html, application/xhtml+xml, */*;q=0.8", Format{Media: JSON}, true},
		{"text/csv;q=0.5, application/x-ndjson", Format{Media: NDJSON}, true},
		{"text/csv, application/x-ndjson", Format{Media: CSV}, true},
		{"application/json;q=0, */*;q=0.1", Format{Media: Arrow}, true},
		{`application/vnd.apache.arrow.stream; codecs="brotli, zstd, lz4"`, Format{Media: Arrow, Codec: "zstd"}, true},
		{`application/vnd.apache.arrow.stream; codecs="lz4"; q=0.9, text/csv;q=0.8`, Format{Media: Arrow, Codec: "lz4"}, true},
		{"application/vnd.apache.parquet", Format{Media: Parquet}, true},
		{"image/png", Format{}, false},
		{"application/json;q=0", Format{}, false},
		{"text/csv;q=7", Format{}, false},
		{"nonsense, text/csv", Format{Media: CSV}, true},
	} {
		got, ok := Negotiate([]string{c.accept})
		require.Equal(t, c.ok, ok, c.accept)
		if ok {
			require.Equal(t, c.want, got, c.accept)
		}
	}
}
