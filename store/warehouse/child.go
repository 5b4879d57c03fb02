package warehouse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// ChildOptions says how a child is started and what it may cost. The zero value
// of each field means its default.
type ChildOptions struct {
	// Command makes the command whose process calls Serve. Required.
	Command func() *exec.Cmd
	// Log receives what an operator should know. Default: slog.Default().
	Log *slog.Logger
	// Patience is how long a call waits for a child that is away. Default 30 s.
	Patience time.Duration
	// MaxMemory is the resident memory, in bytes, with which a child is killed
	// while it runs a user's statement. 0: no bound.
	MaxMemory int64
	// AskGrace is how long a user's statement may go on after it was told to
	// stop, before the child is killed. Default 5 s.
	AskGrace time.Duration
	// Behind, when set, says whether something waits to be applied. After a loss
	// by a user's statement those of users then wait until something was applied,
	// 10 s at most.
	Behind func() bool
	// OnRestart, when set, is told of each process that was lost, and why.
	OnRestart func(reason string)
}

// Child is an Engine in a process of its own. A process that dies is started
// anew; calls wait for that, and those that read and were cut short are
// repeated. It is safe for concurrent use.
type Child struct {
	path string
	opts Options
	how  ChildOptions

	mu      sync.Mutex
	now     *process // nil: away
	why     error    // why it is away
	since   time.Time
	lost    int64
	changed chan struct{} // closed when one of these changes
	closed  bool

	healed  atomic.Pointer[process] // the one that Heal has looked at
	askID   atomic.Int64
	cancel  context.CancelFunc
	stopped chan struct{}
}

// Start starts a child on the file at path and waits until it is open. The error
// is what Open's would be; ErrUnreadable also says that the process died of
// opening the file.
func Start(ctx context.Context, path string, o Options, how ChildOptions) (*Child, error) {
	if how.Log == nil {
		how.Log = slog.Default()
	}
	if how.Patience == 0 {
		how.Patience = 30 * time.Second
	}
	if how.AskGrace == 0 {
		how.AskGrace = 5 * time.Second
	}
	c := &Child{path: path, opts: o, how: how, changed: make(chan struct{}), stopped: make(chan struct{})}
	p, err := c.launch(ctx, true)
	for tries := 0; tries < 2 && errors.Is(err, ErrGone) && ctx.Err() == nil; tries++ {
		how.Log.Warn("the warehouse's process was killed while it opened the file; starting it again", "err", err)
		p, err = c.launch(ctx, false)
	}
	if err != nil {
		return nil, err
	}
	c.healed.Store(p)
	c.set(p, nil)
	running, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go c.supervise(running, p)
	return c, nil
}

func (c *Child) set(p *process, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (c.now == nil) != (p == nil) || c.since.IsZero() {
		c.since = time.Now()
	}
	c.now, c.why = p, why
	close(c.changed)
	c.changed = make(chan struct{})
}

// process gives the running process, waiting for it if it is away.
func (c *Child) process(ctx context.Context) (*process, error) {
	patience := time.NewTimer(c.how.Patience)
	defer patience.Stop()
	for {
		c.mu.Lock()
		p, why, changed, closed := c.now, c.why, c.changed, c.closed
		c.mu.Unlock()
		if closed {
			return nil, ErrClosed
		}
		if p != nil && p.alive() {
			return p, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the warehouse's process: %w", ctx.Err())
		case <-patience.C:
			if why == nil {
				why = errors.New("it is being started anew")
			}
			return nil, fmt.Errorf("%w: %w", ErrOutOfOrder, why)
		}
	}
}

// maxRepeats is how often a call that lost its process is repeated.
const maxRepeats = 2

// repeated makes a call that may be made again for as long as do says so.
func (c *Child) repeated(ctx context.Context, do func(*process) (again bool, err error)) error {
	for tries := 0; ; tries++ {
		p, err := c.process(ctx)
		if err != nil {
			return err
		}
		again, err := do(p)
		if !again || tries == maxRepeats || !errors.Is(err, ErrGone) {
			return err
		}
	}
}

// simple makes a call without rows.
func (c *Child) simple(ctx context.Context, path string, body []byte) (o outcome, err error) {
	err = c.repeated(ctx, func(p *process) (bool, error) {
		o, err = p.call(ctx, path, body, nil)
		return true, err
	})
	return o, err
}

// Apply is Engine.Apply. before runs in this process, when everything is
// appended and nothing is committed. An error that is ErrGone does not say
// whether it was committed.
func (c *Child) Apply(ctx context.Context, adds []Addition, before func() error, stmts ...string) error {
	p, err := c.process(ctx)
	if err != nil {
		return err
	}
	if err := p.apply(ctx, adds, before, stmts); err != nil {
		return err
	}
	p.applied.Store(true)
	return nil
}

// Query is Engine.Query. args may be nil, bool, int64, float64 or string. A
// batch that is retained stays valid.
func (c *Child) Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error {
	q := queryCall{Text: text}
	var err error
	if q.Args, err = valuesOf(args); err != nil {
		return err
	}
	body, err := json.Marshal(q)
	if err != nil {
		return fmt.Errorf("query warehouse: %w", err)
	}
	return c.repeated(ctx, func(p *process) (again bool, err error) {
		again = true
		_, err = p.call(ctx, "/query", body, func(rec arrow.RecordBatch) error {
			again = false
			return each(rec)
		})
		return again, err
	})
}

// Int is Engine.Int.
func (c *Child) Int(ctx context.Context, text string) (int64, error) {
	o, err := c.simple(ctx, "/int", []byte(text))
	return o.Value, err
}

// Checkpoint is Engine.Checkpoint.
func (c *Child) Checkpoint(ctx context.Context) (clean bool, err error) {
	o, err := c.simple(ctx, "/checkpoint", nil)
	return o.Yes, err
}

// Heal is Engine.Heal. It also reports a process that is another than last time:
// what of an interrupted write has happened must be found out then.
func (c *Child) Heal(ctx context.Context) (healed bool, err error) {
	err = c.repeated(ctx, func(p *process) (bool, error) {
		o, err := p.call(ctx, "/heal", nil, nil)
		if err == nil {
			healed = o.Yes || c.healed.Swap(p) != p
		}
		return true, err
	})
	return healed, err
}

// Call calls what Serve was given as extra: a POST of in, as JSON, to path,
// whose answer is JSON too and goes to out.
func (c *Child) Call(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("ask the warehouse: %w", err)
	}
	return c.repeated(ctx, func(p *process) (bool, error) { return true, p.extra(ctx, path, body, out) })
}

// Close closes the file and ends the process.
func (c *Child) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	if closed {
		return nil
	}
	c.cancel()
	<-c.stopped
	c.mu.Lock()
	p := c.now
	c.mu.Unlock()
	if p == nil || !p.alive() {
		return nil // what is committed is in its log
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	_, err := p.call(ctx, "/close", nil, nil)
	p.hangUp()
	return err
}

// closePatience bounds the closing of the file.
const closePatience = 30 * time.Second
