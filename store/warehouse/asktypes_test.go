package warehouse

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
)

// Every type comes through whole, into Arrow and through its stream format: what
// DuckDB shows of a value is what the value shows in Arrow.
func TestTypesComeThrough(t *testing.T) {
	t.Parallel()
	e := asked(t)
	for _, c := range []struct{ expr, kind, shown string }{
		{`true`, "bool", "true"},
		{`(-128)::TINYINT`, "int8", "-128"},
		{`(-32768)::SMALLINT`, "int16", "-32768"},
		{`(-2147483648)::INTEGER`, "int32", "-2147483648"},
		{`9007199254740993`, "int64", "9007199254740993"},
		{`(-9223372036854775808)::BIGINT`, "int64", "-9223372036854775808"},
		{`255::UTINYINT`, "uint8", "255"},
		{`65535::USMALLINT`, "uint16", "65535"},
		{`4294967295::UINTEGER`, "uint32", "4294967295"},
		{`18446744073709551615::UBIGINT`, "uint64", "18446744073709551615"},
		{`0.1::FLOAT`, "float32", "0.1"},
		{`0.1::DOUBLE`, "float64", "0.1"},
		{`'-inf'::DOUBLE`, "float64", "-Inf"},
		{`'nan'::FLOAT`, "float32", "NaN"},
		{`1.5::DECIMAL(4, 1)`, "decimal(4, 1)", "1.5"},
		{`-12345678901234567.89`, "decimal(19, 2)", "-12345678901234567.89"},
		{`sum(9223372036854775807::BIGINT)`, "decimal(38, 0)", "9223372036854775807"},
		{`(-99999999999999999999999999999999999999)::HUGEINT`, "decimal(38, 0)", "-99999999999999999999999999999999999999"},
		{`'8cfee48e-d7ac-4b1d-a2ee-7f7c60e0f4a5'::UUID`, "utf8", "8cfee48e-d7ac-4b1d-a2ee-7f7c60e0f4a5"},
		{`'b'::ENUM('a', 'b')`, "dictionary<values=utf8, indices=uint8, ordered=false>", "b"},
		{`'a' || chr(0) || 'ä'`, "utf8", "a\x00ä"},
		{`'\x00\xFF'::BLOB`, "binary", "AP8="},
		{`DATE '2025-02-28'`, "date32", "2025-02-28"},
		{`TIME '23:59:59.999999'`, "time64[us]", "23:59:59.999999"},
		{`'12:00:00.123456789'::TIME_NS`, "time64[ns]", "12:00:00.123456789"},
		{`TIMESTAMP '2025-01-01 00:00:00.000001'`, "timestamp[us]", "2025-01-01T00:00:00.000001"},
		{`'2025-01-01 00:00:00.123456789'::TIMESTAMP_NS`, "timestamp[ns]", "2025-01-01T00:00:00.123456789"},
		{`'2025-01-01'::TIMESTAMP_S`, "timestamp[s]", "2025-01-01T00:00:00"},
		{`'2025-01-01 00:00:00.001'::TIMESTAMP_MS`, "timestamp[ms]", "2025-01-01T00:00:00.001"},
		{`TIMESTAMPTZ '2025-01-01 01:00:00+01'`, "timestamp[us, tz=UTC]", "2025-01-01T00:00:00Z"},
		{`INTERVAL '14 months 3 days 4.000005 seconds'`, "month_day_nano_interval", `{"months":14,"days":3,"nanoseconds":4000005000}`},
		{`'{"a": 12345678901234567890}'::JSON`, "utf8", `{"a": 12345678901234567890}`},
		{`NULL`, "int32", "(null)"},
		{`[1, NULL, 3]`, "list<l: int32, nullable>", "[1,null,3]"},
		{`[]::BIGINT[]`, "list<l: int64, nullable>", "[]"},
		{`[[1], NULL, []]`, "list<l: list<l: int32, nullable>, nullable>", "[[1],null,[]]"},
		{`[1, 2]::INTEGER[2]`, "fixed_size_list<: int32, nullable>[2]", "[1,2]"},
		{`{'a': 1, 'b': ['x']}`, "struct<a: int32 nullable, b: list<l: utf8, nullable> nullable>", `{"a":1,"b":["x"]}`},
		{`MAP {'k': 1::HUGEINT}`, "map<utf8, decimal(38, 0), items_nullable>", `[{"key":"k","value":"1"}]`},
		{`'x'::UNION(n INTEGER, s VARCHAR)`, "sparse_union<n: type=int32, nullable=0, s: type=utf8, nullable=1>", `[1,"x"]`},
		{`['b'::ENUM('a', 'b')]`, "list<l: dictionary<values=utf8, indices=uint8, ordered=false>, nullable>", `["b"]`},
		{`histogram('x')`, "map<utf8, uint64, items_nullable>", `[{"key":"x","value":1}]`},
	} {
		ask := Ask{SQL: `SELECT ` + c.expr + ` AS x`}
		got, _, err := answer(t.Context(), e, ask)
		require.NoError(t, err, c.expr)
		for _, rec := range []arrow.RecordBatch{got[0], throughStream(t, got)[0]} {
			require.Equal(t, c.kind, rec.Schema().Field(0).Type.String(), c.expr)
			require.Equal(t, c.shown, rec.Column(0).ValueStr(0), c.expr)
		}
		// No rows, and many, partly NULL.
		none, _, err := answer(t.Context(), e, Ask{SQL: ask.SQL + ` LIMIT 0`})
		require.NoError(t, err, c.expr)
		require.True(t, none[0].Schema().Equal(got[0].Schema()), c.expr)
		throughStream(t, none)
		many, _, err := answer(t.Context(), e, Ask{SQL: `SELECT x FROM (` + ask.SQL + `) RIGHT JOIN range(5000) t(i) ON i % 3 <> 1`,
			MaxRows: 4999})
		require.NoError(t, err, c.expr)
		row := 0
		for _, rec := range throughStream(t, many) {
			for i := range int(rec.NumRows()) {
				if c.shown != "(null)" && rec.Column(0).IsValid(i) && rec.Column(0).DataType().ID() != arrow.SPARSE_UNION {
					require.Equal(t, c.shown, rec.Column(0).ValueStr(i), c.expr)
				}
				row++
			}
		}
		require.Equal(t, 4999, row, c.expr)
	}
}

// throughStream writes batches as an Arrow stream and reads them back.
func throughStream(t *testing.T, recs []arrow.RecordBatch) (out []arrow.RecordBatch) {
	t.Helper()
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, ipc.WithSchema(recs[0].Schema()))
	for _, rec := range recs {
		require.NoError(t, w.Write(rec))
	}
	require.NoError(t, w.Close())
	r, err := ipc.NewReader(&buf)
	require.NoError(t, err)
	defer r.Release()
	for r.Next() {
		rec := r.RecordBatch()
		rec.Retain()
		out = append(out, rec)
	}
	require.NoError(t, r.Err())
	require.Len(t, out, len(recs))
	return out
}

// What Arrow cannot hold whole is refused, with what to do; nothing is rounded,
// wrapped or cut.
func TestTypesThatWouldLose(t *testing.T) {
	t.Parallel()
	e := asked(t)
	for _, c := range []struct{ expr, code, said string }{
		{`1::UHUGEINT`, FaultBinding, "HUGEINT or VARCHAR"},
		{`md5_number('a')`, FaultBinding, "HUGEINT or VARCHAR"},
		{`'12:00:00+05'::TIMETZ`, FaultBinding, "zone"},
		{`'0101'::BIT`, FaultBinding, "VARCHAR"},
		{`'123456789012345678901234567890123456789012345'::BIGNUM`, FaultBinding, "VARCHAR"},
		{`[{'a': '01'::BIT}]`, FaultBinding, "VARCHAR"},
		{`MAP {'a': 1::UHUGEINT}`, FaultBinding, "VARCHAR"},
		{`170141183460469231731687303715884105727::HUGEINT`, FaultFailed, "38 digits"},
		{`[[NULL, 170141183460469231731687303715884105727::HUGEINT]]`, FaultFailed, "38 digits"},
		{`{'a': (-100000000000000000000000000000000000000)::HUGEINT}`, FaultFailed, "38 digits"},
		{`MAP {1: 100000000000000000000000000000000000000::HUGEINT}`, FaultFailed, "38 digits"},
		{`[100000000000000000000000000000000000000]::HUGEINT[1]`, FaultFailed, "38 digits"},
		{`to_microseconds(9223372036854775807)`, FaultFailed, "INTERVAL"},
		{`-to_hours(3000000)`, FaultFailed, "INTERVAL"},
		{`[to_hours(3000000)]`, FaultFailed, "INTERVAL"},
	} {
		fault := wantFault(t, e, Ask{SQL: `SELECT ` + c.expr + ` AS x`}, c.code, c.said)
		require.Contains(t, fault.Message, `"x"`)
		require.NotEmpty(t, one(t, e, Ask{SQL: `SELECT (` + c.expr + `)::VARCHAR`}), "its way out: a cast")
	}
}

// Each row of a union keeps its own kind.
func TestUnionsKeepTheirKind(t *testing.T) {
	t.Parallel()
	e := asked(t)
	got, _, err := answer(t.Context(), e, Ask{SQL: `SELECT CASE WHEN i % 2 = 0 THEN i::UNION(n BIGINT, s VARCHAR)
		ELSE ('s' || i)::UNION(n BIGINT, s VARCHAR) END AS u FROM range(3000) t(i) ORDER BY i`})
	require.NoError(t, err)
	i := 0
	for _, rec := range throughStream(t, got) {
		u := rec.Column(0).(array.Union)
		for row := range u.Len() {
			want := fmt.Sprintf(`[0,%d]`, i)
			if i%2 == 1 {
				want = fmt.Sprintf(`[1,"s%d"]`, i)
			}
			require.Equal(t, want, u.ValueStr(row))
			i++
		}
	}
	require.Equal(t, 3000, i)
}
