package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"icecore/failpoint"
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
	for {
		more, err := d.drainOnce(ctx)
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
	if err := d.reckon(ctx); err != nil {
		return err
	}
	var keys []int64
	err := d.s.wh().query(ctx, eachRow(func(c *columnsOf) error {
		keys = append(keys, c.i64())
		return nil
	}), `SELECT DISTINCT rollout_key FROM ice.traces WHERE batch > ?`, before)
	if err == nil && d.s.opts.OnDrain != nil && len(keys) > 0 {
		d.s.opts.OnDrain(keys)
	}
	return err
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
			for _, rec := range a.recs {
				rec.Release()
			}
		}
	}()
	err = d.s.wh().apply(ctx, adds, func() error { return failpoint.Hit("drain.inside") })
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

// journalLoad is what one drain moves. cut says that the journal holds more.
// (What is committed meanwhile is no part of that: it wakes the drainer anew, and
// is drained together with what else comes within DrainInterval.)
type journalLoad struct {
	cut   bool
	last  int64
	bytes int64
	rows  int64
	parts map[string][]arrow.RecordBatch
}

func (l *journalLoad) release() {
	for _, recs := range l.parts {
		for _, r := range recs {
			r.Release()
		}
	}
}

func (l *journalLoad) rolloutKeys() []int64 {
	var keys []int64
	for _, rec := range l.parts[tableTraces.name] {
		keys = append(keys, rec.Column(1).(*array.Int64).Int64Values()...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (d *drainer) load(ctx context.Context) (*journalLoad, error) {
	d.mu.Lock()
	drained := d.drained
	d.mu.Unlock()
	l := &journalLoad{parts: map[string][]arrow.RecordBatch{}}
	rs, err := d.s.control.read.QueryContext(ctx,
		`SELECT batch, part, rows, payload FROM journal WHERE batch > ? ORDER BY batch, part`, drained)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	defer rs.Close() //nolint:errcheck // Err below says what went wrong
	for rs.Next() {
		var batch, rows int64
		var part string
		var payload []byte
		if err := rs.Scan(&batch, &part, &rows, &payload); err != nil {
			l.release()
			return nil, fmt.Errorf("read journal: %w", err)
		}
		if l.last != batch && l.bytes >= d.s.opts.DrainBytes {
			l.cut = true
			return l, nil
		}
		t := journalTable(part)
		if t == nil {
			l.release()
			return nil, fmt.Errorf("read journal: batch %d has rows for the unknown table %q", batch, part)
		}
		recs, err := decodeRecords(payload, t.schema)
		l.parts[part] = append(l.parts[part], recs...)
		if err != nil {
			l.release()
			return nil, fmt.Errorf("read journal batch %d: %w", batch, err)
		}
		l.last = batch
		l.bytes += int64(len(payload))
		l.rows += rows
	}
	if err := rs.Err(); err != nil {
		l.release()
		return nil, fmt.Errorf("read journal: %w", err)
	}
	return l, nil
}

func journalTable(name string) *table {
	for _, t := range journalled {
		if t.name == name {
			return t
		}
	}
	return nil
}

// additions joins the many small batches of each table to few large ones, packs
// bodies, and adds the record of the drain itself.
func (d *drainer) additions(l *journalLoad) ([]addition, error) {
	var adds []addition
	for _, t := range journalled {
		recs := l.parts[t.name]
		if len(recs) == 0 {
			continue
		}
		joined, err := concat(t.schema, recs)
		if err != nil {
			return nil, fmt.Errorf("join journal rows of %s: %w", t.name, err)
		}
		if t == tableBodies {
			packed, err := d.packer.pack(joined)
			joined.Release()
			if err != nil {
				return nil, err
			}
			joined = packed
		}
		adds = append(adds, addition{t, []arrow.RecordBatch{joined}})
	}
	r := tableDrains.rows()
	defer r.b.Release()
	r.i64(l.last)
	r.time(time.Now().UnixMicro())
	r.end()
	return append(adds, addition{tableDrains, []arrow.RecordBatch{r.record()}}), nil
}

func concat(schema *arrow.Schema, recs []arrow.RecordBatch) (arrow.RecordBatch, error) {
	if len(recs) == 1 {
		recs[0].Retain()
		return recs[0], nil
	}
	cols := make([]arrow.Array, schema.NumFields())
	defer func() {
		for _, c := range cols {
			if c != nil {
				c.Release()
			}
		}
	}()
	var n int64
	for _, r := range recs {
		n += r.NumRows()
	}
	for i := range cols {
		parts := make([]arrow.Array, len(recs))
		for j, r := range recs {
			parts[j] = r.Column(i)
		}
		c, err := array.Concatenate(parts, memory.DefaultAllocator)
		if err != nil {
			return nil, fmt.Errorf("concatenate %s: %w", schema.Field(i).Name, err)
		}
		cols[i] = c
	}
	return array.NewRecordBatch(schema, cols, n), nil
}

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
	clean, err := d.s.wh().checkpoint(ctx)
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
const keptPages = 1024

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
