package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"icecore/failpoint"
)

// maybeCheckpoint makes the warehouse's file hold all that was drained, and
// only then deletes those batches from the journal: should the warehouse's
// write-ahead log turn out unreadable, the journal can still replace it.
func (d *drainer) maybeCheckpoint(ctx context.Context, force bool) error {
	d.mu.Lock()
	due := d.drained > d.checkpointed &&
		(force || d.uncheckpoint >= d.s.opts.CheckpointBytes || time.Since(d.lastCheck) >= d.s.opts.CheckpointInterval)
	upTo := d.drained
	d.mu.Unlock()
	if !due {
		return nil
	}
	if err := failpoint.Hit("checkpoint.before"); err != nil {
		return err
	}
	started := time.Now()
	clean, err := d.s.wh().Checkpoint(ctx)
	if err != nil {
		return err
	}
	d.s.metrics.checkpointed(time.Since(started))
	d.mu.Lock()
	d.lastCheck = time.Now()
	d.mu.Unlock()
	if !clean {
		return nil
	}
	if err := failpoint.Hit("checkpoint.after"); err != nil {
		return err
	}
	if err := d.prune(ctx, upTo); err != nil {
		return err
	}
	d.mu.Lock()
	d.checkpointed = upTo
	d.uncheckpoint = 0
	d.mu.Unlock()
	return nil
}

// prune deletes journal batches; the committer does it, being the only writer.
func (d *drainer) prune(ctx context.Context, upTo int64) error {
	keep := keptPages
	stmt := func(ctx context.Context, db execer) error {
		if _, err := db.ExecContext(ctx, `DELETE FROM journal WHERE batch <= ?`, upTo); err != nil {
			return fmt.Errorf("prune journal: %w", err)
		}
		return giveBack(ctx, db, keep)
	}
	_, err := d.s.committer.submit(ctx, 0, func(ctx context.Context, k *commit) error { return stmt(ctx, k.c.conn) })
	if errors.Is(err, ErrClosed) {
		// While closing the committer is gone and its connection free.
		keep = 0
		return stmt(ctx, d.s.committer.conn)
	}
	return err
}

// keptPages is how many free pages the control database keeps for the next
// journal batches: 16 MiB.
const keptPages = 4096

// giveBack shrinks the control database to what it needs; the journal would
// otherwise leave its largest extent behind.
func giveBack(ctx context.Context, db execer, keep int) error {
	var free int
	if err := db.QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil {
		return fmt.Errorf("prune journal: %w", err)
	}
	if free <= keep {
		return nil
	}
	if _, err := db.ExecContext(ctx, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, free-keep)); err != nil {
		return fmt.Errorf("prune journal: %w", err)
	}
	return nil
}
