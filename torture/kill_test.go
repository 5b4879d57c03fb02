package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// death says how a server is to die: at a named point at a random hit, or at a
// random moment.
type death struct {
	point string
	most  int
}

var deaths = []death{
	{"commit.before", 25}, {"commit.after", 25}, {"drain.inside", 4}, {"drain.after", 4},
	{"checkpoint.before", 3}, {"checkpoint.after", 3}, {"publish.inside", 3},
	{"any moment", 0}, {"while it starts", 0},
}

// TestKill kills the server over and over on one directory, under load, and
// looks at everything in between.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	r := rand.New(rand.NewPCG(*seed, 3))
	m := newMaker(*seed, "k")
	w := newWorld(*seed)
	kills := map[string]int{}
	for round := range *rounds {
		for _, i := range r.Perm(len(deaths)) {
			d := deaths[i]
			w.grow(m, 4**load, 6)
			kills[killOnce(t, dir, w, m, r, d)]++
			if r.IntN(3) == 0 {
				verified(t, dir)
			}
			s := start(t, dir)
			check(t, w, s, 5)
			if r.IntN(2) == 0 {
				s.kill()
			} else {
				s.stop(t)
			}
		}
		t.Logf("round %d: kills %v", round, kills)
	}
	finishAll(t, dir, w)
}

// killOnce runs a server under load until it is dead, and says what it died of.
func killOnce(t *testing.T, dir string, w *world, m *maker, r *rand.Rand, d death) string {
	t.Helper()
	failpoint := ""
	if d.most > 0 {
		failpoint = fmt.Sprintf("%s=kill@%d", d.point, 1+r.IntN(d.most))
	}
	if d.point == "while it starts" {
		s, _ := launchUntil(dir, "", time.After(time.Duration(r.IntN(250))*time.Millisecond), busy...)
		s.kill()
		require.True(t, s.killedBySignal(), "the server ended by itself: %v\n%s", s.err, s.stderr)
		return d.point
	}
	s, err := launch(dir, failpoint, busy...)
	if err != nil {
		// Starting drains, checkpoints and merges too.
		require.True(t, s.killedBySignal() && failpoint != "", "start with %q: %v", failpoint, err)
		return d.point + " (at start)"
	}
	t.Cleanup(s.kill)
	ctx, cancel := context.WithCancel(context.Background())
	l := newLoader(w, s.url)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for more := 0; more < 6 && s.alive() && ctx.Err() == nil && len(l.faults()) == 0; more++ {
			l.run(ctx, 4)
			select { // what was stored is merged now
			case <-s.exited:
			case <-time.After(30 * time.Millisecond):
				w.grow(m, 2, 6)
			}
		}
	}()
	reason, limit := d.point, 10*time.Second
	if failpoint == "" {
		limit = time.Duration(10+r.IntN(400)) * time.Millisecond
	}
	select {
	case <-s.exited:
	case <-done:
		reason += " (not reached)"
	case <-time.After(limit):
	}
	s.kill()
	cancel()
	<-done
	require.NoError(t, errors.Join(l.faults()...), "server said: %s", s.stderr)
	require.True(t, s.killedBySignal(), "the server ended by itself: %v\n%s", s.err, s.stderr)
	complaints(t, s)
	if odd, _ := filepath.Glob(filepath.Join(dir, "warehouse.duckdb.wal.*")); len(odd) > 0 { // the pattern is good
		t.Logf("%s left %v", reason, odd)
	}
	return reason
}

// complaints fails the test for what a server must not log without faults being
// injected.
func complaints(t *testing.T, s *server) {
	t.Helper()
	for line := range strings.SplitSeq(s.stderr.String(), "\n") {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") || strings.Contains(line, "DATA RACE") {
			t.Errorf("the server said: %s", line)
		}
	}
}

// finishAll stores what is left, stops and looks at everything.
func finishAll(t *testing.T, dir string, w *world) {
	t.Helper()
	s := start(t, dir)
	store(t, w, s)
	check(t, w, s, 100)
	again(t, w, s)
	complaints(t, s)
	s.stop(t)
	verified(t, dir)
	n := 0
	for _, ro := range w.rollouts {
		n += len(ro.items)
	}
	t.Logf("%d rollouts, %d traces, %d sent again", len(w.rollouts), n, w.stats.resent)
}

// store sends everything that is not acknowledged, without faults.
func store(t *testing.T, w *world, s *server) {
	t.Helper()
	l := newLoader(w, s.url)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l.run(ctx, 4)
	require.NoError(t, errors.Join(l.faults()...), "server said: %s", s.stderr)
	require.Zero(t, w.left(), "not everything could be stored: %v\n%s", l.again, s.stderr)
}

// again sends all traces once more: duplicates all, and another content under a
// stored id is a conflict that changes nothing.
func again(t *testing.T, w *world, s *server) {
	t.Helper()
	l := newLoader(w, s.url)
	r := rand.New(rand.NewPCG(*seed, 4))
	for _, ro := range w.rollouts {
		l.sendTraces(context.Background(), r, ro.items)
		it := ro.items[r.IntN(len(ro.items))]
		changed := *it.t
		changed.Attributes.Model += "x"
		status, answer := l.do(context.Background(), "POST", "/v1/traces", "application/json", "", encode(&changed))
		if status != 422 || !strings.Contains(string(answer), `"code":"conflict"`) {
			t.Errorf("trace %s with another content was answered %d: %s", it.t.TraceID, status, answer)
		}
	}
	require.NoError(t, errors.Join(l.faults()...))
	check(t, w, s, 5)
}
