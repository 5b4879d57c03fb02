package apptest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// where chooses groups of which all rollouts match; the others stay for later.
func TestLeaseWhere(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(withPut(group("a", 1, 0), "split", "train", "harness", "codex", "model", "m1", "task_id", "t1")...)
	s.perform(withPut(group("b", 1, 0), "split", "eval", "harness", "codex", "model", "m2", "task_id", "t2")...)
	mixed := withPut(group("c", 1, 0), "split", "train", "harness", "codex", "model", "m1", "task_id", "t3")
	s.perform(withPut(mixed[1:], "harness", "pi")...)
	s.perform(mixed[0])
	s.perform(episode{id: "alone", status: "succeeded", reward: ptr(1.0), put: object{"split": "train"}})
	all := []string{"", "a", "b", "c"}
	for i, c := range []struct {
		where object
		want  []string
	}{
		{object{}, all},
		{object{"split": "train"}, []string{"", "a", "c"}},
		{object{"split": []string{"train", "eval"}}, all},
		{object{"harness": "codex"}, []string{"a", "b"}},
		{object{"harness": []string{"pi", "codex"}}, []string{"a", "b", "c"}},
		{object{"model": []string{"m2"}}, []string{"b"}},
		{object{"task_id": []string{"t3", "t1", "t1"}}, []string{"a", "c"}},
		{object{"group_id": "b", "split": "train"}, nil},
		{object{"group_id": []string{"b", "c"}, "split": "train"}, []string{"c"}},
		{object{"harness": "none such"}, nil},
	} {
		name := fmt.Sprint("c", i)
		if c.want == nil {
			require.Equal(t, 4, s.nothing(name, object{"where": c.where}).said("Waiting-Filtered"), c.where)
			continue
		}
		got := s.lease(name, object{"where": c.where}).groups()
		slices.Sort(got)
		require.Equal(t, c.want, got, c.where)
		require.Equal(t, 4-len(c.want), s.nothing(name, object{"where": c.where}).said("Waiting-Filtered"), c.where)
	}
	// What changes afterwards is seen.
	s.nothing("late", object{"where": object{"task_id": "new"}})
	s.put(path("rollouts", "alone"), object{"task_id": "new"}).is(200)
	require.Equal(t, []string{"alone"}, s.lease("late", object{"where": object{"task_id": "new"}, "wait_seconds": 60}).rollouts())
}

// Groups with a row that is too old, or of unknown age, are settled.
func TestLeaseStaleness(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	for v := range int64(5) {
		g := group(fmt.Sprint("v", v), 1, 0)
		for i := range g {
			g[i].calls = []call{oneCall(g[i].id, v+int64(i), 6)}
		}
		s.perform(g...)
	}
	g := group("unknown", 1, 0)
	g[1].calls = []call{oneCall(g[1].id, 0, 6).with("policy_version", nil)}
	g[0].calls = []call{oneCall(g[0].id, 6, 6)}
	s.perform(g...)
	request := object{"policy_version": 5, "max_staleness": 2}
	l := s.lease("c", request)
	require.Equal(t, []string{"v3", "v4"}, l.groups(), "the oldest row of v3 is of version 3")
	require.Equal(t, []int{3, 1}, []int{l.count("skipped_stale"), l.count("skipped_version_unknown")})
	require.Equal(t, "5", l.meta["policy_version_now"])
	require.Equal(t, map[string]int{"stale": 3, "version_unknown": 1, "zero_advantage": 0, "oversized": 0, "failed": 0, "empty": 0, "unscorable": 0},
		s.consumer("c").Skipped)
	s.ack(l.id, object{}).is(200)
	s.nothing("c", object{})
	require.Len(t, s.lease("other", object{}).groups(), 6)
	a := s.nothing("old", object{"policy_version": 100, "max_staleness": 0})
	require.Equal(t, []int{6, 0}, []int{a.said("Skipped-Stale"), a.said("Skipped-Version-Unknown")}, "skips are settled also when nothing is leased")
	require.Equal(t, 0, s.nothing("old", object{}).said("Skipped-Stale"))
}

// A row of which only some calls name a version is of unknown age, however new
// the others are.
func TestLeaseOfPartlyUnknownVersion(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	for i, first := range []any{nil, int64(9)} {
		g := group(fmt.Sprint("g", i), 1, 0)
		begin := oneCall(g[0].id, 9, 6).with("policy_version", first)
		next := plain(g[0].id, g[0].id+"/next", 2, append(begin.whole(), 5), ids(7, 8)).with("policy_version", int64(9))
		g[0].calls = []call{begin, next}
		g[1].calls = []call{oneCall(g[1].id, 9, 6)}
		s.perform(g...)
	}
	l := s.lease("c", object{"policy_version": 9, "max_staleness": 0})
	require.Equal(t, []string{"g1"}, l.groups())
	require.Equal(t, []int{0, 1}, []int{l.count("skipped_stale"), l.count("skipped_version_unknown")})
	require.Len(t, s.lease("unbounded", object{}).groups(), 2)
}

// Limits: the first group comes whatever its size, the others as they fit.
func TestLeaseLimits(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	for i, tokens := range []int{100, 10, 10, 50, 10} {
		g := group(fmt.Sprint("g", i), 1, 0)
		for j := range g {
			g[j].calls = []call{oneCall(g[j].id, 1, tokens)}
		}
		s.perform(g...)
	}
	for i, c := range []struct {
		request object
		cutBy   string
		want    []string
	}{
		{object{"max_groups": 2}, "max_groups", []string{"g0", "g1"}},
		{object{"max_tokens": 1}, "max_tokens", []string{"g0"}},
		{object{"max_tokens": 239}, "max_tokens", []string{"g0", "g1"}},
		{object{"max_tokens": 240}, "max_tokens", []string{"g0", "g1", "g2"}},
		{object{"max_trajectories": 1}, "max_trajectories", []string{"g0"}},
		{object{"max_trajectories": 5}, "max_trajectories", []string{"g0", "g1"}},
		{object{"max_row_tokens": 99}, "", []string{"g1", "g2", "g3", "g4"}},
		{object{"max_row_tokens": 100}, "", []string{"g0", "g1", "g2", "g3", "g4"}},
		{object{"groups": 5}, "", []string{"g0", "g1", "g2", "g3", "g4"}},
		{object{"groups": 3}, "groups", []string{"g0", "g1", "g2"}},
	} {
		l := s.lease(fmt.Sprint("c", i), c.request)
		require.Equal(t, c.want, l.groups(), c.request)
		require.Equal(t, c.cutBy, l.meta["cut_by"], c.request)
		require.Equal(t, map[bool]int{true: 1}[c.want[0] == "g1"], l.count("skipped_oversized"))
	}
	a := s.nothing("six", object{"groups": 6})
	require.Equal(t, 5, a.said("Waiting-Too-Few"))
	// The rest comes with the next lease.
	first, second := s.lease("two", object{"groups": 3}), s.lease("two", object{})
	require.Equal(t, []string{"g3", "g4"}, second.groups())
	require.Equal(t, 3, s.nothing("two", object{"groups": 1}).said("Waiting-Leased")-2)
	require.NotEqual(t, first.id, second.id)
}

// An exact count is waited for.
func TestExactCountIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("a", 1, 0)...)
	got := make(chan *answer, 1)
	go func() { got <- s.askLease("c", object{"groups": 2, "wait_seconds": 60}) }()
	s.perform(group("b", 1, 0)...)
	require.Equal(t, []string{"a", "b"}, s.asLease((<-got).is(200)).groups())
}

// A seed orders groups by a hash: the same for every consumer, and another for
// another seed.
func TestLeaseOrder(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprint("g", i))
		s.perform(group(names[i], 1, 0)...)
	}
	all := func(consumer string, request object) (out []string) {
		request["max_groups"] = 5
		for len(out) < len(names) {
			out = append(out, s.lease(consumer, request).groups()...)
		}
		return out
	}
	require.Equal(t, names, all("time", object{}), "oldest finished first")
	one := all("one", object{"seed": 1})
	require.Equal(t, one, all("again", object{"seed": 1}))
	require.ElementsMatch(t, names, one)
	other := all("two", object{"seed": -1})
	require.ElementsMatch(t, names, other)
	require.NotEqual(t, one, other)
	require.NotEqual(t, names, one)
	// Indexes are those of the lease, dense and in its order.
	l := s.lease("index", object{"seed": 7})
	for i := range l.rows {
		require.EqualValues(t, i/2, l.rows[i].GroupIndex)
		require.EqualValues(t, i, l.rows[i].RolloutIndex)
	}
}

// Groups without an advantage are passed over when asked, and counted.
func TestSkipZeroAdvantage(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("same", 0.3, 0.1+0.2, 0.3)...)
	s.perform(group("differ", 1, 0)...)
	one := group("one", 1, 1)
	one[1].status, one[1].reward = "failed", nil
	s.perform(one...)
	l := s.lease("c", object{"skip_zero_advantage": true})
	require.Equal(t, []string{"differ"}, l.groups())
	require.Equal(t, []int{2, 4, 8}, []int{l.count("skipped_zero_advantage"), l.count("skipped_zero_advantage_rollouts"), l.count("skipped_zero_advantage_tokens")})
	require.Equal(t, []string{"same", "differ", "one"}, s.lease("all", object{}).groups())
	l = s.lease("single", object{"skip_zero_advantage": true, "single": "reward", "estimator": "rloo"})
	require.Equal(t, []string{"differ", "one"}, l.groups())
	// Rewards that float32 cannot carry are passed over too, with a name of their own.
	s.perform(group("huge", 1e300, -1e300)...)
	require.Equal(t, 1, s.nothing("single", object{"estimator": "dr_grpo"}).said("Skipped-Unscorable"))
	require.Equal(t, []string{"huge"}, s.lease("all", object{}).groups(), "grpo scales them")
}
