package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"icecore/failpoint"
	"icecore/migrations"
)

// Store keeps traces and all that belongs to them. It is safe for concurrent
// use. Open it once per data directory.
type Store struct {
	opts      Options
	log       *slog.Logger
	lock      *dirLock
	control   *control
	warehouse waist
	heads     *headCache
	committer *committer
	drainer   *drainer
	metrics   *metrics
	groups    *broadcast
	keys      *keyCache
	versions  versions
	report    string

	background sync.WaitGroup
	cancel     context.CancelFunc
	free       freeSpace
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Names of the files in a data directory.
const (
	controlFile   = "control.sqlite"
	warehouseFile = "warehouse.duckdb"
)

// Open opens or makes a data directory. What an earlier process left half done
// is finished or undone before it returns.
func Open(ctx context.Context, opts Options) (_ *Store, err error) {
	if opts.Dir == "" {
		return nil, errors.New("open store: no data directory given")
	}
	if opts.Dir, err = filepath.Abs(opts.Dir); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if strings.ContainsAny(opts.Dir, "?%#") {
		return nil, fmt.Errorf("open store: the data directory %s has one of the characters ? %% # in its path, "+
			"which DuckDB's driver reads as part of an address; choose another", opts.Dir)
	}
	if opts.TempDir == "" {
		opts.TempDir = filepath.Join(opts.Dir, "tmp")
	}
	opts = opts.withDefaults()
	if err := os.MkdirAll(opts.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	s := &Store{opts: opts, log: opts.Log, heads: newHeadCache(), metrics: newMetrics(),
		groups: newBroadcast(), keys: newKeyCache()}
	if s.lock, err = lockDir(opts.Dir, opts.Owner); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeFiles())
		}
	}()
	if s.control, err = openControl(filepath.Join(opts.Dir, controlFile)); err != nil {
		return nil, err
	}
	hit := func() { _ = failpoint.Hit("migrate.inside") }
	if err := migrations.Control(s.control.write, hit); err != nil {
		return nil, err
	}
	setAside, err := s.openWarehouse(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.recover(ctx, setAside); err != nil {
		return nil, err
	}
	if err := s.floorSeqs(ctx); err != nil {
		return nil, err
	}
	if err := s.loadVersions(ctx); err != nil {
		return nil, err
	}
	if s.committer, err = newCommitter(ctx, s); err != nil {
		return nil, err
	}
	s.drainer = newDrainer(s)
	if err := s.resume(ctx); err != nil {
		return nil, err
	}
	s.start()
	return s, nil
}

// now is the wall clock, in microseconds.
func (s *Store) now() int64 { return s.opts.Clock().UnixMicro() }

// resume tells the drainer where the two databases stand.
func (s *Store) resume(ctx context.Context) error {
	d := s.drainer
	if err := d.reckon(ctx); err != nil {
		return err
	}
	if d.newest > d.drained {
		d.oldestWait = time.Now()
		d.wake()
	}
	return nil
}

func (s *Store) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	// Without a way to be cancelled a statement needs no goroutine that watches
	// for it, and a commit is never to be broken off.
	go s.committer.loop(context.Background())
	go s.drainer.loop(ctx)
	s.background.Go(func() { s.checkpointControl(ctx) })
}

// walSoft and walHard are sizes of the control database's write-ahead log at
// which it is moved without, and with, making commits wait.
const (
	walSoft = 4 * mib
	walHard = 256 * mib
)

func (s *Store) checkpointControl(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	db, err := sql.Open("sqlite", controlDSN(s.control.path, "rw"))
	if err != nil {
		s.log.Error("open control database for checkpoints", "err", err)
		return
	}
	defer db.Close() //nolint:errcheck // nothing was written through it that could be lost
	db.SetMaxOpenConns(1)
	var last int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		info, err := os.Stat(s.control.path + "-wal")
		if err != nil || info.Size() < walSoft || info.Size() == last && info.Size() < walHard {
			continue
		}
		if err := s.control.checkpoint(ctx, db, info.Size() >= walHard); err != nil && ctx.Err() == nil {
			s.log.Error("checkpoint control database", "err", err)
		}
		last = info.Size()
	}
}

// Close commits what is queued, drains it, and closes both databases. Requests
// that come later get ErrClosed.
func (s *Store) Close(ctx context.Context) error {
	s.committer.stop()
	err := s.drainer.stop(ctx)
	s.cancel()
	s.background.Wait()
	return errors.Join(err, s.closeFiles())
}

func (s *Store) closeFiles() error {
	var errs []error
	if s.warehouse != nil {
		errs = append(errs, s.warehouse.Close())
	}
	if s.committer != nil {
		errs = append(errs, s.committer.st.close(), s.committer.conn.Close())
	}
	if s.control != nil {
		errs = append(errs, s.control.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	return errors.Join(errs...)
}

// WaitDrained blocks until SQL sees everything up to batch.
func (s *Store) WaitDrained(ctx context.Context, batch int64) error {
	return s.drainer.wait(ctx, batch)
}

// NewestBatch is the newest batch that was made durable.
func (s *Store) NewestBatch() int64 {
	s.drainer.mu.Lock()
	defer s.drainer.mu.Unlock()
	return s.drainer.newest
}

// ErrDiskFull says that free space is below the floor, or ran out.
var ErrDiskFull = errors.New("too little disk space is left")

// diskFull makes an error of a database whose disk is full known as such; SQLite
// says so only in words.
func diskFull(err error) error {
	if err == nil || errors.Is(err, ErrDiskFull) || !errors.Is(err, unix.ENOSPC) && !strings.Contains(err.Error(), "disk is full") {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDiskFull, err)
}

// freeSpace remembers the free space for a moment, so that commits do not ask
// for it each time.
type freeSpace struct {
	mu    sync.Mutex
	at    time.Time
	bytes int64
}

const freeSpaceAge = 500 * time.Millisecond

// FreeBytes is the space left for the data directory.
func (s *Store) FreeBytes() (int64, error) {
	s.free.mu.Lock()
	defer s.free.mu.Unlock()
	if time.Since(s.free.at) < freeSpaceAge {
		return s.free.bytes, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(s.opts.Dir, &st); err != nil {
		return 0, fmt.Errorf("ask for free space: %w", err)
	}
	s.free.bytes, s.free.at = int64(st.Bavail)*st.Bsize, time.Now()
	return s.free.bytes, nil
}

func (s *Store) checkDisk() error {
	if s.opts.DiskFloor < 0 {
		return nil
	}
	free, err := s.FreeBytes()
	if err != nil {
		return err
	}
	if free < s.opts.DiskFloor {
		return fmt.Errorf("%w: %d MiB, below the floor of %d MiB (--disk-floor); free some and send again",
			ErrDiskFull, free/mib, s.opts.DiskFloor/mib)
	}
	return nil
}

// Ready says why nothing can be stored now; nil: it can.
func (s *Store) Ready() error {
	select {
	case <-s.committer.stopping:
		return ErrClosed
	default:
	}
	return s.checkDisk()
}
