package shards

import (
	"cmp"
	"slices"
)

// bin is a micro-batch in the making.
type bin struct {
	rows   []int // costliest first
	tokens int
	cost   int
}

// microbatches packs the rows of every shard, then brings the shards to one
// number of micro-batches.
func (o Options) microbatches(rows []Row, parts [][]int, p *Plan) {
	packed := make([][]bin, len(parts))
	for i, part := range parts {
		packed[i] = o.pack(rows, part)
		p.Microbatches = max(p.Microbatches, len(packed[i]))
	}
	if m := max(1, o.Multiple); p.Microbatches%m != 0 {
		p.Microbatches += m - p.Microbatches%m
	}
	p.Microbatch = make([]int, len(rows))
	for _, bins := range packed {
		bins = o.split(rows, bins, p.Microbatches)
		// Ranks run their n-th micro-batches side by side: like beside like.
		slices.SortStableFunc(bins, func(a, b bin) int { return cmp.Compare(b.cost, a.cost) })
		for n, b := range bins {
			for _, row := range b.rows {
				p.Microbatch[row] = n
			}
		}
	}
}

// pack puts rows, the longest first, each into the first bin with room for it.
func (o Options) pack(rows []Row, part []int) (bins []bin) {
	part = slices.Clone(part)
	slices.SortStableFunc(part, func(i, j int) int { return cmp.Compare(rows[j].Tokens, rows[i].Tokens) })
	var free room
	for _, row := range part {
		n := rows[row].Tokens
		at := free.first(n)
		if at < 0 {
			at = len(bins)
			bins = append(bins, bin{})
			free.add(o.TokensPerMicrobatch - n)
		} else {
			free.take(at, n)
		}
		o.put(&bins[at], rows, row)
	}
	return bins
}

func (o Options) put(b *bin, rows []Row, row int) {
	b.rows = append(b.rows, row)
	b.tokens += rows[row].Tokens
	b.cost += o.cost(rows[row].Tokens)
}

// split halves the costliest bin that has more than one row, until there are n
// bins or none can be halved. A part of a bin is no longer than the bin was.
func (o Options) split(rows []Row, bins []bin, n int) []bin {
	for len(bins) < n {
		at := -1
		for i, b := range bins {
			if len(b.rows) > 1 && (at < 0 || b.cost > bins[at].cost) {
				at = i
			}
		}
		if at < 0 {
			break
		}
		costs := make([]int, len(bins[at].rows))
		for i, row := range bins[at].rows {
			costs[i] = o.cost(rows[row].Tokens)
		}
		var halves [2]bin
		for i, half := range balance(costs, 2) {
			o.put(&halves[half], rows, bins[at].rows[i])
		}
		bins[at] = halves[0]
		bins = append(bins, halves[1])
	}
	return bins
}
