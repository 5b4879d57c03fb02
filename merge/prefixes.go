package merge

import "icecore/trace"

// Prefixes finds, for sequences that come one after another, the earlier one
// that shares the longest beginning. It keeps no copy of the ids, which are
// read-only once added.
type Prefixes struct {
	radix radix
	// first is by vertex the first sequence that passes it.
	first []int
	n     int
}

// NewPrefixes gives one without sequences.
func NewPrefixes() *Prefixes { return &Prefixes{radix: newRadix(), first: []int{0}} }

// Add takes the next sequence. It returns the earliest of those before it (0, 1,
// 2, … in order of Add) that reaches the longest common beginning, and how many
// ids that has; None and 0 for the first sequence.
func (p *Prefixes) Add(ids trace.Tokens) (nearest, shared int) {
	x, old := &p.radix, int32(len(p.radix.vertices))
	end := x.extend(root, ids)
	for v := old; int(v) < len(x.vertices); v++ {
		first := p.n
		if x.parts(v, old) {
			first = p.first[x.vertices[v].child]
		}
		p.first = append(p.first, first)
	}
	p.n++
	// Behind the place where the sequence leaves all earlier ones, every vertex is
	// its own.
	for p.first[end] == p.n-1 && end != root {
		end = x.vertices[end].parent
	}
	if p.n == 1 {
		return None, 0
	}
	return p.first[end], x.vertices[end].depth
}

// parts says that v, newer than old, was made by parting an edge that was there:
// it stands above an older vertex, where one that was added stands above newer
// ones alone.
func (x *radix) parts(v, old int32) bool {
	child := x.vertices[v].child
	return child != nowhere && child < old
}
