package warehouse

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

// Killed at any moment under load: what was applied is there once, what was
// broken whole or not at all, and reads come back with what is right.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	var lost atomic.Int64
	c := startChild(t, ChildOptions{OnRestart: func(reason string) {
		lost.Add(1)
		if reason != reasonKilled {
			t.Errorf("it was lost because of %s", reason)
		}
	}})
	const kills = 6
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var applied, unsure []int64
	wg.Go(func() {
		for i := int64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			switch err := c.Apply(context.Background(), add(numbers(3*i, 3*i+1), numbers(3*i+2)), nil); {
			case err == nil:
				applied = append(applied, i)
			case errors.Is(err, ErrGone):
				unsure = append(unsure, i)
			default:
				t.Error(err)
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n, err := c.Int(context.Background(), `SELECT count(*) % 3 FROM ice.numbers`)
				if err != nil && !errors.Is(err, ErrGone) || n != 0 {
					t.Error(n, err)
				}
			}
		})
	}
	for range kills {
		_, err := c.Int(t.Context(), `SELECT count(*) FROM ice.numbers`)
		require.NoError(t, err)
		killNow(t, c)
	}
	close(stop)
	wg.Wait()
	healed, err := c.Heal(t.Context())
	require.NoError(t, err)
	require.True(t, healed, "another process is told of")
	healed, err = c.Heal(t.Context())
	require.NoError(t, err)
	require.False(t, healed)
	counts := map[int64]int64{}
	require.NoError(t, c.Query(t.Context(), func(rec arrow.RecordBatch) error {
		for row := range int(rec.NumRows()) {
			counts[column(rec, 0, row)] = column(rec, 1, row)
		}
		return nil
	}, `SELECT n // 3, count(*) FROM ice.numbers GROUP BY 1`))
	for _, i := range applied {
		require.EqualValues(t, 3, counts[i], i)
		delete(counts, i)
	}
	for _, i := range unsure {
		require.Contains(t, []int64{0, 3}, counts[i], i)
		delete(counts, i)
	}
	require.Empty(t, counts)
	require.EqualValues(t, kills, lost.Load())
	require.EqualValues(t, kills, c.Health().Restarts)
}

// An apply whose process dies before the commit has not happened, and says that
// it does not know.
func TestKilledBeforeTheCommit(t *testing.T) {
	t.Parallel()
	c := startChild(t, ChildOptions{})
	err := c.Apply(t.Context(), add(numbers(1)), func() error {
		killNow(t, c)
		return nil
	})
	require.ErrorIs(t, err, ErrGone)
	require.ErrorIs(t, err, ErrOutOfOrder)
	require.Empty(t, read(t, c, `SELECT n FROM ice.numbers`))
}

// Rows that were handed over cannot be taken back: such a read is not repeated.
func TestKilledAmidRows(t *testing.T) {
	t.Parallel()
	c := startChild(t, ChildOptions{})
	seen := 0
	err := c.Query(t.Context(), func(arrow.RecordBatch) error {
		if seen++; seen == 1 {
			killNow(t, c)
		}
		return nil
	}, `SELECT range, repeat('x', 1000) FROM range(100000)`)
	require.ErrorIs(t, err, ErrGone)
	require.Less(t, seen, 40)
	require.Equal(t, []string{"1"}, read(t, c, `SELECT 1`))
}

// The end of the control socket, which is also the end of a killed parent, ends
// the process whatever it does.
func TestEndsWithItsParent(t *testing.T) {
	t.Parallel()
	c := startChild(t, ChildOptions{})
	p, err := c.process(t.Context())
	require.NoError(t, err)
	busy := make(chan error, 1)
	go func() {
		_, err := p.call(t.Context(), "/int", []byte(endless), nil)
		busy <- err
	}()
	require.NoError(t, p.control.Close())
	<-p.exited
	require.ErrorIs(t, <-busy, ErrGone)
}

// A file that was damaged while the process was away is not touched: it is tried
// again, and meanwhile calls are told why.
func TestFileDamagedWhileDown(t *testing.T) {
	t.Parallel()
	var path string
	var good []byte
	var starts atomic.Int64
	damaged := make(chan struct{})
	c := startChild(t, ChildOptions{Patience: 50 * time.Millisecond, Command: func() *exec.Cmd {
		if starts.Add(1) == 2 {
			var err error
			if good, err = os.ReadFile(path); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(path, bytes.Repeat([]byte("garbage "), 4096), 0o600); err != nil {
				t.Error(err)
			}
			close(damaged)
		}
		return childCommand("serve")
	}})
	path = c.path
	require.NoError(t, c.Apply(t.Context(), add(numbers(1)), nil))
	_, err := c.Checkpoint(t.Context())
	require.NoError(t, err)
	killNow(t, c)
	<-damaged
	eventually(t, "it says why", func() bool { h := c.Health(); return !h.Up && errors.Is(whyOf(c), ErrUnreadable) && h.Why != "" })
	_, err = c.Int(t.Context(), `SELECT 1`)
	require.ErrorIs(t, err, ErrOutOfOrder)
	require.ErrorIs(t, err, ErrUnreadable)
	left, err := filepath.Glob(path + ".*aside*")
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, os.WriteFile(path, good, 0o600))
	eventually(t, "it is back", func() bool { return c.Health().Up })
	require.Len(t, read(t, c, `SELECT n FROM ice.numbers`), 1)
}

func whyOf(c *Child) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// A start says what is the file's fault and what is not.
func TestStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		modes   []string // of the first processes
		fault   error
		damaged bool
	}{
		"good":               {},
		"dies of it":         {modes: []string{"crash", "crash"}, fault: ErrUnreadable},
		"dies once":          {modes: []string{"crash"}},
		"dies otherwise":     {modes: []string{"crash", "killed"}},
		"refuses it":         {damaged: true, fault: ErrUnreadable},
		"killed twice":       {modes: []string{"killed", "killed"}},
		"killed all along":   {modes: []string{"killed", "killed", "killed"}, fault: ErrGone},
		"is no child at all": {modes: []string{"gibberish", "gibberish", "gibberish"}, fault: ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "w.duckdb")
			if test.damaged {
				require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("garbage "), 4096), 0o600))
			}
			started := 0
			c, err := Start(t.Context(), path, testOptions(dir), ChildOptions{Log: quiet, Command: func() *exec.Cmd {
				if started++; started <= len(test.modes) {
					return childCommand(test.modes[started-1])
				}
				return childCommand("serve")
			}})
			if test.fault != nil {
				require.ErrorIs(t, err, test.fault)
				if errors.Is(test.fault, ErrGone) {
					require.NotErrorIs(t, err, ErrUnreadable)
				}
				return
			}
			require.NoError(t, err)
			require.Equal(t, len(test.modes)+1, started)
			require.NoError(t, c.Close())
			_, err = c.Int(t.Context(), `SELECT 1`)
			require.ErrorIs(t, err, ErrClosed)
		})
	}
}

// A child that cannot be started again is waited for as long as patience lasts,
// and Close does not wait for it.
func TestAwayForGood(t *testing.T) {
	t.Parallel()
	started := 0
	c := startChild(t, ChildOptions{Patience: time.Millisecond, Command: func() *exec.Cmd {
		if started++; started > 1 {
			return exec.Command(filepath.Join(os.DevNull, "nothing")) //nolint:noctx // it does not start
		}
		return childCommand("serve")
	}})
	killNow(t, c)
	_, err := c.Int(t.Context(), `SELECT 1`)
	require.ErrorIs(t, err, ErrOutOfOrder)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Apply(ctx, nil, nil), context.Canceled)
}
