package merge

import (
	"slices"
)

// forest is what strict_tree knows of the calls before it judges them: which are
// nodes, and which node is whose parent.
type forest struct {
	tree   *Tree
	layout layout
	// nodes lists the standing calls, in order.
	nodes    []int
	choice   []choice // by call
	standing []int    // by call; None: untokenized or empty
	ok       []bool   // by standing call: one of its like is ok
	parent   []int    // by call; empty responses have one too
	extended []bool   // by standing call
}

func (t *Tree) link(order []int) *forest {
	n := len(t.calls)
	f := &forest{
		tree: t, layout: t.radix.layout(), choice: t.choices(),
		standing: make([]int, n), ok: make([]bool, n), parent: make([]int, n), extended: make([]bool, n),
	}
	f.collapse(order)
	nearest := f.nearestParents(f.stubs())
	for i := range t.calls {
		f.parent[i] = None
		// Whoever received a node's sequence is evidence that it was used; a
		// duplicate says nothing that its like does not.
		if e := &t.calls[i]; e.end != nowhere {
			if f.parent[i] = nearest[e.promptEnd]; f.parent[i] != None {
				f.extended[f.parent[i]] = true
			}
		}
	}
	return f
}

// collapse finds the nodes: the first of each set of like calls.
func (f *forest) collapse(order []int) {
	type like struct {
		promptEnd, end int32
		choice         choice
	}
	first := make(map[like]int, len(order))
	for _, i := range order {
		e := &f.tree.calls[i]
		f.standing[i] = None
		if e.end == nowhere || e.responseLen == 0 {
			continue
		}
		key := like{e.promptEnd, e.end, f.choice[i]}
		at, found := first[key]
		if !found {
			at = i
			first[key] = i
			f.nodes = append(f.nodes, i)
		}
		f.standing[i] = at
		f.ok[at] = f.ok[at] || e.ok()
	}
}

// stubs tells which nodes broke off inside a reply that came whole elsewhere.
func (f *forest) stubs() []bool {
	stub := make([]bool, len(f.tree.calls))
	if !slices.ContainsFunc(f.nodes, func(i int) bool { return !f.ok[i] }) {
		return stub
	}
	// Longer replies to the same prompt end below the stub's end, so they are a
	// range among the sorted numbers of the ok ends.
	whole := map[int32][]int32{} // by end of prompt
	for _, i := range f.nodes {
		if e := &f.tree.calls[i]; f.ok[i] {
			whole[e.promptEnd] = append(whole[e.promptEnd], f.layout.in[e.end])
		}
	}
	for _, ends := range whole {
		slices.Sort(ends)
	}
	for _, i := range f.nodes {
		if f.ok[i] {
			continue
		}
		e := &f.tree.calls[i]
		ends := whole[e.promptEnd]
		at, _ := slices.BinarySearch(ends, f.layout.in[e.end]+1)
		stub[i] = at < len(ends) && ends[at] < f.layout.out[e.end]
	}
	return stub
}

// nearestParents gives for each vertex the node with the longest sequence that
// ends there or above.
func (f *forest) nearestParents(stub []bool) []int {
	nearest := make([]int, len(f.tree.radix.vertices))
	for v := range nearest {
		nearest[v] = None
	}
	for _, i := range f.nodes {
		at := &nearest[f.tree.calls[i].end]
		if !stub[i] && (*at == None || f.ok[i] && !f.ok[*at]) {
			*at = i
		}
	}
	for _, v := range f.layout.downward[1:] {
		if nearest[v] == None {
			nearest[v] = nearest[f.tree.radix.vertices[v].parent]
		}
	}
	return nearest
}
