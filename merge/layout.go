package merge

// layout numbers the vertices of a radix tree so that whole subtrees become
// ranges. Everything is done in loops: a long rollout is a deep tree.
type layout struct {
	// downward lists the vertices, each after its parent.
	downward []int32
	// A vertex and all below it have exactly the numbers in[v] ≤ n < out[v].
	in, out []int32
}

func (x *radix) layout() layout {
	n := len(x.vertices)
	below, beside := make([]int32, n), make([]int32, n) // children of a vertex as a list
	for v := range below {
		below[v] = nowhere
	}
	for v := 1; v < n; v++ {
		parent := x.vertices[v].parent
		beside[v], below[parent] = below[parent], int32(v)
	}
	downward := make([]int32, 1, n)
	for i := 0; i < len(downward); i++ {
		for v := below[downward[i]]; v != nowhere; v = beside[v] {
			downward = append(downward, v)
		}
	}

	size := beside // no longer needed as a list
	for v := range size {
		size[v] = 1
	}
	for i := n - 1; i > 0; i-- {
		v := downward[i]
		size[x.vertices[v].parent] += size[v]
	}
	in, out, free := make([]int32, n), make([]int32, n), below // free: next number in a subtree
	in[root], free[root], out[root] = 0, 1, size[root]
	for _, v := range downward[1:] {
		parent := x.vertices[v].parent
		in[v] = free[parent]
		free[parent] += size[v]
		free[v], out[v] = in[v]+1, in[v]+size[v]
	}
	return layout{downward, in, out}
}
