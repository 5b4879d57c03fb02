package store

import (
	"context"
	"database/sql"
	"fmt"

	"icecore/store/warehouse"
)

// ErrWarehouse says that the warehouse cannot take in, or give out, what is
// stored. It is tried again.
var ErrWarehouse = warehouse.ErrOutOfOrder

// reckon reads where the two databases stand.
func (d *drainer) reckon(ctx context.Context) error {
	drained, err := d.s.wh().Int(ctx, `SELECT max(last_batch) FROM ice.drains`)
	if err != nil {
		return err
	}
	var newest, pending, uncheckpointed sql.NullInt64
	err = d.s.control.read.QueryRowContext(ctx, `SELECT max(batch), sum(length(payload)) FILTER (WHERE batch > ?1),
		sum(length(payload)) FILTER (WHERE batch <= ?1) FROM journal`, drained).Scan(&newest, &pending, &uncheckpointed)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.drained != drained {
		d.drained = drained
		close(d.changed)
		d.changed = make(chan struct{})
	}
	d.newest = max(d.newest, newest.Int64, drained)
	d.pending, d.uncheckpoint = pending.Int64, uncheckpointed.Int64
	if !uncheckpointed.Valid {
		d.checkpointed = drained
	}
	return nil
}

// heal sees to it that the warehouse can be used, and finds out where it stands
// after a failure.
func (d *drainer) heal(ctx context.Context) error {
	healed, err := d.s.wh().Heal(ctx)
	if err != nil {
		return err
	}
	if healed {
		d.s.log.Warn("the warehouse was opened anew")
	}
	if healed || d.unsure {
		d.packer, d.unsure = newBodyPacker(), true
		if err := d.catchUp(ctx); err != nil {
			return err
		}
		d.unsure = false
	}
	return nil
}

// catchUp takes in what a failed drain has moved all the same.
func (d *drainer) catchUp(ctx context.Context) error {
	d.mu.Lock()
	before := d.drained
	d.mu.Unlock()
	// Asked before drained moves: a fault in between must not lose the answer.
	var keys []int64
	err := d.s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		keys = append(keys, c.i64())
		return nil
	}), `SELECT DISTINCT rollout_key FROM ice.traces WHERE batch > ?`, before)
	if err != nil {
		return err
	}
	if err := d.reckon(ctx); err != nil {
		return err
	}
	if d.s.opts.OnDrain != nil && len(keys) > 0 {
		d.s.opts.OnDrain(keys)
	}
	return nil
}
