package merge

// enclosing is a set of nested ranges over the numbers 0 ≤ i < n, at most one
// beginning at each, that finds the innermost range around a number. It is a
// segment tree of the ranges' ends; both operations take O(log n), where climbing
// a deep tree for each of many calls would be quadratic.
type enclosing struct {
	size int32
	ends []int32 // ends[1] is the root; a leaf holds the end of its range, 0 for none
}

func newEnclosing(n int) *enclosing {
	size := int32(1)
	for int(size) < n {
		size *= 2
	}
	return &enclosing{size, make([]int32, 2*size)}
}

// set makes [i, end) a member; end 0 takes the range at i out.
func (s *enclosing) set(i, end int32) {
	at := i + s.size
	s.ends[at] = end
	for at /= 2; at > 0; at /= 2 {
		s.ends[at] = max(s.ends[2*at], s.ends[2*at+1])
	}
}

// find gives the beginning of the innermost range around i, or None: the ranges
// being nested, it is the last one that begins at or before i and ends behind it.
func (s *enclosing) find(i int32) int32 {
	at := i + s.size
	for s.ends[at] <= i {
		for at&1 == 0 { // a left child has nothing before it under its parent
			at /= 2
		}
		if at == 1 {
			return None
		}
		at--
	}
	for at < s.size {
		at *= 2
		if s.ends[at+1] > i {
			at++
		}
	}
	return at - s.size
}
