package apptest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The same key is the same lease: the same bytes, whatever came since, and
// whatever became of the server.
func TestSameKeySameBytes(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	g := withPut(group("g", 1, 0, 0), "split", "train", "harness", "codex", "task_id", "t")
	aux := oneCall("g/1", 1, 6).with("trace_id", "aux", "seq", int64(2), "kind", "auxiliary", "prompt_token_ids", ids(1), "response_token_ids", ids(2), "response_logprobs", lps(-1))
	g[1].calls = []call{oneCall("g/1", 1, 6), aux}
	s.perform(g...)
	s.perform(group("h", 5, 0.5)...)
	request := object{"key": "step-1", "shards": 2, "tokens_per_microbatch": 20, "row_weight": "rollout_mean", "keep_groups_together": false}
	shard := func(n any) object {
		out := object{"shard": n}
		for name, v := range request {
			out[name] = v
		}
		return out
	}
	first := s.lease("c", request)
	one := s.lease("c", shard(1))
	require.Equal(t, first.id, one.id)
	again := func(why string) {
		t.Helper()
		require.Equal(t, first.body, s.lease("c", request).body, why)
		require.Equal(t, one.body, s.lease("c", shard(1)).body, why)
	}
	again("nothing has changed")
	// Another trace, in front of all others, makes other rows of the rollout.
	s.traces(plain("g/0", "reopened", 0, ids(91, 92), ids(93)).with("policy_version", int64(9))).is(200).all("stored", 1)
	again("a rollout was reopened")
	require.Len(t, s.export("rollout_id=g/0").rows, 2)
	s.rewardNow("g/1", 7, 1)
	again("a reward is new")
	s.put(path("rollouts", "h/0"), object{"split": "eval", "harness": "pi", "task_id": "other", "sample_index": 9, "group_size": 1}).is(200)
	again("attributes changed")
	s.stop()
	s = startOn(t, s.dir, nil, leaseHTTP...)
	again("the server was started again")
	s.kill()
	s = startOn(t, s.dir, nil, leaseHTTP...)
	again("the server was killed")
	changed := s.consumer("c").Changed
	require.Equal(t, []int{2, 1, 1}, []int{changed.Rollouts, changed.Reopened, changed.Rewarded})
	// A codec changes the bytes, not the rows.
	packed := s.asLease(s.send("POST", "/v1/consumers/c/lease", encode(request), "Accept", typeArrow+`; codecs="zstd"`).is(200))
	require.Equal(t, first.rows, packed.rows)
	require.Equal(t, first.meta, packed.meta)
	// Another consumer gets what is there now.
	other := s.lease("other", request)
	require.Len(t, other.rows, len(first.rows)+1)
	s.ack(first.id, object{}).is(200)
	changed = s.consumer("c").Changed
	require.Equal(t, []int{2, 1, 1}, []int{changed.Rollouts, changed.Reopened, changed.Rewarded})
	s.nothing("c", object{})
}

// A key goes with one request; what concerns a single fetch may differ.
func TestKeyConflicts(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	for i := range 3 {
		s.perform(group(fmt.Sprint("g", i), 1, 0)...)
	}
	base := object{"key": "k", "max_groups": 2, "shards": 2, "where": object{"group_id": []string{"g1", "g0"}}}
	with := func(fields ...any) object {
		out := object{}
		for name, v := range base {
			out[name] = v
		}
		for i := 0; i < len(fields); i += 2 {
			out[fields[i].(string)] = fields[i+1]
		}
		return out
	}
	first := s.lease("c", base)
	for _, same := range []object{with("wait_seconds", 5), with("lease_seconds", 7), with("estimator", "grpo"), with("epsilon", 1e-6), with("seed", nil),
		with("where", object{"group_id": []string{"g0", "g1", "g0"}, "complete": true}), with("kinds", "agent"), with("policy", "strict_tree")} {
		require.Equal(t, first.id, s.lease("c", same).id, same)
	}
	require.Equal(t, first.id, s.lease("c", with("shard", 1)).id)
	for field, v := range map[string]any{"max_groups": 3, "shards": 3, "estimator": "rloo", "policy_version": 1, "seed": 0, "kinds": []string{"agent", "auxiliary"},
		"where": object{"group_id": "g0"}, "policy": "per_request", "tokens_per_microbatch": 9, "epsilon": 0, "quiet_seconds": 1, "include_unprompted": true} {
		p := s.askLease("c", with(field, v)).problem(409, "conflict")
		require.Equal(t, field, p.Field, p.Detail)
	}
	// Keys are the consumer's own, and a lease without one gets one.
	require.NotEqual(t, first.id, s.lease("d", with("max_groups", 1)).id)
	free := s.lease("c", object{})
	require.NotEmpty(t, free.key)
	require.Equal(t, []string{"g2"}, free.groups())
	require.Equal(t, free.body, s.lease("c", object{"key": free.key}).body)
	// Ids need not be ASCII.
	odd := s.lease("münchen 50%", object{"key": "é"})
	require.Equal(t, []string{"é", "münchen 50%"}, []string{odd.meta["key"], odd.meta["consumer"]})
	require.Equal(t, []string{"%C3%A9", "m%C3%BCnchen 50%25"}, []string{odd.header.Get("Icecore-Key"), odd.header.Get("Icecore-Consumer")})
}

// Shards are disjoint and together everything; groups stay whole, tokens are
// balanced, and every shard has as many micro-batches.
func TestLeaseShards(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	for i := range 24 {
		g := group(fmt.Sprint("g", i), 1, 0, 0)
		for j := range g {
			g[j].calls = []call{oneCall(g[j].id, 1, 20+(i*37+j*11)%60)}
		}
		s.perform(g...)
	}
	for _, whole := range []bool{true, false} {
		request := object{"key": fmt.Sprint("k", whole), "max_groups": 100, "shards": 5, "tokens_per_microbatch": 150, "microbatch_multiple": 4, "keep_groups_together": whole}
		consumer := fmt.Sprint("c", whole)
		// All at once, as ranks ask: one of them plans.
		parts := make([]*answer, 5)
		var wg sync.WaitGroup
		for i := range parts {
			wg.Go(func() {
				body := object{"shard": i}
				for name, v := range request {
					body[name] = v
				}
				parts[i] = s.askLease(consumer, body)
			})
		}
		wg.Wait()
		all := s.lease(consumer, request)
		var rows []leasedRow
		home := map[string]int64{}
		least, most := 1<<60, 0
		for i, a := range parts {
			l := s.asLease(a.is(200))
			require.Equal(t, all.id, l.id)
			require.Equal(t, itoa(i), l.meta["shard"])
			require.Equal(t, all.meta["microbatches"], l.meta["microbatches"])
			require.Zero(t, l.count("microbatches")%4)
			sums := map[int64]int{}
			for j := range l.rows {
				r := l.rows[j]
				require.EqualValues(t, i, r.Shard)
				require.Less(t, *r.Microbatch, int64(l.count("microbatches")))
				sums[*r.Microbatch] += len(r.TokenIDs)
				if at, known := home[r.group()]; whole && known {
					require.Equal(t, at, r.Shard, "a group is in one shard")
				}
				home[r.group()] = r.Shard
				require.Equal(t, j == 0 || l.rows[j-1].group() != r.group(), r.SharedPrefixRow == nil, "places are those of the stream")
				if r.SharedPrefixRow != nil {
					require.Less(t, *r.SharedPrefixRow, int64(j))
				}
			}
			for _, n := range sums {
				require.LessOrEqual(t, n, 150)
			}
			least, most = min(least, l.count("tokens")), max(most, l.count("tokens"))
			rows = append(rows, l.rows...)
		}
		require.Less(t, most-least, 250, "balanced")
		require.Len(t, rows, 72)
		slices.SortFunc(rows, func(a, b leasedRow) int { return int(a.RolloutIndex - b.RolloutIndex) })
		for i := range rows {
			want, got := all.rows[i], rows[i]
			want.SharedPrefixRow, got.SharedPrefixRow, want.SharedPrefixLen, got.SharedPrefixLen = nil, nil, 0, 0
			require.Equal(t, want, got)
		}
	}
}

// More shards than groups: some are empty, and they are whole streams too.
func TestEmptyShard(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("g", 1, 0)...)
	rows := 0
	for i := range 3 {
		rows += len(s.lease("c", object{"key": "k", "shards": 3, "shard": i}).rows)
	}
	require.Equal(t, 2, rows)
}
