package warehouse

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sys/unix"
)

// process is one life of a child, as its parent sees it.
type process struct {
	cmd     *exec.Cmd
	control *net.UnixConn
	http    *http.Client
	said    *said
	// exited is closed when the process has ended; state says how.
	exited chan struct{}
	state  *os.ProcessState
	born   time.Time
	// drainFirst: the process before was lost by a statement of a user's. applied:
	// this one has written something.
	drainFirst bool
	applied    atomic.Bool

	mu   sync.Mutex
	sent verdict // why it was killed by us, if it was
	asks map[*asking]struct{}
	last *asking // the only statement that ran when it ended
	// watching says that watch runs.
	watching bool
}

// start starts a process. It is not opened yet.
func start(cmd *exec.Cmd, log *slog.Logger) (*process, error) {
	ours, theirs, err := socketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, control: ours.(*net.UnixConn), said: &said{log: log}, exited: make(chan struct{}), born: time.Now(),
		asks: map[*asking]struct{}{}}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = p.said
	err = cmd.Start()
	if err := errors.Join(err, theirs.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("start the warehouse's process: %w", err), ours.Close())
	}
	// The kernel is to pick this process first; where that is not allowed it
	// picks by size, which will do.
	_ = os.WriteFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "oom_score_adj"), []byte("500"), 0)
	p.http = &http.Client{Transport: &http.Transport{DialContext: dialer{p.control}.dial, DisableCompression: true,
		MaxIdleConnsPerHost: 32, ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10}}
	go func() {
		_ = cmd.Wait() // ProcessState says it better
		p.state = cmd.ProcessState
		p.mu.Lock()
		p.last = p.alone()
		p.mu.Unlock()
		close(p.exited)
		p.http.CloseIdleConnections()
		_ = p.control.Close()
	}()
	return p, nil
}

// hangUp closes the control socket, at which the process ends, and waits for
// that.
func (p *process) hangUp() {
	_ = p.control.Close() // also when it is closed already
	select {
	case <-p.exited:
	case <-time.After(exitPatience):
		p.kill(verdict{reason: reasonClosing})
		<-p.exited
	}
}

const exitPatience = 5 * time.Second

// kill ends the process, for the first reason that was given.
func (p *process) kill(v verdict) {
	p.mu.Lock()
	if p.sent.reason == "" && p.alive() {
		p.sent = v
	}
	p.mu.Unlock()
	_ = p.cmd.Process.Kill() // it may have ended already
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// how says in words how an ended process ended.
func (p *process) how() string {
	text := p.state.String()
	if lines := p.said.last(); lines != "" {
		text += "; it said: " + lines
	}
	return text
}

// crashed says that an ended process died of its own fault. One that was killed
// from outside says nothing about the file it had open.
func (p *process) crashed() bool {
	ws, ok := p.state.Sys().(syscall.WaitStatus)
	if !ok {
		return false
	}
	if ws.Signaled() {
		switch ws.Signal() {
		case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL:
			return true
		}
		return false
	}
	// Go catches such a signal, reports it and exits.
	return ws.ExitStatus() != 0 && p.said.sawSignal()
}

// post sends a request. Its answer's body is the caller's to close.
func (p *process) post(ctx context.Context, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://warehouse"+path, body)
	if err != nil {
		return nil, fmt.Errorf("ask the warehouse: %w", err)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the warehouse: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024)) // it is told as far as it goes
		return nil, errors.Join(fmt.Errorf("ask the warehouse: %s: %s", resp.Status, bytes.TrimSpace(text)), resp.Body.Close())
	}
	return resp, nil
}

// call sends a request and hands over the rows of its answer. The error says
// what the child met, or why there is no answer: ErrGone, or ctx's.
func (p *process) call(ctx context.Context, path string, body []byte, each func(arrow.RecordBatch) error) (outcome, error) {
	resp, err := p.post(ctx, path, bytes.NewReader(body))
	if err != nil {
		return outcome{}, p.broken(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // what is left of it does not matter
	o, err := readRows(resp.Body, each)
	if err != nil {
		return o, p.broken(ctx, err)
	}
	return o, o.Failed.err()
}

func (p *process) apply(ctx context.Context, adds []Addition, before func() error, stmts []string) error {
	body := newApplyBody(adds, stmts, ctx.Done(), p.exited)
	defer body.end()
	resp, err := p.post(ctx, "/apply", body)
	if err != nil {
		return p.broken(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // what is left of it does not matter
	r := bufio.NewReader(resp.Body)
	first, err := r.ReadByte()
	if err != nil {
		return p.broken(ctx, cutShort(err))
	}
	var beforeErr error
	if first == allAppended {
		last := byte(doCommit)
		if before != nil {
			if beforeErr = before(); beforeErr != nil {
				last = doRollBack
			}
		}
		body.last <- last
	} else if err := r.UnreadByte(); err != nil {
		return fmt.Errorf("write to warehouse: %w", err)
	}
	o, err := readRows(r, nil)
	switch {
	case beforeErr != nil:
		return beforeErr // it is rolled back, now or when the connection is found broken
	case err != nil:
		return p.broken(ctx, err)
	}
	return o.Failed.err()
}

// extra calls what the command has added to the child.
func (p *process) extra(ctx context.Context, path string, in []byte, out any) error {
	resp, err := p.post(ctx, "/extra"+path, bytes.NewReader(in))
	if err != nil {
		return p.broken(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read whole
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return p.broken(ctx, cutShort(err))
	}
	if err := json.Unmarshal(text, out); err != nil {
		return p.broken(ctx, cutShort(err))
	}
	return nil
}

// broken says why there was no whole answer.
func (p *process) broken(ctx context.Context, err error) error {
	if consumer, ok := errors.AsType[*consumerError](err); ok {
		return consumer.error
	}
	if ctx.Err() != nil {
		return fmt.Errorf("ask the warehouse: %w", ctx.Err())
	}
	if errors.Is(err, errNoSocket) {
		return fmt.Errorf("%w: %w", ErrOutOfOrder, err)
	}
	// Its sockets close shortly before it is known to have ended.
	select {
	case <-p.exited:
		return fmt.Errorf("%w: %w: %s", ErrOutOfOrder, ErrGone, p.how())
	case <-time.After(exitPatience):
		return fmt.Errorf("%w: %w", ErrOutOfOrder, err)
	}
}

// resident is the memory that the process has resident, in bytes; 0: unknown.
func (p *process) resident() int64 {
	if !p.alive() {
		return 0
	}
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "statm"))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(raw)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
