package warehouse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Why a process was lost, as a metric says it.
const (
	reasonMemory  = "memory"  // it passed MaxMemory during a user's statement
	reasonOverran = "overran" // a user's statement did not stop
	reasonClosing = "closing"
	reasonCrashed = "crashed" // it died of its own fault
	reasonKilled  = "killed"  // somebody else killed it, or it ended
)

// verdict is why this process has killed a child.
type verdict struct {
	reason string
	by     *asking // whose fault it was, if it is known to be one's
}

// reason says why an ended process ended.
func (p *process) reason() verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.sent.reason != "":
		return p.sent
	case p.crashed():
		return verdict{reason: reasonCrashed, by: p.last}
	}
	return verdict{reason: reasonKilled}
}

// Pauses before a process is started anew: none the first time, then these,
// each twice the one before. One that lived for steadyAfter counts as the first.
const (
	firstPause  = 100 * time.Millisecond
	maxPause    = 5 * time.Second
	steadyAfter = 10 * time.Second
)

// supervise starts the child anew whenever it is lost, until ctx ends.
func (c *Child) supervise(ctx context.Context, p *process) {
	defer close(c.stopped)
	pause, born, drainFirst := time.Duration(0), time.Now(), false
	for {
		if p != nil {
			select {
			case <-p.exited:
			case <-ctx.Done():
				return
			}
			drainFirst = c.mourn(p)
			if time.Since(born) >= steadyAfter {
				pause = 0
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(max(2*pause, firstPause), maxPause)
		var err error
		born = time.Now()
		if p, err = c.launch(ctx, false); err != nil {
			if ctx.Err() == nil {
				c.how.Log.Error("the warehouse's process cannot be started; it will be tried again", "err", err, "in", pause)
				c.set(nil, err)
			}
			continue
		}
		c.how.Log.Warn("the warehouse's process runs again", "process", p.cmd.Process.Pid, "took", time.Since(born))
		p.drainFirst = drainFirst
		c.set(p, nil)
		if ctx.Err() != nil {
			p.hangUp()
			return
		}
	}
}

// mourn notes that a process was lost, and says whether by a user's statement.
func (c *Child) mourn(p *process) (asked bool) {
	v := p.reason()
	c.mu.Lock()
	c.lost++
	c.mu.Unlock()
	c.set(nil, fmt.Errorf("%w: %s", ErrGone, p.how()))
	if c.how.OnRestart != nil {
		c.how.OnRestart(v.reason)
	}
	asked = v.reason == reasonMemory || v.reason == reasonOverran || v.by != nil
	say := c.how.Log.Error
	if v.reason == reasonMemory || v.reason == reasonOverran {
		say = c.how.Log.Warn // a user's statement did what it may
	}
	say("the warehouse's process was lost; starting it anew", "reason", v.reason, "process", p.cmd.Process.Pid, "how", p.how())
	return asked
}

// diedError says that a process died of its own fault while it opened the file.
type diedError struct {
	error
	of string // how, without what it said
}

func (e *diedError) Unwrap() error { return e.error }

// launch starts a process and waits until it has opened the file. One that dies of
// that is started once more: only what happens twice is the file's fault.
func (c *Child) launch(ctx context.Context, first bool) (*process, error) {
	p, err := c.try(ctx, first)
	died, ok := errors.AsType[*diedError](err)
	if !ok {
		return p, err
	}
	c.how.Log.Warn("the warehouse's process died while it opened the file; starting it again", "err", err)
	p, err = c.try(ctx, false)
	if again, ok := errors.AsType[*diedError](err); ok && again.of == died.of {
		err = fmt.Errorf("%w: its process died of opening it, twice: %w", ErrUnreadable, err)
		// It is the file's fault now, not the process's.
		return nil, &remoteError{text: err.Error(), of: []error{ErrUnreadable, ErrOutOfOrder}}
	}
	return p, err
}

// try starts a process and waits until it has opened the file.
func (c *Child) try(ctx context.Context, first bool) (*process, error) {
	cmd := c.how.Command()
	if !first {
		// A place where a test has it die would be reached again and again.
		cmd.Env = slices.DeleteFunc(cmd.Environ(), func(v string) bool { return strings.HasPrefix(v, "ICECORE_FAILPOINT=") })
	}
	p, err := start(cmd, c.how.Log)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(opening{c.path, c.opts})
	if err == nil {
		_, err = p.call(ctx, "/open", body, nil)
	}
	if err == nil {
		return p, nil
	}
	p.hangUp()
	if errors.Is(err, ErrGone) && p.crashed() {
		return nil, &diedError{err, p.state.String()}
	}
	return nil, err
}
