package warehouse

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var quiet = slog.New(slog.DiscardHandler)

func column(rec arrow.RecordBatch, i, row int) int64 {
	return rec.Column(i).(*array.Int64).Value(row)
}

// begin starts an ask that is under way when it comes back.
func begin(ctx context.Context, t *testing.T, c *Child) <-chan error {
	t.Helper()
	runs, done := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := c.Ask(ctx, Ask{SQL: "stop when told"}, func(arrow.RecordBatch) error { close(runs); return nil })
		done <- err
	}()
	<-runs
	return done
}

func requireFault(t *testing.T, code string, err error) {
	t.Helper()
	var f *Fault
	require.ErrorAs(t, err, &f)
	require.Equal(t, code, f.Code, f.Message)
}

func nothing(arrow.RecordBatch) error { return nil }

func TestAsk(t *testing.T) {
	t.Parallel()
	c := startChild(t, ChildOptions{})
	require.NoError(t, c.Apply(t.Context(), add(numbers(upTo(5000)...)), nil))
	var rows int64
	reply, err := c.Ask(t.Context(), Ask{SQL: `SELECT * FROM ice.numbers WHERE n >= $1`, Params: []any{int64(10)}},
		func(rec arrow.RecordBatch) error { rows += rec.NumRows(); return nil })
	require.NoError(t, err)
	require.EqualValues(t, 4990, rows)
	require.Equal(t, Reply{Rows: 4990}, reply)
	_, err = c.Ask(t.Context(), Ask{SQL: "fault"}, nothing)
	require.Equal(t, &Fault{Code: FaultBinding, Message: "no such thing", Position: 7}, err)
	_, err = c.Ask(t.Context(), Ask{SQL: `SELECT * FROM ice.numbers`}, func(arrow.RecordBatch) error { return errConsumer })
	require.ErrorIs(t, err, errConsumer)
	_, err = c.Ask(t.Context(), Ask{SQL: "x", Params: []any{struct{}{}}}, nothing)
	require.ErrorContains(t, err, "struct {}")
	require.Zero(t, c.Health().Restarts)
}

func TestAskCrosses(t *testing.T) {
	t.Parallel()
	a := Ask{SQL: "SELECT 1", Params: []any{nil, true, int64(1), 1.0, "x"}, Named: map[string]any{"a": 2.0, "b": nil}, MaxRows: 3, MaxBytes: 4}
	body, err := writeAsk(a)
	require.NoError(t, err)
	back, err := readAsk(body)
	require.NoError(t, err)
	require.Equal(t, a, back)
}

// One that stops when told costs nothing.
func TestAskIsCancelled(t *testing.T) {
	t.Parallel()
	c := startChild(t, ChildOptions{AskGrace: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	done := begin(ctx, t, c)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	_, err := c.Ask(ctx, Ask{SQL: endless}, nothing)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, c.Health().Restarts)
}

// One that does not is the end of the process, and of the others in it.
func TestAskOverruns(t *testing.T) {
	t.Parallel()
	reasons := make(chan string, 1)
	c := startChild(t, ChildOptions{AskGrace: 20 * time.Millisecond, OnRestart: func(r string) { reasons <- r }})
	other := begin(t.Context(), t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Ask(ctx, Ask{SQL: "never stop"}, nothing)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	requireFault(t, FaultInterrupted, <-other)
	require.Equal(t, reasonOverran, <-reasons)
	require.Equal(t, []string{"1"}, read(t, c, `SELECT 1`))
}

// Memory is bounded while statements of users run, and is not looked at
// otherwise. Twice: the process that comes back is watched too.
func TestAskOutOfMemory(t *testing.T) {
	t.Parallel()
	reasons := make(chan string, 2)
	c := startChild(t, ChildOptions{MaxMemory: 600 * mib, OnRestart: func(r string) { reasons <- r }})
	for _, alone := range []bool{true, false, true} {
		var other <-chan error
		if !alone {
			other = begin(t.Context(), t, c)
		}
		_, err := c.Ask(t.Context(), Ask{SQL: "hog"}, nothing)
		if alone {
			requireFault(t, FaultMemory, err)
			require.ErrorContains(t, err, "600 MiB")
		} else {
			// Nobody knows which of them took the memory.
			requireFault(t, FaultInterrupted, err)
			requireFault(t, FaultInterrupted, <-other)
		}
		require.Equal(t, reasonMemory, <-reasons)
		require.Equal(t, []string{"1"}, read(t, c, `SELECT 1`))
	}
}

// Who was killed from outside is not to blame, nor who did not run alone.
func TestAskMeetsDeath(t *testing.T) {
	t.Parallel()
	c := startChild(t, ChildOptions{})
	for _, test := range []struct {
		sql, code string
		alone     bool
	}{
		{"die", FaultInterrupted, true},
		{"die", FaultInterrupted, false},
		{"crash", FaultCrashed, true},
		{"crash", FaultInterrupted, false},
	} {
		var other <-chan error
		if !test.alone {
			other = begin(t.Context(), t, c)
		}
		_, err := c.Ask(t.Context(), Ask{SQL: test.sql}, nothing)
		requireFault(t, test.code, err)
		if other != nil {
			requireFault(t, FaultInterrupted, <-other)
		}
	}
	require.Equal(t, []string{"1"}, read(t, c, `SELECT 1`))
	done := begin(t.Context(), t, c)
	require.NoError(t, c.Close())
	require.Error(t, <-done)
}

// After a loss by a statement the drain goes first, if there is one.
func TestAskLetsTheDrainPass(t *testing.T) {
	t.Parallel()
	var behind atomic.Bool
	looked := make(chan struct{}, 1)
	c := startChild(t, ChildOptions{AskGrace: time.Millisecond, Behind: func() bool {
		select {
		case looked <- struct{}{}:
		default:
		}
		return behind.Load()
	}})
	overrun := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := c.Ask(ctx, Ask{SQL: "never stop"}, nothing)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	ask := func(ctx context.Context) error {
		_, err := c.Ask(ctx, Ask{SQL: "echo"}, nothing)
		return err
	}
	behind.Store(true)
	require.NoError(t, ask(t.Context()), "nothing was lost yet")
	overrun()
	p, err := c.process(t.Context())
	require.NoError(t, err)
	p.born = p.born.Add(time.Hour) // so that it is no matter of time
	for _, end := range []func(){
		func() { require.NoError(t, c.Apply(t.Context(), add(numbers(1)), nil)) },
		func() { behind.Store(false) },
	} {
		p.applied.Store(false)
		done := make(chan error, 1)
		select {
		case <-looked: // of before
		default:
		}
		go func() { done <- ask(t.Context()) }()
		<-looked
		<-looked // it waits
		end()
		require.NoError(t, <-done)
	}
	behind.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.applied.Store(false)
	require.ErrorIs(t, ask(ctx), context.Canceled)
	p.born = time.Now().Add(-drainFirst)
	require.NoError(t, ask(t.Context()), "not for ever")
	killNow(t, c)
	require.NoError(t, ask(t.Context()), "no statement was to blame")
}

// A statement that could not be sent costs nobody anything.
func TestAskUnsent(t *testing.T) {
	t.Parallel()
	c := startChild(t, ChildOptions{})
	p, err := c.process(t.Context())
	require.NoError(t, err)
	usual := p.http.Transport
	p.http.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, noSocket(unix.EMFILE)
	}}
	_, err = c.Ask(t.Context(), Ask{SQL: "echo"}, nothing)
	require.ErrorIs(t, err, ErrOutOfOrder)
	require.ErrorIs(t, err, unix.EMFILE)
	p.http.Transport = usual
	_, err = c.Ask(t.Context(), Ask{SQL: "echo"}, nothing)
	require.NoError(t, err)
	require.Zero(t, c.Health().Restarts)
}
