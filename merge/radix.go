package merge

import "icecore/trace"

// radix is a path-compressed tree of token sequences. Edges are slices of the
// sequences that were put in; nothing is copied.
type radix struct {
	vertices []vertex
	// forks finds the children of a vertex after its first one. One map for the
	// whole tree: most vertices have a single child and should cost no map.
	forks map[fork]int32
	// compared counts ids that were read, for the test that bounds the work.
	compared int
}

type vertex struct {
	label  []int32 // the ids on the edge from the parent, one or more except at the root
	parent int32
	child  int32 // the first child, or nowhere
	depth  int   // ids from the root to the end of label
}

type fork struct{ vertex, head int32 }

const root = 0

func newRadix() radix {
	return radix{vertices: []vertex{{parent: nowhere, child: nowhere}}, forks: map[fork]int32{}}
}

// extend walks ids down from vertex v, adding what is not there yet, and returns
// the vertex at which they end: equal sequences end at the same vertex.
func (x *radix) extend(v int32, ids trace.Tokens) int32 {
	// The walk stands behind the first off ids of v's label. Only its end needs a
	// vertex: where the pieces of a sequence meet means nothing.
	off := len(x.vertices[v].label)
	for _, piece := range ids {
		for len(piece) > 0 {
			if label := x.vertices[v].label; off < len(label) {
				n := x.common(label[off:], piece)
				off, piece = off+n, piece[n:]
				if len(piece) == 0 {
					break
				}
				v = x.split(v, off) // no-op at the end of the label
			}
			next := x.step(v, piece[0])
			if next == nowhere {
				next = x.add(v, piece)
				piece = nil
				off = len(x.vertices[next].label)
			} else {
				off = 0
			}
			v = next
		}
	}
	return x.split(v, off)
}

// step gives the child of v whose edge begins with head, or nowhere.
func (x *radix) step(v, head int32) int32 {
	child := x.vertices[v].child
	if child == nowhere || x.vertices[child].label[0] == head {
		return child
	}
	if next, ok := x.forks[fork{v, head}]; ok {
		return next
	}
	return nowhere
}

// add hangs a new edge with the given ids below v.
func (x *radix) add(v int32, ids []int32) int32 {
	next := int32(len(x.vertices))
	x.vertices = append(x.vertices, vertex{
		label: ids[:len(ids):len(ids)], parent: v, child: nowhere, depth: x.vertices[v].depth + len(ids),
	})
	if x.vertices[v].child == nowhere {
		x.vertices[v].child = next
	} else {
		x.forks[fork{v, ids[0]}] = next
	}
	return next
}

// split makes a vertex behind the first off ids of v's label and returns it; v
// itself keeps its place and its index, since calls end there.
func (x *radix) split(v int32, off int) int32 {
	old := x.vertices[v]
	if off == len(old.label) {
		return v
	}
	upper := int32(len(x.vertices))
	x.vertices = append(x.vertices, vertex{
		label: old.label[:off:off], parent: old.parent, child: v, depth: old.depth - len(old.label) + off,
	})
	x.vertices[v].label, x.vertices[v].parent = old.label[off:], upper
	if above := &x.vertices[old.parent]; above.child == v {
		above.child = upper
	} else {
		x.forks[fork{old.parent, old.label[0]}] = upper
	}
	return upper
}

// common is the length of the longest common beginning of two non-empty slices.
func (x *radix) common(a, b []int32) int {
	n := min(len(a), len(b))
	if &a[0] == &b[0] {
		return n // the same memory: shared history is linked for nothing
	}
	i := commonBeginning(a[:n], b[:n])
	x.compared += min(i+1, n)
	return i
}

// commonBeginning compares two slices of one length in blocks, because comparing
// arrays compiles to the machine's memory comparison, then narrows down.
func commonBeginning(a, b []int32) int {
	const large, small = 1024, 16
	i, n := 0, len(a)
	for i+large <= n && *(*[large]int32)(a[i:]) == *(*[large]int32)(b[i:]) {
		i += large
	}
	for i+small <= n && *(*[small]int32)(a[i:]) == *(*[small]int32)(b[i:]) {
		i += small
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
