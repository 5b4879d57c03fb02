package warehouse

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

// A large result comes in pieces: of a few MiB, or one row; and a limit counts
// them, not DuckDB's batches.
func TestAskInPieces(t *testing.T) {
	t.Parallel()
	e := asked(t)
	// 1,000 rows are one batch of DuckDB's; every hundredth has 6 MB, the others
	// next to nothing.
	const sql = `SELECT i, repeat('x', CASE WHEN i % 100 = 0 THEN 6000000 ELSE 1 END) AS text, [i, i] AS list FROM range(1000) t(i)`
	for _, test := range []struct {
		maxRows, maxBytes, least, most int64
		truncated                      bool
	}{
		{0, 0, 1000, 1000, false},
		{0, 60_100_000, 1000, 1000, false},
		{0, 1, 1, 100, true},
		{0, 12_100_000, 201, 300, true},
		{501, 0, 501, 501, true},
		{1000, 0, 1000, 1000, false},
	} {
		next := int64(0)
		reply, err := e.Ask(t.Context(), Ask{SQL: sql, MaxRows: test.maxRows, MaxBytes: test.maxBytes}, func(rec arrow.RecordBatch) error {
			size, err := batchBytes(rec)
			require.NoError(t, err)
			require.True(t, size <= pieceBytes || rec.NumRows() == 1, "%d bytes in %d rows", size, rec.NumRows())
			for row := range int(rec.NumRows()) {
				require.Equal(t, next, column(rec, 0, row))
				require.Equal(t, next%100 == 0, strings.HasSuffix(rec.Column(1).ValueStr(row), "xx"))
				next++
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, next, reply.Rows)
		require.Equal(t, test.truncated, reply.Truncated, "%+v", test)
		require.GreaterOrEqual(t, reply.Rows, test.least, "%+v", test)
		require.LessOrEqual(t, reply.Rows, test.most, "%+v", test)
	}
	// Exactly at the edge: the limit is met by the last piece, and by the last but one.
	var sizes []int64
	whole, err := e.Ask(t.Context(), Ask{SQL: sql}, func(rec arrow.RecordBatch) error {
		size, err := batchBytes(rec)
		sizes = append(sizes, size)
		return err
	})
	require.NoError(t, err)
	require.Greater(t, len(sizes), 10)
	_, reply, err := answer(t.Context(), e, Ask{SQL: sql, MaxBytes: whole.Bytes})
	require.NoError(t, err)
	require.Equal(t, whole, reply)
	_, reply, err = answer(t.Context(), e, Ask{SQL: sql, MaxBytes: whole.Bytes - sizes[len(sizes)-1]})
	require.NoError(t, err)
	require.True(t, reply.Truncated)
}
