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
	by     *asking // whose fault it was, if it was one's
}

// reason says why an ended process ended.
func (p *process) reason() verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.sent.reason != "":
		return p.sent
	case p.crashed():
		return verdict{reason: reasonCrashed}
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
	pause, born := time.Duration(0), time.Now()
	for {
		if p != nil {
			select {
			case <-p.exited:
			case <-ctx.Done():
				return
			}
			c.mourn(p)
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
		c.set(p, nil)
		if ctx.Err() != nil {
			p.hangUp()
			return
		}
	}
}

// mourn notes that a process was lost.
func (c *Child) mourn(p *process) {
	v := p.reason()
	c.mu.Lock()
	c.lost++
	c.mu.Unlock()
	c.set(nil, fmt.Errorf("%w: %s", ErrGone, p.how()))
	if c.how.OnRestart != nil {
		c.how.OnRestart(v.reason)
	}
	say := c.how.Log.Error
	if v.by != nil || v.reason == reasonMemory {
		say = c.how.Log.Warn // a user's statement did what it may
	}
	say("the warehouse's process was lost; starting it anew", "reason", v.reason, "process", p.cmd.Process.Pid, "how", p.how())
}

// launch starts a process and waits until it has opened the file.
func (c *Child) launch(ctx context.Context, first bool) (*process, error) {
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
		err = fmt.Errorf("%w: its process died of opening it: %w", ErrUnreadable, err)
		// It is the file's fault now, not the process's.
		return nil, &remoteError{text: err.Error(), of: []error{ErrUnreadable, ErrOutOfOrder}}
	}
	return nil, err
}
