package torture

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // to look into, and damage, the control database
)

// TestMigrationKilled kills the first start inside each database's migration:
// the server in that of the control database, the warehouse's process in its
// own, which the server starts again.
func TestMigrationKilled(t *testing.T) {
	t.Parallel()
	for point, survives := range map[string]bool{"migrate.inside": false, "child.migrate": true} {
		dir := scratch(t)
		s, err := launch(dir, point+"=kill@1", busy...)
		if survives {
			require.NoError(t, err)
			require.Contains(t, s.stderr.String(), "was killed while it opened the file")
			s.kill()
		}
		require.True(t, s.killedBySignal(), "%s: %v", point, err)
		w := newWorld(*seed)
		w.grow(newMaker(*seed, "m"), 2, 4)
		finishAll(t, dir, w)
	}
}

// TestRebuildKilled kills a rebuild of the index; the next normal start does it.
func TestRebuildKilled(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	r := rand.New(rand.NewPCG(*seed, 5))
	m, w := newMaker(*seed, "b"), newWorld(*seed)
	for range *rounds {
		w.grow(m, 5, 5)
		leave(t, dir, w, r)
		damage(t, dir, fmt.Sprintf(`DELETE FROM trace_index WHERE trace_key %% 3 = %d`, r.IntN(3)))
		s, err := launch(dir, "rebuild.before_commit=kill@1", append(busy, "--rebuild-index")...)
		require.Error(t, err)
		require.True(t, s.killedBySignal(), "%v", err)
		s = start(t, dir)
		check(t, w, s, 100)
		s.kill()
	}
	finishAll(t, dir, w)
}

// TestRebuild restores an index of which rows were deleted.
func TestRebuild(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	r := rand.New(rand.NewPCG(*seed, 6))
	m, w := newMaker(*seed, "i"), newWorld(*seed)
	for _, loss := range []string{`DELETE FROM trace_index WHERE trace_key % 2 = 0`, `DELETE FROM trace_index`} {
		w.grow(m, 5, 5)
		leave(t, dir, w, r)
		damage(t, dir, loss)
		s := start(t, dir, "--rebuild-index")
		check(t, w, s, 100)
		again(t, w, s)
		s.stop(t)
		verified(t, dir)
	}
	finishAll(t, dir, w)
}

// leave stores some of what the world holds and leaves a directory that no
// process uses, mostly by a kill.
func leave(t *testing.T, dir string, w *world, r *rand.Rand) {
	t.Helper()
	s := start(t, dir)
	l := newLoader(w, s.url)
	for range 20 + r.IntN(40) {
		l.once(t.Context())
	}
	require.Empty(t, l.faults())
	if r.IntN(4) == 0 {
		s.stop(t)
	} else {
		s.kill()
	}
}

// damage changes the control database behind the server's back.
func damage(t *testing.T, dir, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "control.sqlite"))
	require.NoError(t, err)
	_, err = db.Exec(statement)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// TestSecondProcess: only one may use a directory, and the other is told who.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	s := start(t, dir)
	for range 2 {
		other, err := launch(dir, "", busy...)
		require.Error(t, err)
		require.False(t, other.killedBySignal())
		require.Contains(t, err.Error(), fmt.Sprintf("process %d", s.cmd.Process.Pid))
		require.Contains(t, err.Error(), s.url[len("http://"):])
		require.Contains(t, err.Error(), dir)
	}
	w := newWorld(*seed)
	w.grow(newMaker(*seed, "s"), 2, 4)
	store(t, w, s)
	s.kill() // the lock goes with its process
	finishAll(t, dir, w)
}

// TestOldControl: a control database from a copy does not know what the
// warehouse holds.
func TestOldControl(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	m, w := newMaker(*seed, "o"), newWorld(*seed)
	fill := func() {
		w.grow(m, 3, 4)
		s := start(t, dir)
		store(t, w, s)
		s.stop(t)
	}
	control := filepath.Join(dir, "control.sqlite")
	fill()
	old, err := os.ReadFile(control)
	require.NoError(t, err)
	fill()
	now, err := os.ReadFile(control)
	require.NoError(t, err)
	put := func(content []byte) {
		for _, end := range []string{"-wal", "-shm"} {
			require.NoError(t, ignoreMissing(os.Remove(control+end)))
		}
		require.NoError(t, os.WriteFile(control, content, 0o644))
	}
	put(old)
	s, err := launch(dir, "", busy...)
	require.Error(t, err)
	require.False(t, s.killedBySignal())
	for _, part := range []string{"the warehouse holds batch", "control.sqlite", "--rebuild-index"} {
		require.Contains(t, err.Error(), part)
	}
	put(now)
	s = start(t, dir)
	check(t, w, s, 100)
	s.stop(t)
	// Told to, it makes do with the old one: what the warehouse holds is known.
	put(old)
	s = start(t, dir, "--rebuild-index")
	// Intents, and what was set since the copy, are not.
	o := oracleOf(w, s)
	o.each(o.traces)
	o.exports()
	require.Empty(t, o.errs)
	s.stop(t)
	verified(t, dir)
}

// TestOldWarehouse: a warehouse from a copy, or none, lacks what the journal
// does not hold any more.
func TestOldWarehouse(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	m, w := newMaker(*seed, "e"), newWorld(*seed)
	fill := func() {
		w.grow(m, 3, 4)
		addMore(m, w)
		s := start(t, dir)
		store(t, w, s)
		s.stop(t)
	}
	warehouse := filepath.Join(dir, "warehouse.duckdb")
	fill()
	old, err := os.ReadFile(warehouse)
	require.NoError(t, err)
	for _, content := range [][]byte{old, nil} {
		fill()
		if content == nil {
			require.NoError(t, os.Remove(warehouse))
		} else {
			require.NoError(t, os.WriteFile(warehouse, content, 0o644))
		}
		s, err := launch(dir, "", busy...)
		require.Error(t, err)
		require.False(t, s.killedBySignal())
		for _, part := range []string{"warehouse.duckdb is missing or older than control.sqlite", "--rebuild-index"} {
			require.Contains(t, err.Error(), part)
		}
		s = start(t, dir, "--rebuild-index")
		require.NotZero(t, forget(t, w, s))
		store(t, w, s)
		check(t, w, s, 100)
		s.stop(t)
		verified(t, dir)
	}
	finishAll(t, dir, w)
}

func ignoreMissing(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
