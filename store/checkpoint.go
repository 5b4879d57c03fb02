package store

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// A commit that prunes is bounded, because requests wait behind it: a checkpoint's worth
// of journal at once would stop them for seconds.
const (
	pruneBytes = 2 * mib
	prunePages = 128
	pageSize   = 4096
)

// prune deletes journal batches, oldest first, and shrinks the control database to what
// it needs; the committer does it, being the only writer.
func (d *drainer) prune(ctx context.Context, upTo int64) error {
	cuts, err := d.pruneCuts(ctx, upTo)
	if err != nil {
		return err
	}
	for _, cut := range cuts {
		if err := d.byCommitter(ctx, func(ctx context.Context, db execer) error {
			if _, err := db.ExecContext(ctx, `DELETE FROM journal WHERE batch <= ?`, cut); err != nil {
				return fmt.Errorf("prune journal: %w", err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	// What is free stays so for the journal until the next checkpoint: to give it back
	// and take it again costs more than all else that is done with a batch.
	keep, most := (d.s.opts.CheckpointBytes+2*d.s.opts.DrainBytes)/pageSize, int64(prunePages)
	select {
	case <-d.s.committer.stopped:
		keep, most = 0, math.MaxInt32
	default:
	}
	for more := true; more; {
		if err := d.byCommitter(ctx, func(ctx context.Context, db execer) (err error) {
			more, err = giveBack(ctx, db, keep, most)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// byCommitter does something in a commit of its own. While closing the committer is gone
// and its connection free.
func (d *drainer) byCommitter(ctx context.Context, fn func(context.Context, execer) error) error {
	_, err := d.s.committer.submit(ctx, 0, func(ctx context.Context, k *commit) error { return fn(ctx, k.c.conn) })
	if errors.Is(err, ErrClosed) {
		<-d.s.committer.stopped // it may have a last transaction open
		return fn(ctx, d.s.committer.conn)
	}
	return err
}

// pruneCuts gives the batches up to which to delete, one after the other.
func (d *drainer) pruneCuts(ctx context.Context, upTo int64) ([]int64, error) {
	rs, err := d.s.control.read.QueryContext(ctx,
		`SELECT batch, sum(length(payload)) FROM journal WHERE batch <= ? GROUP BY batch ORDER BY batch`, upTo)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	defer rs.Close() //nolint:errcheck // Err below says what went wrong
	var cuts []int64
	var size, bytes int64
	for rs.Next() {
		var batch int64
		if err := rs.Scan(&batch, &bytes); err != nil {
			return nil, fmt.Errorf("read journal: %w", err)
		}
		if size == 0 || size+bytes > pruneBytes {
			cuts, size = append(cuts, batch), 0
		}
		cuts[len(cuts)-1] = batch
		size += bytes
	}
	if err := rs.Err(); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	return cuts, nil
}

// giveBack shrinks the control database by at most some pages, to where it has so many
// free ones. It says whether there are more to give.
func giveBack(ctx context.Context, db execer, keep, most int64) (more bool, err error) {
	var free int64
	if err := db.QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil {
		return false, fmt.Errorf("shrink control database: %w", err)
	}
	if free <= keep {
		return false, nil
	}
	if _, err := db.ExecContext(ctx, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, min(free-keep, most))); err != nil {
		return false, fmt.Errorf("shrink control database: %w", err)
	}
	return free-keep > most, nil
}
