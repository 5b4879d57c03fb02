package shards

import "container/heap"

// balance deals items out to parts, the costliest first, each to the part that has
// least so far. Karmarkar–Karp was measured beside it on lognormal lengths (σ 0.6
// to 1.5, 16 to 1,024 items, 2 to 32 parts): its largest part is 0 to 1 % smaller
// on average, 4 % in the worst single case, for three times the code.
func balance(costs []int, parts int) (part []int) {
	h := make(loads, parts)
	for i := range h {
		h[i].part = i
	}
	part = make([]int, len(costs))
	for _, i := range descending(costs) {
		part[i] = h[0].part
		h[0].cost += costs[i]
		heap.Fix(&h, 0)
	}
	return part
}

type load struct{ cost, part int }

// loads is a heap with the least load first; of equal ones, the first part.
type loads []load

func (h loads) Len() int { return len(h) }
func (h loads) Less(i, j int) bool {
	return h[i].cost < h[j].cost || h[i].cost == h[j].cost && h[i].part < h[j].part
}
func (h loads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *loads) Push(any) { panic("shards: the number of parts is fixed") }

// Pop implements heap.Interface.
func (h *loads) Pop() any { panic("shards: the number of parts is fixed") }
