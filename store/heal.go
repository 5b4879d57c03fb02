package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// ErrWarehouse says that the warehouse cannot take in, or give out, what is
// stored. It is tried again.
var ErrWarehouse = errors.New("the warehouse is out of order for now")

// DuckDB gives a database up for good at some faults, a full disk during a
// checkpoint among them: everything fails until it is opened anew. Nothing is
// lost by that, since its log holds what was committed. heal opens it anew, in
// place, once whoever still uses it has left.

// conn gives a connection, and what gives it back. The warehouse is not opened
// anew in between.
func (w *warehouse) conn(ctx context.Context) (*sql.Conn, func(), error) {
	w.use.RLock()
	conn, err := w.db.Conn(ctx)
	if err != nil {
		w.use.RUnlock()
		return nil, nil, w.noted(fmt.Errorf("connect to warehouse: %w", err))
	}
	return conn, func() {
		_ = conn.Close() // gives it back to the pool
		w.use.RUnlock()
	}, nil
}

// noted remembers that err means that the database is given up.
func (w *warehouse) noted(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, sign := range []string{"database has been invalidated", "FATAL Error", "INTERNAL Error", "database is closed"} {
		if strings.Contains(text, sign) {
			w.broken.Store(true)
			return fmt.Errorf("%w: %w", ErrWarehouse, err)
		}
	}
	return err
}

// heal opens a database that was given up anew. It reports whether it did.
func (w *warehouse) heal() (healed bool, err error) {
	if !w.broken.Load() {
		return false, nil
	}
	w.writes.Lock()
	defer w.writes.Unlock()
	w.use.Lock()
	defer w.use.Unlock()
	// It has failed already; what closing adds to that does not matter.
	_ = w.db.Close()
	fresh, err := openWarehouse(w.path, w.opts)
	if err != nil {
		return false, fmt.Errorf("open the warehouse anew: %w", err)
	}
	w.db = fresh.db
	w.broken.Store(false)
	return true, nil
}

// reckon reads where the two databases stand.
func (d *drainer) reckon(ctx context.Context) error {
	drained, err := d.s.wh().int(ctx, `SELECT max(last_batch) FROM ice.drains`)
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
	d.drained = drained
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
	healed, err := d.s.wh().heal()
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
	err := d.s.wh().query(ctx, eachRow(func(c *columnsOf) error {
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
