package warehouse

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a killed process has spilled is deleted when the file is opened, and
// nothing else that lies there.
func TestSpillIsSwept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, o := filepath.Join(dir, "w.duckdb"), testOptions(dir)
	ours, err := spillDir(o.TempDir, path)
	require.NoError(t, err)
	theirs, err := spillDir(o.TempDir, filepath.Join(dir, "other.duckdb"))
	require.NoError(t, err)
	require.NotEqual(t, ours, theirs)
	keep := []string{filepath.Join(ours, "notes"), filepath.Join(theirs, "duckdb_temp_storage-0.tmp"), filepath.Join(o.TempDir, "duckdb_temp_x")}
	left := filepath.Join(ours, "duckdb_temp_storage-0.tmp")
	for _, file := range append(keep, left) {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte("spilled"), 0o600))
	}
	e, err := Open(path, o)
	require.NoError(t, err)
	require.NoFileExists(t, left)
	require.NoError(t, e.Close())
	for _, file := range keep {
		require.FileExists(t, file)
	}
}

// Spilling is bounded, happens in a directory of its own, and the refusal gives no
// advice that users cannot follow.
func TestSpillLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := testOptions(dir)
	o.MemoryLimit, o.SpillLimit = 64*mib, 1
	e, err := Open(filepath.Join(dir, "w.duckdb"), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	var limit string
	require.NoError(t, e.db.QueryRowContext(t.Context(), `SELECT current_setting('max_temp_directory_size')`).Scan(&limit))
	require.Equal(t, "256.0 MiB", limit)
	_, _, err = e.askAndForget(t.Context(), `SELECT max(x) FROM (SELECT repeat(i::VARCHAR, 50) AS x FROM range(20000000) t(i) ORDER BY x OFFSET 1)`)
	var fault *Fault
	require.ErrorAs(t, err, &fault)
	require.Equal(t, FaultMemory, fault.Code)
	require.Contains(t, fault.Message, "failed to offload")
	for _, advice := range []string{"PRAGMA", "max_temp_directory_size", "setting"} {
		require.NotContains(t, fault.Message, advice)
	}
}

func TestSpillLimitByWhatIsFree(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "made")
	free, err := freeAt(dir)
	require.NoError(t, err)
	require.Positive(t, free)
	for _, test := range []struct {
		option, floor int64
		least, most   int64
	}{
		{0, free, minSpill, minSpill},
		{1, 0, minSpill, minSpill},
		{1 << 60, -1, minSpill, max(minSpill, free*3/4)},
		{minSpill + mib, 0, minSpill, minSpill + mib},
	} {
		limit, err := Options{TempDir: dir, SpillLimit: test.option, DiskFloor: test.floor}.spillLimit()
		require.NoError(t, err)
		require.LessOrEqual(t, limit, test.most, "%+v", test)
		require.GreaterOrEqual(t, limit, test.least, "%+v", test)
	}
}
