package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"icecore/failpoint"
	"icecore/store/warehouse"
)

// drainer moves journal batches into the warehouse, and lets the journal shrink
// once the warehouse no longer needs it. store/DESIGN.md says why the order of
// its writes is safe.
type drainer struct {
	s      *Store
	kick   chan struct{}
	urgent chan struct{}
	packer *bodyPacker
	// unsure: a drain failed. Whether the warehouse holds it all the same only
	// the warehouse knows.
	unsure bool

	mu           sync.Mutex
	newest       int64 // newest batch in the journal
	drained      int64 // newest batch committed in the warehouse
	checkpointed int64 // newest batch in the warehouse's checkpointed file
	pending      int64 // journal bytes not drained
	uncheckpoint int64 // journal bytes drained but not checkpointed
	oldestWait   time.Time
	changed      chan struct{} // closed when drained moves or lastErr changes
	lastErr      error
	lastCheck    time.Time

	stopping chan struct{}
	stopped  chan struct{}
}

func newDrainer(s *Store) *drainer {
	return &drainer{s: s, kick: make(chan struct{}, 1), urgent: make(chan struct{}, 1), packer: newBodyPacker(),
		changed: make(chan struct{}), lastCheck: time.Now(), stopping: make(chan struct{}), stopped: make(chan struct{})}
}
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
func (d *drainer) wake() { signal(d.kick) }

// journalled tells the drainer of a new batch.
func (d *drainer) journalled(batch, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.newest == d.drained {
		d.oldestWait = time.Now()
	}
	d.newest = max(d.newest, batch)
	d.pending += bytes
	if d.pending >= d.s.opts.DrainBytes {
		signal(d.urgent)
	}
}

// behind says whether something waits to be drained.
func (d *drainer) behind() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.newest > d.drained
}

// wait blocks until batch is in the warehouse.
func (d *drainer) wait(ctx context.Context, batch int64) error {
	for {
		d.mu.Lock()
		drained, changed, err := d.drained, d.changed, d.lastErr
		d.mu.Unlock()
		if drained >= batch {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrWarehouse, err)
		}
		signal(d.urgent)
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the warehouse: %w", ctx.Err())
		case <-d.stopped:
			return ErrClosed
		}
	}
}

// retryDrain is how long a failed drain rests.
const retryDrain = time.Second

func (d *drainer) loop(ctx context.Context) {
	defer close(d.stopped)
	for {
		select {
		case <-d.stopping:
			return
		case <-d.urgent:
		case <-d.kick:
			// Let more batches come: one large drain costs far less than many
			// small ones.
			select {
			case <-d.urgent:
			case <-d.stopping:
			case <-time.After(d.s.opts.DrainInterval):
			}
		case <-time.After(d.s.opts.CheckpointInterval):
		}
		if err := d.drainAll(ctx); err != nil {
			d.s.log.Error("drain failed; it will be tried again", "err", err)
			d.s.metrics.drainFailed()
			d.rest()
			continue
		}
		if err := d.maybeCheckpoint(ctx, false); err != nil {
			d.s.log.Error("checkpoint failed; it will be tried again", "err", err)
			// Readers need not wait until then.
			if err := d.heal(ctx); err != nil {
				d.s.log.Error("the warehouse stays out of order; it will be tried again", "err", err)
			}
			d.rest()
		}
	}
}

// rest waits before something that failed is tried again.
func (d *drainer) rest() {
	select {
	case <-time.After(retryDrain):
		signal(d.kick)
	case <-d.stopping:
	}
}

// stop ends the loop after a last drain and checkpoint.
func (d *drainer) stop(ctx context.Context) error {
	close(d.stopping)
	<-d.stopped
	err := d.drainAll(ctx)
	return errors.Join(err, d.maybeCheckpoint(ctx, true))
}
func (d *drainer) drainAll(ctx context.Context) error {
	for lost := 0; ; {
		more, err := d.drainOnce(ctx)
		if errors.Is(err, warehouse.ErrGone) && lost < maxRepeats {
			// It comes back by itself, and knows what it holds: nobody need hear of it.
			d.s.log.Warn("a drain lost the warehouse's process and is repeated", "err", err)
			d.packer, d.unsure = newBodyPacker(), true
			lost++
			continue
		}
		d.mu.Lock()
		if err != nil || d.lastErr != nil {
			d.lastErr = err
			close(d.changed)
			d.changed = make(chan struct{})
		}
		d.mu.Unlock()
		if err != nil {
			// The transaction may or may not hold what the packer remembers.
			d.packer, d.unsure = newBodyPacker(), true
			return err
		}
		if !more {
			return nil
		}
		// A journal that grows as fast as it is drained must be pruned too.
		if err := d.maybeCheckpoint(ctx, false); err != nil {
			return err
		}
	}
}

// drainOnce moves at most DrainBytes of journal, whole batches, in one
// warehouse transaction that also records the last of them.
func (d *drainer) drainOnce(ctx context.Context) (more bool, err error) {
	started := time.Now()
	if err := d.heal(ctx); err != nil {
		return false, err
	}
	load, err := d.load(ctx)
	if err != nil || load.last == 0 {
		return false, err
	}
	defer load.release()
	adds, err := d.additions(load)
	if err != nil {
		return false, err
	}
	defer func() {
		for _, a := range adds {
			for _, rec := range a.Records {
				rec.Release()
			}
		}
	}()
	err = d.s.wh().Apply(ctx, adds, func() error { return failpoint.Hit("drain.inside") })
	if err != nil {
		return false, err
	}
	if err := failpoint.Hit("drain.after"); err != nil {
		return false, err
	}
	keys := load.rolloutKeys()
	d.mu.Lock()
	d.drained = load.last
	d.pending = max(0, d.pending-load.bytes)
	d.uncheckpoint += load.bytes
	d.oldestWait = time.Now()
	close(d.changed)
	d.changed = make(chan struct{})
	d.mu.Unlock()
	d.s.metrics.drained(load.rows, load.bytes, time.Since(started))
	if d.s.opts.OnDrain != nil && len(keys) > 0 {
		d.s.opts.OnDrain(keys)
	}
	return load.cut, nil
}
