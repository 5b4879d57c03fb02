package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"icecore/failpoint"
)

// op is one request's work inside a group commit.
type op struct {
	// run changes the commit; its error means that the control database failed,
	// not that the request was bad, and undoes the whole group.
	run   func(context.Context, *commit) error
	bytes int
	done  chan error
	batch int64
}

// committer gathers requests and commits them together. It is one goroutine:
// the only writer of the control database, of the tape heads and of the
// counters.
type committer struct {
	s    *Store
	ops  chan *op
	conn *sql.Conn
	st   *statements
	next counters
	// saved is what of next the control database holds.
	saved counters
	cache *rolloutCache
	// unsure: the last commit failed, and memory may differ from what is stored.
	unsure bool

	stopOnce sync.Once
	stopping chan struct{}
	stopped  chan struct{}
}

// counters are the next keys to give out.
type counters struct {
	batch, trace, tape, rollout, post int64
}

var counterNames = [...]string{"next_batch", "next_trace", "next_tape", "next_rollout", "next_post"}

func (c *counters) fields() [len(counterNames)]*int64 {
	return [...]*int64{&c.batch, &c.trace, &c.tape, &c.rollout, &c.post}
}

// opQueue bounds the requests that wait; ingest bounds them further.
const opQueue = 1024

func newCommitter(ctx context.Context, s *Store) (*committer, error) {
	conn, err := s.control.write.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to control database: %w", err)
	}
	c := &committer{s: s, conn: conn, ops: make(chan *op, opQueue), cache: newRolloutCache(),
		stopping: make(chan struct{}), stopped: make(chan struct{})}
	if c.st, err = prepareOn(ctx, conn); err != nil {
		return nil, err
	}
	if err := c.loadCounters(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *committer) loadCounters(ctx context.Context) error {
	for i, f := range c.next.fields() {
		v, err := metaOn(ctx, c.conn, counterNames[i])
		if err != nil {
			return err
		}
		*f = max(v, 1)
	}
	c.saved = c.next
	return nil
}

// ErrClosed says that the store is shutting down.
var ErrClosed = errors.New("the store is closing")

// submit runs fn inside a group commit and waits until it is durable. It gives
// the batch that the commit had.
func (c *committer) submit(ctx context.Context, bytes int, fn func(context.Context, *commit) error) (int64, error) {
	o := &op{run: fn, bytes: bytes, done: make(chan error, 1)}
	select {
	case <-c.stopping:
		return 0, ErrClosed
	default:
	}
	select {
	case c.ops <- o:
	case <-c.stopping:
		return 0, ErrClosed
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for a commit: %w", ctx.Err())
	}
	// Once queued the work will be done: leaving now would only hide whether
	// it was.
	select {
	case err := <-o.done:
		return o.batch, err
	case <-c.stopped:
		select {
		case err := <-o.done:
			return o.batch, err
		default:
			return 0, ErrClosed
		}
	}
}

// loop commits groups until stop is called and the queue is empty.
func (c *committer) loop(ctx context.Context) {
	defer close(c.stopped)
	for {
		select {
		case o := <-c.ops:
			c.group(ctx, o)
		case <-c.stopping:
			for {
				select {
				case o := <-c.ops:
					c.group(ctx, o)
				default:
					return
				}
			}
		}
	}
}

func (c *committer) stop() {
	c.stopOnce.Do(func() { close(c.stopping) })
	<-c.stopped
}

// group commits first and whatever else is already waiting: under load requests
// share a commit, and a lone one waits for nobody.
func (c *committer) group(ctx context.Context, first *op) {
	ops := []*op{first}
	size := first.bytes
gather:
	for size < c.s.opts.GroupBytes {
		select {
		case o := <-c.ops:
			ops = append(ops, o)
			size += o.bytes
		default:
			break gather
		}
	}
	started := time.Now()
	batch, err := c.commit(ctx, ops)
	err = diskFull(err)
	c.s.metrics.committed(len(ops), time.Since(started), err)
	for _, o := range ops {
		o.batch = batch
		o.done <- err
	}
	if err == nil {
		c.s.drainer.wake()
	}
}

func (c *committer) commit(ctx context.Context, ops []*op) (batch int64, err error) {
	c.s.heads.mu.Lock()
	defer c.s.heads.mu.Unlock()
	if err := c.s.checkDisk(); err != nil {
		return 0, err
	}
	if err := c.resync(ctx); err != nil {
		return 0, err
	}
	k := &commit{c: c, batch: c.next.batch, now: c.s.now(), rows: map[*table]*rows{},
		rollouts: map[string]*Rollout{}, marked: map[int64]*Rollout{}, counts: map[string]int64{}}
	defer k.release()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("commit: %v\n%s", p, debug.Stack())
		}
		if err != nil {
			c.undo(ctx, k)
		}
		// Also after a fault: it may have become durable.
		if k.ready {
			c.s.groups.wake()
		}
	}()
	// Statements prepared on a connection would be prepared again by a sql.Tx,
	// each time they are used.
	if _, err := c.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return 0, fmt.Errorf("begin in control database: %w", err)
	}
	for _, o := range ops {
		if err := o.run(ctx, k); err != nil {
			return 0, err
		}
	}
	wrote, bytes, err := k.write(ctx)
	if err != nil {
		return 0, err
	}
	if err := failpoint.Hit("commit.before"); err != nil {
		return 0, fmt.Errorf("commit control database: %w", err)
	}
	if _, err := c.conn.ExecContext(ctx, "COMMIT"); err != nil {
		return 0, fmt.Errorf("commit control database: %w", err)
	}
	if err := failpoint.Hit("commit.after"); err != nil {
		return 0, fmt.Errorf("commit control database: %w", err)
	}
	c.saved = c.next
	for _, r := range k.rollouts {
		c.cache.put(r)
	}
	c.s.metrics.delivered(k.counts)
	c.s.heads.trim(k.rollouts, c.s.opts.HeadBytes)
	if wrote {
		c.s.drainer.journalled(k.batch, bytes)
		return k.batch, nil
	}
	return k.batch - 1, nil
}

// undo forgets what memory took over from a commit that failed. Whether it
// failed before or after it became durable cannot be known, so the counters are
// read again before the next one.
func (c *committer) undo(ctx context.Context, k *commit) {
	_, _ = c.conn.ExecContext(ctx, "ROLLBACK") // without a transaction there is nothing to undo
	c.cache.clear()
	for _, r := range k.rollouts {
		c.s.heads.drop(r.Key)
	}
	c.unsure = true
}

// resync reads the counters again after a failed commit, and tells the drainer
// of a batch that became durable nevertheless.
func (c *committer) resync(ctx context.Context) error {
	if !c.unsure {
		return nil
	}
	if err := c.loadCounters(ctx); err != nil {
		return err
	}
	c.s.drainer.journalled(c.next.batch-1, 0)
	c.unsure = false
	return nil
}

// commit is one group commit in the making.
type commit struct {
	c        *committer
	batch    int64
	now      int64
	rows     map[*table]*rows
	rollouts map[string]*Rollout
	// marked are the rollouts whose groups must be summed again, by key.
	marked map[int64]*Rollout
	// ready: something may have become ready for a consumer.
	ready bool
	// counts are told to the metrics when the commit is durable.
	counts map[string]int64
}

func (k *commit) count(event string, n int64) { k.counts[event] += n }

func (k *commit) release() {
	for _, r := range k.rows {
		r.b.Release()
	}
}

// to gives the rows being gathered for a table.
func (k *commit) to(t *table) *rows {
	r := k.rows[t]
	if r == nil {
		r = t.rows()
		k.rows[t] = r
	}
	return r
}

// rollout finds a rollout; nil: there is none.
func (k *commit) rollout(ctx context.Context, id string) (*Rollout, error) {
	if r := k.rollouts[id]; r != nil {
		return r, nil
	}
	if r := k.c.cache.take(id); r != nil {
		k.rollouts[id] = r
		return r, nil
	}
	r, err := scanRollout(k.c.st.findRollout.QueryRowContext(ctx, id))
	if r != nil {
		r.published, r.savedGroup = true, r.GroupID
		k.rollouts[id] = r
	}
	return r, err
}

// needRollout finds a rollout or opens it.
func (k *commit) needRollout(ctx context.Context, id string) (*Rollout, error) {
	r, err := k.rollout(ctx, id)
	if r != nil || err != nil {
		return r, err
	}
	r = &Rollout{Key: k.c.next.rollout, ID: id, CreatedAt: k.now, UpdatedAt: k.now, dirty: true}
	k.c.next.rollout++
	if _, err := k.c.st.addRollout.ExecContext(ctx, r.Key, r.ID, r.CreatedAt, r.UpdatedAt); err != nil {
		return nil, fmt.Errorf("open rollout %s: %w", id, err)
	}
	k.rollouts[id] = r
	return r, nil
}

// write puts what was gathered into the transaction. It reports whether there
// was anything for the warehouse, and how many journal bytes.
func (k *commit) write(ctx context.Context) (wrote bool, bytes int64, err error) {
	changed := false
	for _, r := range k.rollouts {
		if !r.dirty {
			continue
		}
		changed = true
		r.UpdatedAt = k.now
		if err := r.save(ctx, k.c.st.setRollout); err != nil {
			return false, 0, err
		}
		r.dirty = false
		if err := k.markChanged(ctx, r); err != nil {
			return false, 0, err
		}
		if !r.published {
			r.row(k.to(tableRollouts), k.batch)
			r.published = true
		}
	}
	if err := k.writeMarks(ctx); err != nil {
		return false, 0, err
	}
	for _, t := range journalled {
		r := k.rows[t]
		if r == nil || r.n == 0 {
			continue
		}
		n := r.n
		rec := r.record()
		payload, err := encodeRecord(rec)
		rec.Release()
		if err != nil {
			return false, 0, err
		}
		if _, err := k.c.st.putJournal.ExecContext(ctx, k.batch, t.name, n, payload); err != nil {
			return false, 0, fmt.Errorf("write journal: %w", err)
		}
		wrote = true
		bytes += int64(len(payload))
	}
	if wrote {
		k.c.next.batch++
	}
	if !wrote && !changed {
		return false, 0, nil
	}
	saved := k.c.saved.fields()
	for i, f := range k.c.next.fields() {
		if *f == *saved[i] {
			continue // to announce a call moves none
		}
		if _, err := k.c.st.setMeta.ExecContext(ctx, counterNames[i], *f); err != nil {
			return false, 0, fmt.Errorf("write counters: %w", err)
		}
	}
	return wrote, bytes, nil
}
