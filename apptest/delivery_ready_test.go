package apptest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A group that says its size is ready when so many of its rollouts are finished
// and rewarded, or failed; not before, and whoever comes later is left out.
func TestDeclaredGroupIsReady(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	g := group("g", 1, 0, 0)
	g[0].status, g[1].reward = "", nil
	s.perform(g[0])
	a := s.nothing("c", object{})
	require.Equal(t, 1, a.said("Waiting-Not-Finished"))
	s.perform(g[1], g[2])
	require.Equal(t, 1, s.nothing("c", object{}).said("Waiting-Not-Finished"))
	s.post(path("rollouts", "g/0", "finish"), object{"status": "succeeded"}).is(200)
	a = s.nothing("c", object{})
	require.Equal(t, 0, a.said("Waiting-Not-Finished"))
	require.Equal(t, 1, a.said("Waiting-Not-Rewarded"))
	lag := s.consumer("c").Lag
	require.Equal(t, []int{0, 0, 1}, []int{lag.Ready, lag.NotFinished, lag.NotRewarded})
	// One that failed needs no reward.
	s.perform(episode{id: "g/3", group: "g", size: 3, status: "timeout"})
	s.perform(episode{id: "g/4", group: "g", size: 3, calls: []call{oneCall("g/4", 1, 6)}})
	lag = s.consumer("c").Lag
	require.Equal(t, 1, lag.Ready)
	require.NotNil(t, lag.OldestReadyAt)
	l := s.lease("c", object{})
	require.Equal(t, []string{"g/0", "g/2"}, l.rollouts(), "by sample_index")
	require.Equal(t, []int{1, 1, 1}, []int{l.count("excluded_failed"), l.count("unscored"), l.count("unfinished")})
	for i := range l.rows {
		r := l.rows[i]
		require.EqualValues(t, []int64{4, 2, 3}, []int64{r.GroupFinished, r.GroupScored, *r.GroupSize})
		require.InDelta(t, []float64{0.70710578, -0.70710578}[i], *r.Advantage, 1e-6)
	}
	require.Equal(t, 1, s.nothing("c", object{}).said("Waiting-Leased"))
}

// One that says no size is ready when all that are known are, and none is new.
func TestUndeclaredGroupIsReady(t *testing.T) {
	t.Parallel()
	s := start(t, "--group-quiet=1h", "--incomplete-wait=0s")
	g := group("g", 1, 0)
	g[0].size, g[1].size = 0, 0
	s.perform(g[0])
	s.perform(episode{id: "open", group: "g", calls: []call{}})
	require.Equal(t, 1, s.nothing("c", object{"quiet_seconds": 0}).said("Waiting-Not-Finished"))
	s.perform(g[1])
	s.post(path("rollouts", "open", "finish"), object{"status": "error"}).is(200)
	a := s.nothing("c", object{})
	require.Equal(t, []int{0, 1}, []int{a.said("Waiting-Not-Finished"), a.said("Waiting-Quiet")})
	require.Equal(t, 1, s.consumer("c").Lag.Quiet)
	// Time alone makes it ready: it is waited for.
	l := s.lease("c", object{"quiet_seconds": 0.3, "wait_seconds": 60})
	require.Equal(t, []string{"g/0", "g/1"}, l.rollouts())
	require.Nil(t, l.rows[0].GroupSize)
}

// A rollout without a group is a group by itself.
func TestRolloutWithoutGroup(t *testing.T) {
	t.Parallel()
	s := start(t, "--group-quiet=1h")
	s.perform(episode{id: "a", status: "succeeded"}, episode{id: "b", reward: ptr(1.0)})
	a := s.nothing("c", object{})
	require.Equal(t, []int{0, 1}, []int{a.said("Waiting-Not-Finished"), a.said("Waiting-Not-Rewarded")}, "an unfinished one is no group yet")
	s.rewardNow("a", 0.5, 0)
	s.perform(episode{id: "f", status: "failed", reward: ptr(9.0)})
	l := s.lease("c", object{})
	require.Equal(t, []string{"a"}, l.rollouts())
	require.Nil(t, l.rows[0].GroupID)
	require.True(t, l.rows[0].ZeroAdvantage)
	require.InDelta(t, 0, *l.rows[0].Advantage, 0)
	require.Equal(t, 1, l.count("skipped_empty"), "of a group that failed as a whole nothing is left")
	s.post(path("rollouts", "b", "finish"), object{"status": "succeeded"}).is(200)
	l = s.lease("c", object{"single": "reward"})
	require.Equal(t, []string{"b"}, l.rollouts())
	require.False(t, l.rows[0].ZeroAdvantage)
	require.InDelta(t, 1, *l.rows[0].Advantage, 0)
}

// require_reward: false takes what is finished; without a reward there is no
// advantage.
func TestRewardsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	g := group("g", 1, 0, 5)
	g[2].reward = nil
	s.perform(g...)
	s.nothing("c", object{})
	l := s.lease("c", object{"require_reward": false, "estimator": "dr_grpo"})
	require.Equal(t, 1, l.count("unscored"))
	require.Len(t, l.rows, 3)
	require.Nil(t, l.rows[2].Advantage)
	require.Nil(t, l.rows[2].Reward)
	require.EqualValues(t, 2, l.rows[0].GroupScored)
	require.InDelta(t, 0.5, *l.rows[0].Advantage, 1e-6)
}

func TestOnFailed(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	g := group("g", 1, 0, 3, 0)
	g[2].status = "failed"                      // with a reward all the same
	g[3].status, g[3].reward = "cancelled", nil // and without
	incomplete := group("i", 1, 0, 0)           // a call that was announced is missing
	s.perform(append(g, incomplete...)...)
	s.post("/v1/traces/begin", object{"trace_id": "lost", "rollout_id": "i/0", "seq": 9}).is(200)

	l := s.lease("exclude", object{"estimator": "dr_grpo"})
	require.Equal(t, []string{"g/0", "g/1", "i/1", "i/2"}, l.rollouts())
	require.Equal(t, []int{2, 1, 0}, []int{l.count("excluded_failed"), l.count("excluded_incomplete"), l.count("scored_failed")})
	require.InDelta(t, 0.5, *l.advantages()["g/0"], 1e-6)
	require.True(t, l.rows[2].ZeroAdvantage)

	l = s.lease("score", object{"estimator": "dr_grpo", "on_failed": "score", "failed_score": -4})
	require.Len(t, l.rollouts(), 7)
	require.Equal(t, []int{0, 0, 3}, []int{l.count("excluded_failed"), l.count("excluded_incomplete"), l.count("scored_failed")})
	require.InDelta(t, 3.0, *l.advantages()["g/2"], 1e-6, "a failed one keeps its own reward")
	require.InDelta(t, -4.0, *l.advantages()["g/3"], 1e-6, "the mean is 0")
	for i := range l.rows {
		if l.rows[i].RolloutID == "g/3" {
			require.InDelta(t, -4.0, *l.rows[i].Reward, 0)
		}
		require.Equal(t, l.rows[i].RolloutID != "i/0", l.rows[i].Complete)
	}

	a := s.nothing("drop", object{"on_failed": "drop_group"})
	require.Equal(t, 2, a.said("Skipped-Failed"))
	require.Equal(t, 0, s.nothing("drop", object{"on_failed": "drop_group"}).said("Skipped-Failed"), "they are settled")
	require.Equal(t, 2, s.consumer("drop").Skipped["failed"])

	l = s.lease("as it is", object{"estimator": "dr_grpo", "where": object{"complete": false}})
	require.Equal(t, []string{"g/0", "g/1", "i/0", "i/1", "i/2"}, l.rollouts())
	require.Equal(t, 0, l.count("excluded_incomplete"))
}

// An incomplete rollout is given some time for what is missing, and what comes in
// time is delivered.
func TestIncompleteIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := start(t, "--group-quiet=0s", "--incomplete-wait=1h")
	s.perform(group("g", 1, 0)...)
	late := oneCall("g/0", 1, 6).with("trace_id", "late", "seq", int64(2), "prompt_token_ids", ids(50, 51), "response_token_ids", ids(52), "response_logprobs", lps(-1))
	s.post("/v1/traces/begin", object{"trace_id": "late", "rollout_id": "g/0", "seq": 2}).is(200)
	require.Equal(t, 1, s.nothing("c", object{}).said("Waiting-Quiet"))
	require.Len(t, s.lease("impatient", object{"incomplete_seconds": 0}).rollouts(), 1)
	require.Len(t, s.lease("as it is", object{"where": object{"complete": false}}).rollouts(), 2)
	s.traces(late).is(200).all("stored", 1)
	l := s.lease("c", object{"wait_seconds": 60})
	require.Equal(t, []string{"g/0", "g/1"}, l.rollouts())
	require.Len(t, l.rows, 3)
}

// A rollout that moved to another group is not given twice, and not lost: that
// group waits for the lease that has it.
func TestMovedRolloutIsGivenOnce(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("g", 1, 0)...)
	trained, returned := s.lease("c", object{}), s.lease("d", object{})
	s.put(path("rollouts", "g/0"), object{"group_id": "h", "group_size": 2}).is(200)
	s.perform(episode{id: "h/1", group: "h", size: 2, status: "succeeded", reward: ptr(0.0)})
	require.Equal(t, 2, s.nothing("c", object{}).said("Waiting-Leased"))
	s.ack(trained.id, object{}).is(200)
	m := s.lease("c", object{})
	require.Equal(t, []string{"h/1"}, m.rollouts())
	require.Equal(t, 1, m.count("repeated"))
	s.ack(m.id, object{}).is(200)
	require.Equal(t, 2, s.nothing("d", object{}).said("Waiting-Leased"))
	s.nack(returned.id, object{}).is(200)
	require.Equal(t, []string{"g/0", "h/1"}, s.lease("d", object{}).rollouts())
	require.Equal(t, []string{"g/0", "h/1"}, s.lease("other", object{}).rollouts(), "another consumer gets the groups as they are now")
}

// Spans of kinds that are not asked for become context, and a row ends with its
// last trained token.
func TestKinds(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	agent := func(id string, seq int64, prompt, response []int32) call {
		return plain("r", id, seq, prompt, response).with("policy_version", seq)
	}
	s.perform(episode{id: "r", group: "g", size: 1, status: "succeeded", reward: ptr(1.0), calls: []call{
		agent("a1", 1, ids(1, 2), ids(3)),
		agent("a2", 2, ids(1, 2, 3, 4), ids(5)),
		// A compaction goes on from the agent's history, and is another row's end.
		agent("x1", 3, ids(1, 2, 3, 4, 5, 6), ids(7, 8)).with("kind", "auxiliary"),
		// A title.
		agent("x2", 4, ids(20), ids(21)).with("kind", "auxiliary"),
		// And a row that begins with what was sampled.
		agent("a3", 5, ids(), ids(30, 31)),
	}})
	check := func(l *leased, want ...[]int32) {
		t.Helper()
		require.Len(t, l.rows, len(want))
		for i := range l.rows {
			r := &l.rows[i]
			require.Equal(t, want[i], r.TokenIDs)
			require.EqualValues(t, []int64{int64(len(want)), int64(i)}, []int64{r.RolloutTrajectories, r.RowInRollout})
			require.Equal(t, i == len(want)-1, r.IsLast)
		}
	}
	l := s.lease("agent", object{})
	check(l, ids(1, 2, 3, 4, 5))
	require.Equal(t, 1, l.count("unprompted_rows"))
	require.EqualValues(t, 2, *l.rows[0].PolicyVersionMax, "what was cut off does not count")
	require.EqualValues(t, 2, l.rows[0].RolloutTrainedTokens)

	l = s.lease("auxiliary", object{"kinds": "auxiliary", "include_unprompted": true})
	check(l, ids(1, 2, 3, 4, 5, 6, 7, 8), ids(20, 21))
	require.EqualValues(t, 6, l.rows[0].PromptLength)
	require.Equal(t, 0, l.count("unprompted_rows"))

	l = s.lease("both", object{"kinds": []string{"auxiliary", "agent"}, "include_unprompted": true})
	require.Len(t, l.rows, 3)
	require.Equal(t, 7, l.count("trained_tokens")+0, "each sampled token once")
	l = s.lease("both, prompted", object{"kinds": []string{"auxiliary", "agent"}})
	check(l, ids(1, 2, 3, 4, 5, 6, 7, 8), ids(20, 21))
	require.Equal(t, 1, l.count("unprompted_rows"))
}

// A rollout without rows counts in its group's baseline.
func TestRolloutWithoutRows(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	g := group("g", 1, 0)
	g[1].calls = []call{}
	s.perform(g...)
	s.perform(episode{id: "e", group: "empty", size: 1, status: "succeeded", reward: ptr(1.0), calls: []call{}})
	l := s.lease("c", object{"estimator": "dr_grpo"})
	require.Equal(t, []string{"g/0"}, l.rollouts())
	require.InDelta(t, 0.5, *l.rows[0].Advantage, 0)
	require.EqualValues(t, 2, l.rows[0].GroupScored)
	a := s.nothing("c", object{})
	require.Equal(t, 1, l.count("skipped_empty")+a.said("Skipped-Empty"))
	require.True(t, strings.HasPrefix(l.id, "ls_"))
}
