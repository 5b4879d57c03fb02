package warehouse

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// minSpill is what DuckDB may spill however full the disk is: its own work needs
// some room too.
const minSpill = 256 * mib

// spillDir is where the warehouse at path spills: a directory of its own inside
// temp, for several servers may share that.
func spillDir(temp, path string) (string, error) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("name the spill directory: %w", err)
	}
	sum := sha256.Sum256([]byte(whole))
	return filepath.Join(temp, fmt.Sprintf("icecore-spill-%x", sum[:4])), nil
}

// sweepSpill deletes what a process that was killed has left in dir: DuckDB never
// looks at it again, and it may be most of the disk.
func sweepSpill(dir string) error {
	left, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look for spilled files: %w", err)
	}
	for _, file := range left {
		if !strings.HasPrefix(file.Name(), "duckdb_temp_") {
			continue
		}
		if err := os.Remove(filepath.Join(dir, file.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("delete a spilled file that an earlier process left: %w", err)
		}
	}
	return nil
}

// spillLimit is how many bytes DuckDB may spill, by what is free now.
func (o Options) spillLimit() (int64, error) {
	free, err := freeAt(o.TempDir)
	if err != nil {
		return 0, err
	}
	limit := max(0, free-max(0, o.DiskFloor)) / 2
	if o.SpillLimit > 0 {
		limit = min(o.SpillLimit, limit)
	}
	return max(limit, minSpill), nil
}

// freeAt is the free space, in bytes, at dir or where it would be made.
func freeAt(dir string) (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	for errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = unix.Statfs(dir, &st)
	}
	if err != nil {
		return 0, fmt.Errorf("ask for free space at %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}
