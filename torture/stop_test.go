package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStopUnderLoad stops as an operator does while clients send. What was
// acknowledged is there, and the exit is clean.
func TestStopUnderLoad(t *testing.T) { stopUnderLoad(t, false) }

// TestStopTwice loses patience.
func TestStopTwice(t *testing.T) { stopUnderLoad(t, true) }

func stopUnderLoad(t *testing.T, twice bool) {
	t.Parallel()
	dir := scratch(t)
	r := rand.New(rand.NewPCG(*seed, 10))
	m, w := newMaker(*seed, "q"), newWorld(*seed)
	forced := 0
	for range *rounds {
		w.grow(m, 10, 6)
		s := start(t, dir)
		ctx, cancel := context.WithCancel(context.Background())
		l := newLoader(w, s.url)
		done := make(chan struct{})
		go func() { l.run(ctx, 4); close(done) }()
		time.Sleep(time.Duration(10+r.IntN(200)) * time.Millisecond)
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
		if twice {
			time.Sleep(time.Duration(r.IntN(r.IntN(300)+1)) * time.Millisecond)
			_ = s.cmd.Process.Signal(syscall.SIGINT) // it may be gone already
		}
		select {
		case <-s.exited:
		case <-time.After(startTimeout):
			t.Fatalf("the server did not stop:\n%s", s.stderr)
		}
		cancel()
		<-done
		require.NoError(t, errors.Join(l.faults()...), "%s", s.stderr)
		code := s.cmd.ProcessState.ExitCode()
		if twice && code != 0 {
			require.Equal(t, 130, code, "%s", s.stderr)
			forced++
		} else {
			require.Zero(t, code, "%s", s.stderr)
		}
		complaints(t, s)
		if code == 0 {
			verified(t, dir)
		}
		s = start(t, dir)
		check(t, w, s, 20)
		s.kill()
	}
	if twice {
		t.Logf("%d of %d stops were forced", forced, *rounds)
	}
	finishAll(t, dir, w)
}
