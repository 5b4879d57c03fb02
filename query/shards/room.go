package shards

// room finds the first of many bins that has room for something, in steps that
// grow with the logarithm of their number: a lease may have 100,000 rows.
type room struct {
	// free is a heap-shaped tree over the bins: free[leaves+i] is what bin i has
	// left, and free[v] the largest of what stands below v.
	free   []int
	leaves int
	n      int
}

// full is less than any bin has left, also one with a row longer than itself.
const full = -1 << 62

// add appends a bin with so much left.
func (r *room) add(left int) {
	if r.n == r.leaves {
		old := r.free[r.leaves:]
		r.leaves = max(1, 2*r.leaves)
		r.free = make([]int, 2*r.leaves)
		for i := range r.free {
			r.free[i] = full
		}
		for i, v := range old {
			r.set(i, v)
		}
	}
	r.set(r.n, left)
	r.n++
}

// take makes bin i smaller.
func (r *room) take(i, n int) { r.set(i, r.free[r.leaves+i]-n) }

func (r *room) set(i, left int) {
	v := r.leaves + i
	r.free[v] = left
	for v > 1 {
		v /= 2
		r.free[v] = max(r.free[2*v], r.free[2*v+1])
	}
}

// first is the first bin that has n left, or -1.
func (r *room) first(n int) int {
	if r.n == 0 || r.free[1] < n {
		return -1
	}
	v := 1
	for v < r.leaves {
		v *= 2
		if r.free[v] < n {
			v++
		}
	}
	return v - r.leaves
}
