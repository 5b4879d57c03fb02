package table

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/stretchr/testify/require"
)

func parquetRows(t *testing.T, raw []byte) (rows int64, groups int) {
	t.Helper()
	f, err := file.NewParquetReader(bytes.NewReader(raw))
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // it was only read
	return f.NumRows(), f.NumRowGroups()
}
