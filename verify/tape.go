package verify

import "slices"

// tape is the reader's tape: the first fork ids of its parent, then its own.
type tape struct {
	key, parentKey int64
	parent         *tape
	fork           int
	batch          int64
	own            []int32
	// hashes[i] is the hash of the first fork+i ids.
	hashes []uint64
	// broken: its ids cannot be told, which was reported.
	broken bool
}

func (t *tape) length() int { return t.fork + len(t.own) }

// seal computes the hashes; parents first.
func (t *tape) seal() {
	t.hashes = make([]uint64, 1, len(t.own)+1)
	if t.parent != nil {
		t.hashes[0] = t.parent.hash(t.fork)
	}
	h := t.hashes[0]
	for _, id := range t.own {
		h = extend(h, id)
		t.hashes = append(t.hashes, h)
	}
}

// hash gives the hash of the first n ids; a nil tape has none.
func (t *tape) hash(n int) uint64 {
	if n == 0 {
		return 0
	}
	for n < t.fork {
		t = t.parent
	}
	return t.hashes[n-t.fork]
}

// hashRange gives the hash of the ids [from, to) by themselves.
func (t *tape) hashRange(from, to int) uint64 {
	return sub(t.hash(to), mul(t.hash(from), power(to-from)))
}

// ids copies the ids [from, to).
func (t *tape) ids(from, to int) []int32 {
	out := make([]int32, 0, max(0, to-from))
	for _, p := range t.pieces(to) {
		if from >= len(p) {
			from -= len(p)
			continue
		}
		out = append(out, p[from:]...)
		from = 0
	}
	return out
}

// pieces gives the first n ids, in order, as slices of the tapes that hold them.
func (t *tape) pieces(n int) [][]int32 {
	var out [][]int32
	for n > 0 {
		if n > t.fork {
			out = append(out, t.own[:n-t.fork])
			n = t.fork
		}
		t = t.parent
	}
	slices.Reverse(out)
	return out
}
