package apptest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A group that is given out takes nothing in any more: what comes late, as when a
// group_id is used again, is counted.
func TestLateRolloutsAreCounted(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("g", 1, 0)...)
	l := s.lease("c", object{})
	late := func(id, status string) episode {
		return episode{id: id, group: "g", size: 2, status: status, reward: ptr(1.0)}
	}
	s.perform(late("held", "succeeded"), late("open", ""))
	require.Equal(t, 1, s.consumer("c").Changed.Late)
	s.ack(l.id, object{}).is(200)
	s.perform(late("acked", "failed"))
	s.nothing("c", object{})
	changed := s.consumer("c").Changed
	require.Equal(t, []int{2, 0}, []int{changed.Late, changed.Rollouts})
	require.Equal(t, 3, s.lease("other", object{}).count("lease_rollouts"), "who was not given it gets all")
	require.Zero(t, s.consumer("other").Changed.Late)
}

// All that is settled is delivered, also more than was declared.
func TestMoreRolloutsThanDeclared(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	g := group("g", 1, 0, 0, 1)
	for i := range g {
		g[i].size = 2
	}
	g[3].status = ""
	s.perform(g...)
	s.perform(group("h", 1, 0)...)
	l := s.lease("c", object{})
	require.Equal(t, []string{"g/0", "g/1", "g/2", "h/0", "h/1"}, l.rollouts())
	require.Equal(t, []int{1, 1}, []int{l.count("beyond_declared"), l.count("unfinished")})
}

// Rows that are newer than the learner, and groups that teach nothing, are
// counted over the lease, whatever shard is sent, and again alike.
func TestWhatLeasesSayOfTheirRows(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	g := group("g", 1, 0, 1)
	g[1].calls = []call{oneCall("g/1", 41, 6)}
	g[2].calls = []call{oneCall("g/2", 42, 6)}
	s.perform(g...)
	s.perform(group("zero", 1, 1)...)
	s.perform(group("last", 1, 1)...)
	request := object{"key": "k", "policy_version": 41, "max_groups": 2, "shards": 2}
	l := s.lease("c", request)
	say := func(l *leased) []int {
		return []int{l.count("newer_than_learner"), l.count("zero_advantage_groups"), l.count("zero_advantage_tokens")}
	}
	require.Equal(t, []int{1, 1, 4}, say(l))
	require.Equal(t, "max_groups", l.meta["cut_by"])
	require.Equal(t, l.body, s.lease("c", request).body)
	for shard := range 2 {
		request["shard"] = shard
		part := s.lease("c", request)
		require.Equal(t, say(l), say(part))
		require.Equal(t, "max_groups", part.meta["cut_by"])
	}
	l = s.lease("other", object{})
	require.Equal(t, []int{0, 2, 8}, say(l), "nothing is newer than a version that is not said")
	require.Empty(t, l.meta["cut_by"])
}

// A group whose size is larger than what was opened is told apart from one that is
// still running; it waits until the rest comes.
func TestMissingRollouts(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	g := group("g", 1, 0, 1)
	s.perform(g[:2]...)
	waits := func() []int {
		t.Helper()
		a, lag := s.nothing("c", object{}), s.consumer("c").Lag
		require.Equal(t, []int{a.said("Waiting-Missing"), a.said("Waiting-Not-Finished")}, []int{lag.Missing, lag.NotFinished})
		return []int{lag.Missing, lag.NotFinished}
	}
	require.Equal(t, []int{1, 0}, waits())
	g[2].status = ""
	s.perform(g[2])
	require.Equal(t, []int{0, 1}, waits())
	s.post(path("rollouts", "g/2", "finish"), object{"status": "succeeded"}).is(200)
	require.Len(t, s.lease("c", object{}).rollouts(), 3)
}

// Of groups that are skipped because nothing is left of them, the answer says why.
func TestWhyGroupsAreEmpty(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	failed := group("failed", 1, 1)
	failed[0].status, failed[1].status = "failed", "timeout"
	unprompted := group("unprompted", 1)
	unprompted[0].calls = []call{plain("unprompted/0", "u", 1, ids(), ids(30, 31))}
	s.perform(failed...)
	s.perform(unprompted...)
	s.perform(group("incomplete", 1)...)
	s.post("/v1/traces/begin", object{"trace_id": "lost", "rollout_id": "incomplete/0", "seq": 9}).is(200)
	say := func(a *answer) []int {
		return []int{a.said("Skipped-Empty"), a.said("Excluded-Failed"), a.said("Excluded-Incomplete"), a.said("Unprompted-Rows")}
	}
	require.Equal(t, []int{3, 2, 1, 1}, say(s.nothing("c", object{})))
	require.Equal(t, []int{0, 0, 0, 0}, say(s.nothing("c", object{})), "they are settled")
	// A lease counts what was left out of its own groups.
	s.perform(group("g", 1, 0)...)
	require.Equal(t, []int{3, 0, 0, 0}, say(s.lease("other", object{}).answer))
}
