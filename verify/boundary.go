package verify

// boundaries says of each node how its prompt relates to the nodes before it.
func (t *tree) boundaries(j *judgement) {
	for i, n := range t.nodes {
		d := j.of[n.call]
		first := t.samePrompt[n.prompt()][0]
		switch {
		case i == 0:
			d.boundary = "first"
		case first != n:
			d.boundary, d.nearest, d.shared = "same_prompt", first.call, n.p
		case n.parent != nil:
			d.boundary, d.nearest, d.shared = "extends", n.parent.call, n.parent.length()
		default:
			t.depart(n, t.nodes[:i], d)
		}
	}
}

// depart finds the node before n whose S agrees with n's prompt the furthest,
// the first of them.
func (t *tree) depart(n *node, before []*node, d *verdict) {
	k := 0
	var m *node
	for _, o := range before {
		limit := min(n.p, o.length())
		agrees := func(l int) bool { return n.prefix(l) == o.prefix(l) }
		if k >= limit || !agrees(k+1) {
			continue
		}
		lo, hi := k+1, limit // agrees up to lo, at most up to hi
		for lo < hi {
			if mid := (lo + hi + 1) / 2; agrees(mid) {
				lo = mid
			} else {
				hi = mid - 1
			}
		}
		k, m = lo, o
	}
	switch {
	case k == 0:
		d.boundary = "disjoint"
		return
	case k == n.p:
		d.boundary = "rewinds"
	case k >= m.p:
		d.boundary = "diverges_in_response"
	default:
		d.boundary = "diverges_in_prompt"
	}
	d.nearest, d.shared = m.call, k
}
