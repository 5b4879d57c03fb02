package apptest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// summaryAnswer is what GET /v1/analytics/summary says.
type summaryAnswer struct {
	By        []string
	Bucket    *string
	Total     json.RawMessage
	Rows      []json.RawMessage
	RowCount  int `json:"row_count"`
	Truncated bool
}

func (s *server) summary(query string) (a summaryAnswer) {
	s.t.Helper()
	s.get("/v1/analytics/summary?" + query).is(200).into(&a)
	return a
}

// playSmall plays the rollouts that TestSummaryByHand works out.
func (s *server) playSmall() {
	s.t.Helper()
	alpha := func(more object) object {
		out := object{"harness": "alpha", "model": "m", "split": "train"}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	timed := func(c call, from, first, to string) call {
		c = c.with("started_at", "2026-01-31T09:30:0"+from+"Z", "finished_at", "2026-01-31T09:30:0"+to+"Z")
		if first != "" {
			c = c.with("first_token_at", "2026-01-31T09:30:0"+first+"Z")
		}
		return c
	}
	s.play(
		// Two calls, the second goes on from the first: one row of 7 ids, 3 trained.
		scripted{id: "a1", attrs: alpha(object{"task_id": "t1", "group_id": "g1", "group_size": 3}), status: "succeeded", reward: ptr(1.0), calls: []call{
			timed(plain("a1", "a1/1", 1, ids(1, 2, 3), ids(4, 5)).with("policy_version", int64(4)), "0", "0.5", "2"),
			timed(plain("a1", "a1/2", 2, ids(1, 2, 3, 4, 5, 6), ids(7)).with("policy_version", int64(5), "response_logprobs", nil), "3", "", "4"),
		}},
		// A call that broke off, and its retry. The first one's clock ran backwards.
		scripted{id: "a2", attrs: alpha(object{"task_id": "t1", "group_id": "g1", "group_size": 3}), status: "failed", reward: ptr(0.0), calls: []call{
			timed(plain("a2", "a2/1", 1, ids(1, 2), ids(3)).with("policy_version", int64(5), "status", "aborted", "response_logprobs", nil), "5", "", "4"),
			plain("a2", "a2/2", 2, ids(1, 2), ids(9, 8)).with("policy_version", int64(5)),
		}},
		// Scored without a call.
		scripted{id: "a3", attrs: alpha(object{"task_id": "t1", "group_id": "g1", "group_size": 3}), status: "failed", reward: ptr(0.0)},
		// A group whose size nobody said, and whose two rewards differ by rounding only.
		scripted{id: "a4", attrs: alpha(object{"task_id": "t2", "group_id": "g2"}), status: "succeeded", reward: ptr(0.30000000000000004),
			calls: []call{plain("a4", "a4/1", 1, ids(1), ids(2, 3)).with("policy_version", int64(6))}},
		scripted{id: "a5", attrs: alpha(object{"task_id": "t2", "group_id": "g2"}), status: "timeout", reward: ptr(0.3),
			calls: []call{plain("a5", "a5/1", 1, nil, nil).with("policy_version", int64(6))}},
		// Not finished, no reward, no task, no group; its call sampled nothing.
		scripted{id: "a6", attrs: alpha(nil), calls: []call{plain("a6", "a6/1", 1, ids(1), ids())}},
	)
	beta := object{"harness": "beta", "model": "m", "split": "eval", "task_id": "t1", "group_id": "g3", "group_size": 4}
	s.post("/v1/traces/begin", object{"trace_id": "b1/lost", "rollout_id": "b1", "seq": 2}).is(200)
	s.play(
		scripted{id: "b1", attrs: beta, status: "succeeded", reward: ptr(0.0),
			calls: []call{plain("b1", "b1/1", 1, ids(1, 2), ids(3, 4)).with("policy_version", int64(3))}},
		scripted{id: "b2", attrs: beta, status: "failed", calls: []call{plain("b2", "b2/1", 1, ids(1), ids(2)).with("policy_version", int64(6))}},
	)
	// The reward is revised late; a trace comes after the end.
	s.post("/v1/rewards", object{"reward_id": "late", "rollout_id": "b1", "value": 1, "revision": 1}).is(200)
	s.traces(plain("b2", "b2/2", 2, ids(5), ids(6)).with("policy_version", int64(6))).is(200)
}

// Every number of this summary is worked out by hand.
func TestSummaryByHand(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.playSmall()
	a := s.summary("by=harness&k=1,2,3,4")
	require.Equal(t, 2, a.RowCount)
	require.False(t, a.Truncated)
	require.Len(t, a.Rows, 2)
	require.Nil(t, a.Bucket)

	// Rewards 1, 0, 0, 0.3, 0.3: mean 1.6/5; squares of the distances .4624 + 2·.1024
	// + 2·.0004 = .668, std √(.668/4) = .4086563; Student's t with 4 degrees
	// 2.7764451; half of the interval 2.7764451·.4086563/√5 = .5074142.
	// Solved 1 of 5; Wilson's interval of that is [.0362241, .6244654].
	// g1 has 1 of 3: pass@1 1/3, pass@2 1 - C(2,2)/C(3,2) = 2/3, pass@3 1. g2 has 0 of 2.
	// Sent 12 (a1) + 7 (a2) + 3 (a4) + 0 (a5: ids not known) + 1 (a6). Kept 7 + 5
	// (a2: the retry forks behind 2) + 3 + 1. Sampled 3 + 3 + 2; of these a1/2 and
	// a2/1 have no log-probs: 6 of 8. Rows of 7, 4 and 3 ids.
	// Calls with times: 2 s and 1 s, 3 tokens. Quantiles lie between the two.
	// Newest version 6: rows begin at 4, 5, 6; 2, 1, 0 behind; p95 at 1.9 of 0, 1, 2.
	holds(t, `{"keys": {"harness": "alpha"},
	 "rollouts": {"count": 6, "open": 1, "succeeded": 2, "failed": 2, "timeout": 1, "error": 0, "cancelled": 0, "incomplete": 0, "reopened": 0},
	 "reward": {"count": 5, "mean": 0.32, "std": 0.40865633483405103, "min": 0, "max": 1},
	 "solve_rate": {"solved": 1, "count": 5, "rate": 0.2},
	 "groups": {"count": 2, "compared": 2, "zero_advantage": 1, "zero_advantage_share": 0.5},
	 "pass_at_k": [{"k": 1, "value": 0.16666666666666666, "groups": 2}, {"k": 2, "value": 0.3333333333333333, "groups": 2},
	   {"k": 3, "value": 1, "groups": 1}, {"k": 4, "value": null, "groups": 0}],
	 "tokens": {"sent": 23, "kept": 16, "sampled": 8, "trained": 7, "context": 7,
	   "by_disposition": {"trained": 7, "abandoned_retry": 1, "untokenized": 0, "empty_response": 0}},
	 "trajectories": {"count": 3, "rollouts": 3, "per_rollout": 1},
	 "calls": {"count": 7, "failed": 1, "retries": 1, "retry_share": 0.14285714285714285,
	   "by_disposition": {"trained": 4, "abandoned_retry": 1, "untokenized": 1, "empty_response": 1},
	   "boundaries": {"first": 3, "extends": 1, "same_prompt": 1}},
	 "logprob_coverage": 0.75,
	 "latency": {"calls": 2, "seconds": {"p50": 1.5, "p95": 1.95, "p99": 1.99}, "first_token_calls": 1,
	   "first_token_seconds": {"p50": 0.5, "p95": 0.5}, "tokens_per_second": 1},
	 "staleness": {"current_version": 6, "trajectories": 3, "mean": 1, "p95": 1.9, "max": 2}}`, a.Rows[0])
	var alpha struct {
		Reward struct{ Interval [2]float64 }
		Rate   struct{ Interval [2]float64 } `json:"solve_rate"`
	}
	require.NoError(t, json.Unmarshal(a.Rows[0], &alpha))
	require.InDeltaSlice(t, []float64{0.32 - 0.5074142, 0.32 + 0.5074142}, alpha.Reward.Interval[:], 1e-6)
	require.InDeltaSlice(t, []float64{0.0362241, 0.6244654}, alpha.Rate.Interval[:], 1e-6)

	// One reward, revised from 0 to 1: no interval of its mean, Wilson's of 1 of 1 is
	// [1/(1+z²), 1]. Rows of 4, 2 and 2 ids, of versions 3, 6, 6; p95 at 1.9 of 0, 0, 3.
	holds(t, `{"keys": {"harness": "beta"},
	 "rollouts": {"count": 2, "open": 0, "succeeded": 1, "failed": 1, "incomplete": 1, "reopened": 1},
	 "reward": {"count": 1, "mean": 1, "interval": null, "std": null, "min": 1, "max": 1},
	 "solve_rate": {"solved": 1, "count": 1, "rate": 1, "interval": [0.20654931437723745, 1]},
	 "groups": {"count": 1, "compared": 0, "zero_advantage": 0, "zero_advantage_share": null},
	 "pass_at_k": [{"k": 1, "value": 1, "groups": 1}, {"k": 2, "value": null, "groups": 0}, {"k": 3, "value": null, "groups": 0}, {"k": 4, "value": null, "groups": 0}],
	 "tokens": {"sent": 8, "kept": 8, "sampled": 4, "trained": 4, "context": 4, "by_disposition": {"trained": 4}},
	 "trajectories": {"count": 3, "rollouts": 2, "per_rollout": 1.5},
	 "calls": {"count": 3, "failed": 0, "retries": 0, "retry_share": 0, "boundaries": {"first": 2, "disjoint": 1}},
	 "logprob_coverage": 1,
	 "latency": {"calls": 0, "seconds": null, "first_token_calls": 0, "first_token_seconds": null, "tokens_per_second": null},
	 "staleness": {"current_version": 6, "trajectories": 3, "mean": 1, "p95": 2.7, "max": 3}}`, a.Rows[1])

	// Both together: rewards 1, 0, 0, 0.3, 0.3, 1.
	holds(t, `{"rollouts": {"count": 8, "open": 1, "succeeded": 3, "failed": 3, "timeout": 1},
	 "reward": {"count": 6, "mean": 0.43333333333333335}, "solve_rate": {"solved": 2, "count": 6},
	 "groups": {"count": 3, "compared": 2, "zero_advantage": 1},
	 "pass_at_k": [{"k": 1, "value": 0.4444444444444444, "groups": 3}, {"k": 2, "value": 0.3333333333333333, "groups": 2}, {"k": 3, "value": 1, "groups": 1}, {"k": 4, "value": null, "groups": 0}],
	 "tokens": {"sent": 31, "kept": 24, "sampled": 12, "trained": 11, "context": 11},
	 "trajectories": {"count": 6, "rollouts": 5, "per_rollout": 1.2}, "calls": {"count": 10}}`, a.Total)
}

// Keys, filters, parameters, and what is cut.
func TestSummaryAsked(t *testing.T) {
	t.Parallel()
	s := start(t)
	holds(t, `{"rollouts": {"count": 0}, "reward": {"mean": null, "interval": null}, "solve_rate": {"rate": null, "interval": null},
	 "pass_at_k": [{"k": 1, "value": null, "groups": 0}], "tokens": {"sent": 0, "by_disposition": {}}, "staleness": {"current_version": null}}`, s.summary("k=1").Total)
	s.playSmall()
	count := func(query string) (n float64) {
		var total struct{ Rollouts struct{ Count float64 } }
		require.NoError(t, json.Unmarshal(s.summary(query).Total, &total))
		return total.Rollouts.Count
	}
	for query, want := range map[string]float64{
		"": 8, "harness=alpha": 6, "harness=alpha&harness=beta": 8, "harness=gamma": 0, "model=m": 8, "task_id=t2": 2, "group_id=g1&group_id=g3": 5,
		"split=eval": 2, "split=eval&harness=alpha": 0,
		// All versions of a rollout must be in range: a1 has 4 and 5, b1 3; a3 and a6 have none.
		"policy_version_min=5": 4, "policy_version_max=5": 3, "policy_version_min=4&policy_version_max=5": 2,
		// Only a1 and a2 have calls that say when they began: 09:30:00 and 09:30:05.
		"until=2026-01-31T09:30:05Z": 1, "since=2026-01-31T10:30:05%2B01:00": 7, "since=2026-01-31T09:30:05.000001Z": 6,
	} {
		require.Equal(t, want, count(query), query)
	}
	a := s.summary("by=split,task_id&limit=2")
	require.Equal(t, 4, a.RowCount, "t1 and t2 in train, none in train, t1 in eval")
	require.Len(t, a.Rows, 2)
	require.True(t, a.Truncated)
	a = s.summary("by=policy_version&harness=alpha")
	require.Len(t, a.Rows, 3)
	// A rollout stands at its newest version; what says no version comes last.
	holds(t, `{"keys": {"policy_version": 5}, "rollouts": {"count": 2}}`, a.Rows[0])
	holds(t, `{"keys": {"policy_version": 6}, "rollouts": {"count": 2}}`, a.Rows[1])
	holds(t, `{"keys": {"policy_version": null}, "rollouts": {"count": 2}}`, a.Rows[2])
	a = s.summary("by=bucket&until=2026-02-01T00:00:00Z&bucket=week")
	require.Len(t, a.Rows, 1)
	holds(t, `{"keys": {"bucket": "2026-01-26T00:00:00Z"}, "rollouts": {"count": 2}}`, a.Rows[0]) // a Monday
	require.Equal(t, "week", *a.Bucket)
	holds(t, `{"keys": {"bucket": "2026-01-31T09:00:00Z"}}`, s.summary("by=bucket&until=2026-02-01T00:00:00Z&bucket=hour").Rows[0])
	holds(t, `{"solve_rate": {"solved": 3, "count": 5}}`, s.summary("harness=alpha&solved_at=0.3").Total)
	holds(t, `{"staleness": {"current_version": 16, "mean": 11, "max": 12}}`, s.summary("harness=alpha&current_version=16").Total)
	// polar_compat drops whatever follows where it sees no end of turn, a retry too,
	// and tells no retries.
	holds(t, `{"calls": {"retries": null, "by_disposition": {"trained": 3, "dropped_by_policy": 2, "untokenized": 1},
	 "boundaries": {"first": 3, "extends": 1, "same_prompt": 1}}, "trajectories": {"count": 3}}`, s.summary("group_id=g1&group_id=g2&policy=polar_compat").Total)

	for query, field := range map[string]string{
		"by=colour": "by", "by=harness,,model": "by", "harnes=x": "harnes", "bucket=year": "bucket", "bucket=day": "bucket", "k=0": "k", "k=1,x": "k",
		"k=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17": "k", "solved_at=NaN": "solved_at", "solved_at=x": "solved_at", "limit=0": "limit",
		"limit=10001": "limit", "current_version=-1": "current_version", "split=dev": "split", "since=yesterday": "since",
		"until=2026-01-31T09:30:00": "until", "since=0001-01-01T00:00:00%2B14:00": "since", "policy=best": "policy", "status=failed": "status",
	} {
		require.Equal(t, field, s.get("/v1/analytics/summary?"+query).problem(400, "invalid_parameter").Field, query)
	}
}

// Rewards at the ends of a float's range leave no mean, and break nothing.
func TestSummaryOfHugeRewards(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i, v := range []float64{1.7e308, -1.7e308, 1.7e308, 1} {
		r := attributed("huge"+itoa(i), "h", "t", int64(i), ptr(v))
		r.attrs = object{"group_id": "g", "split": []string{"train", "eval"}[i%2]}
		s.play(r)
	}
	holds(t, `{"reward": {"count": 4, "mean": null, "interval": null, "std": null, "min": -1.7e308, "max": 1.7e308}, "solve_rate": {"solved": 3},
	 "groups": {"compared": 1, "zero_advantage": 0}}`, s.summary("").Total)
	s.get("/v1/groups").is(200)
	s.get("/v1/analytics/splits").is(200)
	s.get("/v1/analytics/uplift?base=0-1&against=2-").is(200)
}
