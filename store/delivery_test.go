package store

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/trace"
)

func TestSeek(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r0", "g0")
	d.done("r1", "g1")
	between := d.clock.us.Load()
	d.done("r2", "g2")
	first := d.lease("a", "k") // oldest versions 0, 1, 2
	_, err := d.AckLease(d.ctx, first.ID, nil, nil)
	require.NoError(t, err)
	for _, c := range []struct {
		to   Seek
		want []string
	}{
		{Seek{Time: &between}, []string{"g1", "g2"}},
		{Seek{End: true}, []string{}},
		{Seek{}, []string{"g0", "g1", "g2"}},
	} {
		changed := d.GroupsChanged()
		_, err := d.SeekConsumer(d.ctx, "a", c.to)
		require.NoError(t, err)
		<-changed
		require.Equal(t, c.want, d.names("a"))
	}
	open := d.lease("a", "k2")
	cancelled, err := d.SeekConsumer(d.ctx, "a", Seek{PolicyVersion: ptr(int64(2))})
	require.NoError(t, err)
	require.Equal(t, 1, cancelled)
	_, err = d.AckLease(d.ctx, open.ID, nil, nil)
	require.ErrorIs(t, err, ErrLeaseLost)
	again := d.lease("a", "k3")
	_, err = d.AckLease(d.ctx, again.ID, nil, nil)
	require.NoError(t, err)
	_, err = d.SeekConsumer(d.ctx, "a", Seek{PolicyVersion: ptr(int64(2))})
	require.NoError(t, err)
	require.Equal(t, []string{"g2"}, d.names("a"), "the others are of older versions")
	state, err := d.Consumer(d.ctx, "a")
	require.NoError(t, err)
	require.Equal(t, ptr(int64(2)), state.FromPolicyVersion)
	require.EqualValues(t, 6, state.Acknowledged.Groups, "what was acknowledged was")
	_, err = d.SeekConsumer(d.ctx, "nobody", Seek{})
	require.ErrorIs(t, err, ErrNotFound)
}

// A rollout that moves to another group is not given out twice, and takes its
// first group with it when that one's time is over.
func TestRolloutThatMoved(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r1", "")
	alone := d.lease("a", "k")
	d.done("r1b", "g")
	group := "g"
	_, _, err := d.PatchRollout(d.ctx, "r1", &trace.RolloutPatch{GroupID: &group})
	require.NoError(t, err)
	list := d.candidates("a")
	require.Len(t, list, 1)
	require.Equal(t, 2, list[0].Known)
	r, err := d.Store.Rollout(d.ctx, "r1")
	require.NoError(t, err)
	given, err := d.Given(d.ctx, "a", []int64{r.Key, 4711})
	require.NoError(t, err)
	require.Equal(t, map[int64]int64{r.Key: alone.ExpiresAt}, given)
	n := d.plan("a", "k2", list...)
	_, err = d.OpenLease(d.ctx, n)
	require.ErrorIs(t, err, ErrGroupTaken)
	d.clock.advance(time.Minute)
	_, err = d.OpenLease(d.ctx, n)
	require.NoError(t, err)
	_, err = d.AckLease(d.ctx, alone.ID, nil, nil)
	require.ErrorIs(t, err, ErrLeaseLost, "its rollout went elsewhere")
}

func TestChangedAfterLease(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r1", "g1")
	d.done("r2", "g2")
	n := d.plan("a", "k", d.candidates("a")...)
	d.reward("r2", 1) // between plan and lease
	put(t, d.Store, call("t0", "r2", []int32{1}, []int32{2}))
	l, err := d.OpenLease(d.ctx, n)
	require.NoError(t, err)
	changed := func() ChangedAfterLease {
		state, err := d.Consumer(d.ctx, "a")
		require.NoError(t, err)
		return state.Changed
	}
	require.Equal(t, ChangedAfterLease{1, 1, 1, 0}, changed())
	put(t, d.Store, call("t1", "r1", []int32{1}, []int32{2}))
	require.Equal(t, ChangedAfterLease{2, 2, 1, 0}, changed())
	_, err = d.AckLease(d.ctx, l.ID, nil, nil)
	require.NoError(t, err)
	d.reward("r1", 1)
	require.Equal(t, ChangedAfterLease{2, 2, 2, 0}, changed())
	require.Empty(t, d.names("a"), "counted, not delivered again")
}

// What finishes in a group that is given out already is counted, from the lease
// on; also what finished while the lease was planned.
func TestRolloutsThatCameLate(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	late := func() int64 {
		t.Helper()
		state, err := d.Consumer(d.ctx, "a")
		require.NoError(t, err)
		return state.Changed.Late
	}
	fail := func(id string) {
		t.Helper()
		group := "g"
		_, _, err := d.PatchRollout(d.ctx, id, &trace.RolloutPatch{GroupID: &group})
		require.NoError(t, err)
		_, _, _, err = d.FinishRollout(d.ctx, id, &trace.Finish{Status: "failed"})
		require.NoError(t, err)
	}
	d.done("r1", "g")
	n := d.plan("a", "k", d.candidates("a")...)
	d.done("r2", "g") // between plan and lease
	fail("failed")    // what was left out of a plan looks like this
	d.clock.advance(time.Second)
	l, err := d.OpenLease(d.ctx, n)
	require.NoError(t, err)
	require.EqualValues(t, 1, late())
	d.clock.advance(10 * time.Second)
	d.done("r3", "g")
	require.EqualValues(t, 2, late())
	_, err = d.AckLease(d.ctx, l.ID, nil, nil)
	require.NoError(t, err)
	fail("failed late")
	d.done("other", "h")
	require.EqualValues(t, 3, late())
	require.Equal(t, []string{"h"}, d.names("a"))
	_, err = d.SeekConsumer(d.ctx, "a", Seek{})
	require.NoError(t, err)
	require.EqualValues(t, 0, late(), "all of them come again")
}

func TestDropConsumer(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r1", "g1")
	l := d.lease("a", "k")
	_, err := d.AckLease(d.ctx, l.ID, nil, nil)
	require.NoError(t, err)
	_ = d.candidates("b")
	require.NoError(t, d.DropConsumer(d.ctx, "a"))
	require.ErrorIs(t, d.DropConsumer(d.ctx, "a"), ErrNotFound)
	_, err = d.Consumer(d.ctx, "a")
	require.ErrorIs(t, err, ErrNotFound)
	_, err = d.Lease(d.ctx, l.ID)
	require.ErrorIs(t, err, ErrNotFound)
	all, err := d.Consumers(d.ctx)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "b", all[0].Name)
	require.NotEqual(t, l.ID, d.lease("a", "k").ID, "it begins anew")
}

// What could make a group ready wakes whoever waits; what cannot does not.
func TestGroupsChanged(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	woken := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	step := func(name string, want bool, do func() error) {
		ch := d.GroupsChanged()
		require.NoError(t, do(), name)
		require.Equal(t, want, woken(ch), name)
	}
	traces := func(id string) func() error {
		return func() error {
			_, _, err := d.PutTraces(d.ctx, []*trace.Trace{call(id, "r", []int32{1}, []int32{2})})
			return err
		}
	}
	step("a new rollout", true, traces("t1"))
	step("one more call", false, traces("t2"))
	step("an announced call", false, func() error {
		_, _, err := d.PutIntents(d.ctx, []*trace.Intent{{TraceID: "t3", RolloutID: "r"}})
		return err
	})
	step("finish", true, func() error {
		_, _, _, err := d.FinishRollout(d.ctx, "r", &trace.Finish{Status: "succeeded"})
		return err
	})
	step("the announced call", true, traces("t3"))
	step("another reward", false, func() error {
		_, _, err := d.PutRewards(d.ctx, []*trace.Reward{{RewardID: "s", RolloutID: "r", Name: "style"}})
		return err
	})
	step("the reward", true, func() error {
		_, _, err := d.PutRewards(d.ctx, []*trace.Reward{{RewardID: "o", RolloutID: "r", Name: "outcome"}})
		return err
	})
	step("attributes", true, func() error {
		_, _, err := d.PatchRollout(d.ctx, "r", &trace.RolloutPatch{GroupSize: ptr(int64(1))})
		return err
	})
	step("candidates", false, func() error { _, _, err := d.Candidates(d.ctx, "a"); return err })
	var l *Lease
	step("a lease", false, func() error { l = d.lease("a", "k"); return nil })
	step("its ack", true, func() error { _, err := d.AckLease(d.ctx, l.ID, nil, nil); return err })
}

// A database of before delivery gets its groups.
func TestMigrateDelivery(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, err := os.ReadFile("../migrations/control/0001_control.up.sql")
	require.NoError(t, err)
	c, err := openControl(filepath.Join(dir, controlFile))
	require.NoError(t, err)
	_, err = c.write.Exec(string(text) + `
		CREATE TABLE schema_version (version INTEGER NOT NULL);
		INSERT INTO schema_version VALUES (1);
		INSERT INTO meta (key, value) VALUES ('next_rollout', 6), ('next_batch', 1);
		INSERT INTO rollouts (rollout_key, rollout_id, put, group_id, group_size, status, finished_at, created_at, updated_at) VALUES
			(1, 'r1', '{"group_id":"g","group_size":2}', 'g', 2, 'succeeded', 20, 10, 20),
			(2, 'r2', '{"group_id":"g"}', 'g', NULL, 'failed', 30, 11, 30),
			(3, 'r3', '{"group_id":"h"}', 'h', NULL, NULL, NULL, 12, 12),
			(4, 'r4', '{}', NULL, NULL, 'succeeded', 25, 13, 25),
			(5, 'r5', '{}', NULL, NULL, NULL, NULL, 14, 14);
		INSERT INTO rewards (reward_id, rollout_key, name, revision, value, stored_at) VALUES ('w', 1, 'outcome', 0, 1, 21)`)
	require.NoError(t, err)
	require.NoError(t, c.close())
	s := open(t, Options{Dir: dir})
	list, held, err := s.Candidates(context.Background(), "a")
	require.NoError(t, err)
	require.Zero(t, held)
	require.Equal(t, []Candidate{
		{Key: 2, GroupID: "h", Known: 1, NewestAt: 12},
		{Key: 3, Known: 1, Finished: 1, FinishedAt: 25, NewestAt: 13},
		{Key: 1, GroupID: "g", Declared: ptr(int64(2)), Known: 2, Finished: 2, Settled: 2, FinishedAt: 30, NewestAt: 11},
	}, list)
}

// A rebuild keeps what consumers were given, and sums anew.
func TestRebuildKeepsDelivery(t *testing.T) {
	t.Parallel()
	c := newClock()
	opts := quiet(t, Options{Dir: t.TempDir(), Clock: c.now})
	s, err := Open(context.Background(), opts)
	require.NoError(t, err)
	d := &desk{TB: t, Store: s, clock: c, ctx: context.Background()}
	put(t, s, call("t1", "r1", []int32{1}, []int32{2}), call("t2", "r2", []int32{1}, []int32{2}))
	d.done("r1", "g1")
	l := d.lease("a", "k")
	_, err = d.AckLease(d.ctx, l.ID, nil, nil)
	require.NoError(t, err)
	d.done("r2", "g2")
	require.NoError(t, s.Close(d.ctx))
	control, err := openControl(filepath.Join(opts.Dir, controlFile))
	require.NoError(t, err)
	_, err = control.write.Exec(`DELETE FROM groups WHERE group_id = 'g2'`)
	require.NoError(t, err)
	require.NoError(t, control.close())
	opts.RebuildIndex = true
	d.Store = open(t, opts)
	require.Equal(t, []string{"g2"}, d.names("a"))
	state, err := d.Consumer(d.ctx, "a")
	require.NoError(t, err)
	require.EqualValues(t, 1, state.Acknowledged.Groups)
	require.Zero(t, state.Changed)
}
