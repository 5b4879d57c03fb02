package torture

import (
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDamagedLog damages the warehouse's write-ahead log after a kill. The
// journal still has what it held.
func TestDamagedLog(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	r := rand.New(rand.NewPCG(*seed, 9))
	m, w := newMaker(*seed, "l"), newWorld(*seed)
	aside := 0
	for round := range *rounds {
		w.grow(m, 4, 5)
		drainedAndKilled(t, dir, w, round%3 == 2)
		log := filepath.Join(dir, "warehouse.duckdb.wal")
		content, err := os.ReadFile(log)
		if os.IsNotExist(err) || len(content) < 100 {
			continue
		}
		require.NoError(t, err)
		if r.IntN(2) == 0 {
			content = content[:r.IntN(len(content))]
		} else {
			at := r.IntN(len(content) - 16)
			for i := range 16 {
				content[at+i] = byte(r.Uint32())
			}
		}
		require.NoError(t, os.WriteFile(log, content, 0o644))
		s := start(t, dir)
		check(t, w, s, 100)
		reports, err := filepath.Glob(filepath.Join(dir, "*.report.txt"))
		require.NoError(t, err)
		if len(reports) > aside {
			aside = len(reports)
			require.Contains(t, s.stderr.String(), "warehouse set aside")
			text, err := os.ReadFile(reports[0])
			require.NoError(t, err)
			require.Contains(t, string(text), "could not be read and was moved to")
		}
		s.stop(t)
		verified(t, dir)
	}
	t.Logf("%d logs were set aside", aside)
	finishAll(t, dir, w)
}

// drainedAndKilled stores everything, waits until the warehouse has it, and
// kills the server.
func drainedAndKilled(t *testing.T, dir string, w *world, checkpoints bool) {
	t.Helper()
	args := busy
	if !checkpoints {
		args = append(slices.Clone(busy), "--checkpoint-every=1h", "--checkpoint-bytes=1GiB")
	}
	s, err := launch(dir, "", args...)
	require.NoError(t, err)
	t.Cleanup(s.kill)
	store(t, w, s)
	time.Sleep(50 * time.Millisecond)
	s.kill()
}

// TestDamagedFile destroys the header of the warehouse's file. Nothing can
// bring back what only that file held; the server starts, says so, and takes it
// in again.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	m, w := newMaker(*seed, "h"), newWorld(*seed)
	for round := range *rounds {
		// Some is in the file only, and what is in the journal goes on from it.
		s, err := launch(dir, "", append(busy[:len(busy):len(busy)], "--checkpoint-every=1s", "--checkpoint-bytes=1GiB")...)
		require.NoError(t, err)
		t.Cleanup(s.kill)
		w.grow(m, 4, 5)
		store(t, w, s)
		time.Sleep(1500 * time.Millisecond)
		w.grow(m, 4, 5)
		addMore(m, w)
		store(t, w, s)
		s.kill()
		f, err := os.OpenFile(filepath.Join(dir, "warehouse.duckdb"), os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte(strings.Repeat("broken! ", 12<<10/8)), 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		if round%2 == 1 { // and it dies in the midst of getting over that
			s, err = launch(dir, "rebuild.before_commit=kill@1", busy...)
			require.Error(t, err)
			require.True(t, s.killedBySignal(), "%v", err)
			s = start(t, dir)
		} else {
			s = start(t, dir)
			require.Contains(t, s.stderr.String(), "warehouse set aside")
		}
		lost := forget(t, w, s)
		t.Logf("round %d: %d traces were lost with the file", round, lost)
		store(t, w, s)
		check(t, w, s, 100)
		s.stop(t)
		verified(t, dir)
	}
	finishAll(t, dir, w)
}

// addMore makes rollouts that are there already grow.
func addMore(m *maker, w *world) {
	for _, ro := range w.rollouts {
		if m.chance(50) {
			continue
		}
		g := &rolloutMaker{maker: m, id: ro.id, seq: 1000 + int64(len(ro.items))}
		base := ro.items[m.r.IntN(len(ro.items))]
		if base.t.PromptIDs == nil {
			continue
		}
		c := g.add(append(append(base.t.PromptIDs.Flat(), base.t.ResponseIDs...), g.ids(3)...), g.answer())
		it := &item{t: c.t, in: ro}
		ro.items = append(ro.items, it)
		w.open = append(w.open, it)
	}
}

// forget finds out what a server has lost, and queues that again.
func forget(t *testing.T, w *world, s *server) (lost int) {
	t.Helper()
	o := oracleOf(w, s)
	for _, ro := range w.rollouts {
		for _, it := range ro.items {
			var answer any
			if it.acked == 0 || o.get("/v1/traces/"+url.PathEscape(it.t.TraceID), &answer) {
				continue
			}
			it.state = state{sent: it.sent, gone: true}
			w.open = append(w.open, it)
			lost++
		}
	}
	require.Empty(t, o.errs)
	return lost
}
