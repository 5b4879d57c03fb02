package shards

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func options() *rapid.Generator[Options] {
	return rapid.Custom(func(t *rapid.T) Options {
		return Options{
			Shards:              rapid.IntRange(1, 9).Draw(t, "shards"),
			TokensPerMicrobatch: rapid.IntRange(0, 300).Draw(t, "tokens per micro-batch"),
			Quadratic:           rapid.Bool().Draw(t, "quadratic"),
			Multiple:            rapid.IntRange(0, 4).Draw(t, "multiple"),
			KeepGroupsTogether:  rapid.Bool().Draw(t, "keep groups together"),
		}
	})
}

func batches() *rapid.Generator[[]Row] {
	return rapid.Custom(func(t *rapid.T) (rows []Row) {
		for g := range rapid.IntRange(0, 12).Draw(t, "groups") {
			for range rapid.IntRange(1, 5).Draw(t, "rows") {
				rows = append(rows, Row{g, rapid.OneOf(rapid.IntRange(1, 30), rapid.IntRange(1, 400)).Draw(t, "tokens")})
			}
		}
		return rows
	})
}

// Every row is in one shard and one micro-batch; all shards have as many of these,
// a multiple of what was asked; no budget is broken but by a row alone.
func TestPlan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o, rows := options().Draw(t, "options"), batches().Draw(t, "rows")
		p := o.Plan(rows)
		require.Equal(t, p, o.Plan(slices.Clone(rows)), "deterministic")
		require.Len(t, p.Shard, len(rows))
		shardOf := map[int]int{}
		for i, r := range rows {
			require.GreaterOrEqual(t, p.Shard[i], 0)
			require.Less(t, p.Shard[i], o.Shards)
			if first, seen := shardOf[r.Group]; seen && o.KeepGroupsTogether {
				require.Equal(t, first, p.Shard[i], "groups stay together")
			}
			shardOf[r.Group] = p.Shard[i]
		}
		if o.TokensPerMicrobatch == 0 {
			require.Nil(t, p.Microbatch)
			require.Zero(t, p.Microbatches)
			return
		}
		require.Len(t, p.Microbatch, len(rows))
		require.Zero(t, p.Microbatches%max(1, o.Multiple))
		type place struct{ shard, microbatch int }
		tokens, count := map[place]int{}, map[place]int{}
		for i, r := range rows {
			at := place{p.Shard[i], p.Microbatch[i]}
			require.GreaterOrEqual(t, at.microbatch, 0)
			require.Less(t, at.microbatch, p.Microbatches)
			tokens[at] += r.Tokens
			count[at]++
		}
		for at, n := range tokens {
			require.True(t, n <= o.TokensPerMicrobatch || count[at] == 1, "%v holds %d tokens of %d", at, n, o.TokensPerMicrobatch)
		}
		// A shard with empty ones has them at the end, and one row in each other.
		for at := range count {
			if at.microbatch > 0 {
				require.Positive(t, count[place{at.shard, at.microbatch - 1}])
			}
			if count[place{at.shard, p.Microbatches - 1}] == 0 {
				require.Equal(t, 1, count[at])
			}
		}
		requireFew(t, o, rows, p)
	})
}

// requireFew: no more micro-batches than twice what the fullest shard must have
// (first-fit leaves at most one bin half empty), before the multiple.
func requireFew(t *rapid.T, o Options, rows []Row, p Plan) {
	most := 0
	for shard := range o.Shards {
		must, alone := 0, 0
		for i, r := range rows {
			if p.Shard[i] != shard {
				continue
			}
			if r.Tokens > o.TokensPerMicrobatch {
				alone++
			} else {
				must += r.Tokens
			}
		}
		most = max(most, alone+2*must/o.TokensPerMicrobatch+1)
	}
	require.Less(t, p.Microbatches, most+max(1, o.Multiple))
}

// The largest shard of balanced rows exceeds the least possible by less than one
// item: it got its last one when it had least.
func TestBalance(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		costs := rapid.SliceOfN(rapid.IntRange(1, 1000), 1, 60).Draw(t, "costs")
		parts := rapid.IntRange(1, 8).Draw(t, "parts")
		loads, total := make([]int, parts), 0
		for i, part := range balance(costs, parts) {
			loads[part] += costs[i]
			total += costs[i]
		}
		for _, load := range loads {
			require.LessOrEqual(t, load, total/parts+slices.Max(costs))
			require.GreaterOrEqual(t, load, total/parts-slices.Max(costs))
		}
	})
}

// verl#6176, #5511: ranks of unlike work run as many micro-batches.
func TestEqualCounts(t *testing.T) {
	t.Parallel()
	rows := []Row{{0, 95}, {0, 95}, {0, 95}, {0, 95}, {0, 95}, {1, 100}}
	p := Options{Shards: 2, TokensPerMicrobatch: 100, KeepGroupsTogether: true}.Plan(rows)
	require.Equal(t, 5, p.Microbatches)
	require.Equal(t, []int{0, 0, 0, 0, 0, 1}, p.Shard)
	require.Equal(t, []int{0, 1, 2, 3, 4, 0}, p.Microbatch)
}

// Attention makes one long row cost more than short ones with as many tokens.
func TestQuadratic(t *testing.T) {
	t.Parallel()
	rows := []Row{{0, 100_000}, {1, 50_000}, {2, 50_000}, {3, 50_000}}
	require.Equal(t, []int{0, 1, 1, 0}, Options{Shards: 2}.Plan(rows).Shard)
	require.Equal(t, []int{0, 1, 1, 1}, Options{Shards: 2, Quadratic: true}.Plan(rows).Shard)
}

// A row longer than the budget has a micro-batch to itself, and the lone bins that
// a multiple asks for come from those that can be halved.
func TestLongRow(t *testing.T) {
	t.Parallel()
	rows := []Row{{0, 5}, {0, 500}, {0, 5}, {0, 5}, {0, 5}}
	p := Options{Shards: 1, TokensPerMicrobatch: 20, Multiple: 4}.Plan(rows)
	require.Equal(t, 4, p.Microbatches)
	alone := 0
	count := map[int]int{}
	for i := range rows {
		count[p.Microbatch[i]]++
		if p.Microbatch[i] == p.Microbatch[1] {
			alone++
		}
	}
	require.Equal(t, 1, alone)
	require.Len(t, count, 4, "none is empty while another could be halved")
}

// The tree of bins finds what a walk along them finds.
func TestRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var tree room
		var bins []int
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 50), 1, 60).Draw(t, "tokens") {
			want := slices.IndexFunc(bins, func(left int) bool { return left >= n })
			require.Equal(t, want, tree.first(n))
			if want < 0 {
				bins = append(bins, 40-n)
				tree.add(40 - n)
				continue
			}
			bins[want] -= n
			tree.take(want, n)
		}
	})
}

// Rows of one group are dealt out one by one only where the group may be split.
func TestKeepGroupsTogether(t *testing.T) {
	t.Parallel()
	rows := []Row{{0, 10}, {0, 10}, {0, 10}, {0, 10}}
	require.Equal(t, []int{0, 1, 0, 1}, Options{Shards: 2}.Plan(rows).Shard)
	require.Equal(t, []int{0, 0, 0, 0}, Options{Shards: 2, KeepGroupsTogether: true}.Plan(rows).Shard)
}
