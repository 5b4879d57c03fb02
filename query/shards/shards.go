// Package shards deals the rows of a lease out to the ranks of a learner. It is
// pure and deterministic: the same rows and options give the same plan.
package shards

import (
	"cmp"
	"slices"
)

// Options say how to deal.
type Options struct {
	// Shards is how many parts to make, 1 or more. A part may be empty.
	Shards int
	// TokensPerMicrobatch bounds a micro-batch; 0: make none.
	TokensPerMicrobatch int
	// Quadratic balances by 24576·L + L² for a row of L tokens, about what a 7B model
	// computes (linear layers and attention); else by L.
	Quadratic bool
	// Multiple divides the number of micro-batches (pipeline stages want that). 0 and
	// 1: any number.
	Multiple int
	// KeepGroupsTogether puts all rows of a group into one shard.
	KeepGroupsTogether bool
}

// Row is a row to deal.
type Row struct {
	Group  int
	Tokens int
}

// Plan has one entry per row.
type Plan struct {
	Shard []int
	// Microbatch is the row's place within its shard; nil: none were asked for.
	Microbatch []int
	// Microbatches is the number of micro-batches of every shard. Ranks that run
	// unlike numbers of them wait for each other for ever, so a shard with less work
	// has empty ones, at the end.
	Microbatches int
}

// Plan deals out. Shards are balanced by cost; a micro-batch holds no more than
// its tokens, but a row longer than that has one to itself.
func (o Options) Plan(rows []Row) Plan {
	p := Plan{Shard: make([]int, len(rows))}
	parts := make([][]int, o.Shards) // rows by shard
	units := o.units(rows)
	for i, shard := range balance(o.costs(rows, units), o.Shards) {
		for _, row := range units[i] {
			p.Shard[row] = shard
			parts[shard] = append(parts[shard], row)
		}
	}
	if o.TokensPerMicrobatch > 0 {
		o.microbatches(rows, parts, &p)
	}
	return p
}

// units lists what goes to a shard as a whole.
func (o Options) units(rows []Row) (units [][]int) {
	at := map[int]int{}
	for i, r := range rows {
		n, known := at[r.Group]
		if !known || !o.KeepGroupsTogether {
			n = len(units)
			at[r.Group] = n
			units = append(units, nil)
		}
		units[n] = append(units[n], i)
	}
	return units
}

// costs gives the cost of each unit.
func (o Options) costs(rows []Row, units [][]int) []int {
	out := make([]int, len(units))
	for i, unit := range units {
		for _, row := range unit {
			out[i] += o.cost(rows[row].Tokens)
		}
	}
	return out
}

func (o Options) cost(tokens int) int {
	if o.Quadratic {
		return 24576*tokens + tokens*tokens
	}
	return tokens
}

// descending gives the places of costs, the largest first.
func descending(costs []int) []int {
	order := make([]int, len(costs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(costs[j], costs[i]) })
	return order
}
