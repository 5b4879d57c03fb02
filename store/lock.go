package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process holds the data directory.
var ErrLocked = errors.New("the data directory is in use")

// dirLock keeps a second process out of the data directory. It is a file of its
// own: opening and closing the DuckDB file would drop DuckDB's own lock.
type dirLock struct{ f *os.File }

func lockDir(dir, owner string) (*dirLock, error) {
	path := filepath.Join(dir, "icecore.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 1024))
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s is held by %s; stop that process or choose another --data",
				ErrLocked, dir, describeHolder(string(holder)))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	text := fmt.Sprintf("process %d, %s, since %s\n", os.Getpid(), owner, time.Now().UTC().Format(time.RFC3339))
	if err := errors.Join(f.Truncate(0), writeAt(f, text), f.Sync()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write lock file: %w", err)
	}
	return &dirLock{f}, nil
}

func describeHolder(text string) string {
	if text = strings.TrimSpace(text); text != "" {
		return text
	}
	return "another process"
}

func writeAt(f *os.File, text string) error {
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("write %s: %w", f.Name(), err)
	}
	return nil
}

// release drops the lock. The file stays: removing it would race with a process
// that has just opened it.
func (l *dirLock) release() error {
	return errors.Join(l.f.Truncate(0), l.f.Close())
}
