package warehouse

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

func TestAskAnswers(t *testing.T) {
	t.Parallel()
	e := asked(t)
	got, reply, err := answer(t.Context(), e, Ask{SQL: `SELECT trace_id, seq FROM v1.traces ORDER BY seq, trace_id LIMIT 2`})
	require.NoError(t, err)
	require.EqualValues(t, 2, reply.Rows)
	require.Positive(t, reply.Bytes)
	require.False(t, reply.Truncated)
	require.Len(t, got, 1)
	require.Equal(t, []string{"trace_id", "seq"}, []string{got[0].ColumnName(0), got[0].ColumnName(1)})
	require.Equal(t, "t-0", got[0].Column(0).ValueStr(0))
}

// No rows still tell their columns.
func TestAskWithoutRows(t *testing.T) {
	t.Parallel()
	e := asked(t)
	got, reply, err := answer(t.Context(), e, Ask{SQL: `FROM traces WHERE false`, MaxRows: 5})
	require.NoError(t, err)
	require.Equal(t, Reply{}, reply)
	require.Len(t, got, 1)
	require.EqualValues(t, 0, got[0].NumRows())
	require.EqualValues(t, 13, got[0].NumCols())
}

func TestAskCuts(t *testing.T) {
	t.Parallel()
	e := asked(t)
	for _, c := range []struct {
		rows, maxRows, maxBytes, want int64
		truncated                     bool
	}{
		{10, 0, 0, 10, false},
		{10, 10, 0, 10, false},
		{10, 9, 0, 9, true},
		{2048, 2048, 0, 2048, false},
		{2049, 2048, 0, 2048, true},
		{5000, 4999, 0, 4999, true},
		{5000, 5001, 0, 5000, false},
		{2048, 0, 1, 2048, false}, // the batch with which the limit is passed still comes
		{2049, 0, 1, 2048, true},
		{100_000, 0, 3 * 2048 * 8, 3 * 2048, true},
		{0, 1, 1, 0, false},
	} {
		got, reply, err := answer(t.Context(), e, Ask{SQL: `SELECT range AS i FROM range($1)`, Params: []any{c.rows},
			MaxRows: c.maxRows, MaxBytes: c.maxBytes})
		require.NoError(t, err)
		require.Equal(t, c.want, reply.Rows, "%+v", c)
		require.Equal(t, c.truncated, reply.Truncated, "%+v", c)
		n := int64(0)
		for _, rec := range got {
			n += rec.NumRows()
		}
		require.Equal(t, reply.Rows, n)
	}
}

// A result that would never end is cut at once, and memory stays what it was.
func TestAskStreams(t *testing.T) {
	t.Parallel()
	e := asked(t)
	for _, sql := range []string{
		`FROM range(1000000000000)`,
		`SELECT t.range, s.range AS other FROM range(1000000000000) t, range(100) s WHERE t.range % 3 = 0`,
		`WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i FROM n, range(1000000000000)`,
	} {
		_, reply, err := answer(t.Context(), e, Ask{SQL: sql, MaxRows: 10})
		require.NoError(t, err, sql)
		require.Equal(t, Reply{Rows: 10, Bytes: reply.Bytes, Truncated: true}, reply, sql)
	}
	// 400 MB of result, in a warehouse that may use 256 MiB and does not spill.
	_, reply, err := e.askAndForget(t.Context(), `SELECT range, repeat('x', 100) FROM range(4000000)`)
	require.NoError(t, err)
	require.EqualValues(t, 4_000_000, reply.Rows)
	require.Greater(t, reply.Bytes, int64(400_000_000))
}

// askAndForget asks and counts the batches.
func (e *Engine) askAndForget(ctx context.Context, sql string) (batches int, reply Reply, err error) {
	reply, err = e.Ask(ctx, Ask{SQL: sql}, func(arrow.RecordBatch) error { batches++; return nil })
	return batches, reply, err
}

func TestAskBinds(t *testing.T) {
	t.Parallel()
	e := asked(t)
	require.Equal(t, "9223372036854775807", one(t, e, Ask{SQL: `SELECT $1`, Params: []any{int64(9223372036854775807)}}))
	require.Equal(t, "1.5|(null)|true|x", one(t, e, Ask{SQL: `SELECT concat_ws('|', ?, ifnull(?, '(null)'), ?, ?)`, Params: []any{1.5, nil, true, "x"}}))
	require.Equal(t, "3", one(t, e, Ask{SQL: `SELECT $b - $A`, Named: map[string]any{"a": int64(1), "$B": int64(4)}}))
	require.Equal(t, "3", one(t, e, Ask{SQL: `SELECT $1 + $1 + $2`, Params: []any{int64(1), int64(1)}}))
	require.Equal(t, "5", one(t, e, Ask{SQL: `SELECT count(*) FROM traces WHERE started_at >= $1 AND rollout_id = $2`,
		Params: []any{"2025-03-01T00:00:00Z", "r-3"}}), "a text is cast to what it is compared with")
	require.Equal(t, "it's \" ; DROP", one(t, e, Ask{SQL: `SELECT $1`, Params: []any{`it's " ; DROP`}}))
	require.Equal(t, "a\x00b", one(t, e, Ask{SQL: `SELECT $1`, Params: []any{"a\x00b"}}))

	for _, c := range []struct {
		ask  Ask
		said string
	}{
		{Ask{SQL: `SELECT $1, $2`, Params: []any{int64(1)}}, "no value is given for $2"},
		{Ask{SQL: `SELECT ?, ?`}, "no value is given for $1, $2"},
		{Ask{SQL: `SELECT $name`, Params: []any{int64(1)}}, "no value is given for $name"},
		{Ask{SQL: `SELECT 1`, Params: []any{int64(1)}}, "the statement does not use $1"},
		{Ask{SQL: `SELECT 1`, Params: make([]any, 12)}, "the statement does not use $1, $2, $3, $4, $5 and 7 more"},
		{Ask{SQL: `SELECT ?` + strings.Repeat(`, ?`, 5)}, "no value is given for $1, $2, $3, $4, $5 and 1 more"},
		{Ask{SQL: `SELECT $2`, Params: []any{int64(1), int64(2)}}, "without a gap"},
		{Ask{SQL: `SELECT $a`, Named: map[string]any{"a": int64(1), "b": int64(2)}}, "the statement does not use $b"},
		{Ask{SQL: `SELECT $a`, Named: map[string]any{"a": int64(1), "$a": int64(2)}}, "$a is given twice"},
		{Ask{SQL: `SELECT $a`, Named: map[string]any{"a": int64(1)}, Params: []any{nil}}, "one way"},
		{Ask{SQL: `SELECT $1`, Params: []any{[]any{}}}, "the value of $1"},
		{Ask{SQL: `SELECT $1`, Params: []any{"\xff"}}, "not UTF-8"},
		{Ask{SQL: `SELECT $1, $a`, Params: []any{int64(1)}}, "Mixing"},
		{Ask{SQL: `SELECT sum(x) FROM range($1) t(x)`, Params: []any{"many"}}, "range(VARCHAR)"},
	} {
		wantFault(t, e, c.ask, FaultBinding, c.said)
	}
}

func TestFaultsOfStatements(t *testing.T) {
	t.Parallel()
	e := asked(t)
	for _, c := range []struct {
		sql, code, said string
		// at is the text at the position; empty: none.
		at string
	}{
		{"", FaultSyntax, "no statement", ""},
		{" ;; ", FaultSyntax, "no statement", ""},
		{"SELECT\n  1 +\n FROM traces", FaultSyntax, "FROM", "FROM"},
		{"SELECT 1\x00; DROP TABLE x", FaultSyntax, "zero byte", "\x00"},
		{"SELECT '\xff'", FaultSyntax, "UTF-8", ""},
		{"SELECT '" + strings.Repeat("x", 1<<20) + "'", FaultRefused, "bytes", ""},
		{"SELECT nosuch\nFROM traces", FaultBinding, "nosuch", "nosuch"},
		{"SELECT seq,\n       nosuch\nFROM traces", FaultBinding, "nosuch", "nosuch"},
		{"SELECT 'ä', nosuch FROM traces", FaultBinding, "nosuch", ""},
		{"SELECT abs('x', 2)", FaultBinding, "abs(", "abs"},
		{"FROM trace", FaultBinding, "there are: rewards, rollouts, traces", "trace"},
		{"SELECT '2'::INTEGER, 'a'::INTEGER", FaultFailed, "Could not convert string 'a'", "::INTEGER, 'a'"},
		{"SELECT 9223372036854775807 + seq FROM traces", FaultFailed, "Overflow", ""},
		{"SELECT error('no ' || 'way')", FaultFailed, "no way", ""},
		{"SELECT list(range) FROM range(1000000000)", FaultMemory, "failed to", ""},
	} {
		fault := wantFault(t, e, Ask{SQL: c.sql}, c.code, c.said)
		want := -1
		if c.at != "" {
			want = strings.Index(c.sql, c.at)
		}
		if c.code != FaultFailed { // DuckDB tells it for some, not for all
			require.Equal(t, want, fault.Position, "%.50q: %s", c.sql, fault.Message)
		}
		for _, inner := range []string{"hidden", "Did you mean", "memory_limit", "SET ", "LINE ", "Error:"} {
			require.NotContains(t, fault.Message, inner)
		}
	}
}

// What a user writes never passes for a fault of the database.
func TestUsersTextIsNoFaultOfTheWarehouse(t *testing.T) {
	t.Parallel()
	e := asked(t)
	for _, sign := range []string{"FATAL Error: x", "INTERNAL Error: x", "database has been invalidated", "database is closed",
		"INTERRUPT Error: x", "Out of Memory Error: x"} {
		for _, sql := range []string{`SELECT error($1)`, `SELECT $1::INTEGER`, `SELECT strptime('x', $1)`} {
			wantFault(t, e, Ask{SQL: sql, Params: []any{sign}}, FaultFailed, "")
		}
		wantFault(t, e, Ask{SQL: `SELECT "` + sign + `" FROM traces`}, FaultBinding, sign)
		wantFault(t, e, Ask{SQL: `FROM "` + sign + `: x"`}, FaultRefused, sign)
	}
	healed, err := e.Heal(t.Context())
	require.NoError(t, err)
	require.False(t, healed)
}

// forever runs until it is interrupted, without a row.
const forever = `SELECT count(*) FROM range(1000000000000) t WHERE hash(range) = 1`

func TestAskEndsWithItsContext(t *testing.T) {
	t.Parallel()
	e := asked(t)
	for _, sql := range []string{
		forever,
		`SELECT max(a.range + b.range) FROM range(10000000) a, range(10000000) b`,
		`WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n`,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, _, err := answer(ctx, e, Ask{SQL: sql})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, sql)
	}
	// Between two batches.
	ctx, cancel := context.WithCancel(t.Context())
	batches := 0
	_, err := e.Ask(ctx, Ask{SQL: `FROM range(1000000000000)`}, func(arrow.RecordBatch) error {
		if batches++; batches == 3 {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, batches)
	// Before it began.
	_, _, err = answer(ctx, e, Ask{SQL: `SELECT 1`})
	require.ErrorIs(t, err, context.Canceled)
	// The connections are as good as before.
	for range 10 {
		require.Equal(t, "100", one(t, e, Ask{SQL: `SELECT count(*) FROM traces`}))
	}
}

func TestEachEndsAnAsk(t *testing.T) {
	t.Parallel()
	e := asked(t)
	enough := errors.New("enough")
	reply, err := e.Ask(t.Context(), Ask{SQL: `FROM range(1000000000000)`}, func(arrow.RecordBatch) error { return enough })
	require.ErrorIs(t, err, enough)
	require.EqualValues(t, 0, reply.Rows)
}

func TestAsksAtOnce(t *testing.T) {
	t.Parallel()
	e := asked(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 10 {
				sql := fmt.Sprintf(`SELECT count(*) + %d FROM traces, range(%d)`, i, j+1)
				got, _, err := answer(t.Context(), e, Ask{SQL: sql})
				if err != nil || got[0].Column(0).ValueStr(0) != fmt.Sprint(100*(j+1)+i) {
					t.Errorf("%s: %v %v", sql, got, err)
				}
				if _, _, err := answer(t.Context(), e, Ask{SQL: `SELECT nosuch`}); err == nil {
					t.Error("no fault")
				}
			}
		})
	}
	wg.Wait()
}

// While one reads, the others write: an answer that is taken slowly holds up
// neither rows nor checkpoints, and sees what was there when it began.
func TestWritesGoOnDuringAnAsk(t *testing.T) {
	t.Parallel()
	e := asked(t)
	count := `SELECT count(*) FROM hidden.calls`
	rows := 0
	_, err := e.Ask(t.Context(), Ask{SQL: `SELECT t.trace_id, x.range FROM traces t, range(1000) x`}, func(rec arrow.RecordBatch) error {
		if rows == 0 {
			before, err := e.Int(t.Context(), count)
			require.NoError(t, err)
			require.NoError(t, e.Apply(t.Context(), nil, nil, `INSERT INTO hidden.calls FROM hidden.calls LIMIT 7`))
			after, err := e.Int(t.Context(), count)
			require.NoError(t, err)
			require.Equal(t, before+7, after)
			_, err = e.Checkpoint(t.Context())
			require.NoError(t, err)
		}
		rows += int(rec.NumRows())
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 100_000, rows)
	clean, err := e.Checkpoint(t.Context())
	require.NoError(t, err)
	require.True(t, clean)
}

// A result that no reader could take is refused before its first row.
func TestShapeOfResult(t *testing.T) {
	t.Parallel()
	e := asked(t)
	nested := func(levels int, kind string) string {
		open, end := strings.Repeat("[", levels), strings.Repeat("]", levels)
		return `SELECT ` + open + kind + end + ` AS v`
	}
	for _, c := range []struct{ fits, not, said string }{
		{nested(59, `1`), nested(60, `1`), `column "v": its type is nested deeper than 60`},
		{nested(57, `MAP {1: 2}`), nested(58, `MAP {1: 2}`), "nested deeper than 60"},
		{nested(58, `{'a': 1}`), nested(59, `{'a': 1}`), "nested deeper than 60"},
		{`SELECT 1` + strings.Repeat(", 1", 9_999), `SELECT 1` + strings.Repeat(", 1", 10_000), "10001 columns"},
	} {
		_, _, err := answer(t.Context(), e, Ask{SQL: c.fits})
		require.NoError(t, err, "%.100s", c.fits)
		wantFault(t, e, Ask{SQL: c.not}, FaultBinding, c.said)
	}
}
