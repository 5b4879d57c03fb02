package store

import (
	"crypto/sha256"
	"hash"

	"icecore/trace"
)

// tape is an append-only sequence of ids of one rollout. It begins with the
// first fork ids of its parent; own holds what follows them.
type tape struct {
	key    int64
	parent *tape
	fork   int
	own    []int32
	depth  int
	// forks holds the tapes that depart from this one, by place and first own
	// id: two departures at one place differ in that id.
	forks map[departure]*tape
	// marks are the prompts that ended on this tape, ascending, each with the
	// state of its hash: the next prompt mostly goes on from one of them.
	marks []mark
}

type departure struct {
	at int
	id int32
}

type mark struct {
	at    int
	state hash.Cloner
}

func (t *tape) end() int { return t.fork + len(t.own) }

// prefix gives the first n ids of the tape, sharing memory.
func (t *tape) prefix(n int) trace.Tokens {
	var pieces trace.Tokens
	for n > 0 {
		if n > t.fork {
			pieces = append(pieces, t.own[:n-t.fork:n-t.fork])
			n = t.fork
		}
		t = t.parent
	}
	for i, j := 0, len(pieces)-1; i < j; i, j = i+1, j-1 {
		pieces[i], pieces[j] = pieces[j], pieces[i]
	}
	if pieces == nil {
		return trace.Tokens{}
	}
	return pieces
}

// heads are one rollout's tapes as far as memory holds them: a cache, whose
// loss makes the next trace start a new tape.
type heads struct {
	roots  map[int32]*tape
	places map[int64]place
	bytes  int64
}

// place says where a trace lies.
type place struct {
	tape     *tape
	prompt   int
	response int
}

// emptyHeads is about what heads without a tape take.
const emptyHeads = 512

func newHeads() *heads {
	return &heads{roots: map[int32]*tape{}, places: map[int64]place{}, bytes: emptyHeads}
}

// found is how far a sequence is already on tapes: its first matched ids are
// those of tape on (nil: none). state is a hash over the first hashed ids.
type found struct {
	on      *tape
	matched int
	state   hash.Cloner
	hashed  int
}

// find follows seq through the tapes. Hash states beyond promptLen are not
// used. Cost: one comparison of each id.
func (h *heads) find(seq trace.Tokens, promptLen int) found {
	var f found
	c := cursor{pieces: seq}
	first, ok := c.peek()
	if !ok || h.roots[first] == nil {
		return f
	}
	for t := h.roots[first]; t != nil; {
		f.on = t
		f.matched += c.match(t.own[f.matched-t.fork:])
		f.useMarks(t, min(f.matched, promptLen))
		next, more := c.peek()
		if !more {
			break
		}
		t = t.forks[departure{f.matched, next}]
	}
	return f
}

func (f *found) useMarks(t *tape, limit int) {
	for i := len(t.marks) - 1; i >= 0; i-- {
		if m := t.marks[i]; m.at <= limit {
			if m.at > f.hashed {
				f.state, f.hashed = m.state, m.at
			}
			return
		}
	}
}

// hash gives SHA-256 of the prompt, going on from the state that find met, and
// the state itself for a later prompt to go on from.
func (f *found) hash(prompt trace.Tokens, promptLen int) (sum []byte, state hash.Cloner) {
	var h hash.Hash
	if f.state == nil {
		h = sha256.New()
	} else {
		c, err := f.state.Clone()
		if err != nil {
			panic(err) // SHA-256 of the standard library always clones
		}
		h = c
	}
	for _, piece := range prompt.Slice(f.hashed, promptLen) {
		h.Write(trace.Bytes(piece))
	}
	return h.Sum(nil), h.(hash.Cloner)
}

// cursor walks over the pieces of a sequence.
type cursor struct {
	pieces trace.Tokens
	at     int
}

func (c *cursor) peek() (int32, bool) {
	for len(c.pieces) > 0 && c.at == len(c.pieces[0]) {
		c.pieces, c.at = c.pieces[1:], 0
	}
	if len(c.pieces) == 0 {
		return 0, false
	}
	return c.pieces[0][c.at], true
}

// match goes on while the sequence agrees with ids and says how far that was.
func (c *cursor) match(ids []int32) int {
	n := 0
	for n < len(ids) {
		if _, ok := c.peek(); !ok {
			break
		}
		k := trace.CommonPrefix(c.pieces[0][c.at:], ids[n:])
		n += k
		c.at += k
		if c.at < len(c.pieces[0]) {
			break
		}
	}
	return n
}

// growth is what putting a sequence on a tape adds to storage.
type growth struct {
	tape *tape
	// opened: the tape is new.
	opened bool
	// start and ids are what the tape gained; storedFork is where a new tape
	// really departs from a parent in storage (0: it holds everything itself).
	start int
	ids   []int32
}

// place puts seq on a tape, of which find said how much is there, and gives
// what must be written. newKey makes the key of a new tape.
func (h *heads) place(seq trace.Tokens, f found, newKey func() int64) growth {
	n := seq.Len()
	switch {
	case f.on != nil && f.matched == n:
		return growth{tape: f.on, start: n}
	case f.on != nil && f.matched == f.on.end():
		rest := seq.Slice(f.matched, n)
		before := len(f.on.own)
		f.on.own = rest.AppendTo(f.on.own)
		h.bytes += int64(4 * (n - f.matched))
		return growth{tape: f.on, start: f.matched, ids: f.on.own[before:]}
	}
	t := &tape{key: newKey(), forks: map[departure]*tape{}}
	if f.on != nil && f.on.depth < maxForkDepth {
		t.parent, t.fork, t.depth = f.on, f.matched, f.on.depth+1
	}
	t.own = seq.Slice(t.fork, n).Flat()
	c := cursor{pieces: seq.Slice(f.matched, n)}
	id, _ := c.peek()
	if f.on == nil {
		h.roots[id] = t
	} else {
		f.on.forks[departure{f.matched, id}] = t
	}
	h.bytes += int64(4*len(t.own)) + 256
	return growth{tape: t, opened: true, start: t.fork, ids: t.own}
}

// remember keeps what a later trace can use: where this one lies, and the hash
// state at the end of its prompt.
func (h *heads) remember(traceKey int64, p place, state hash.Cloner) {
	h.places[traceKey] = p
	h.bytes += 64
	t := p.tape
	for t != nil && p.prompt <= t.fork {
		t = t.parent
	}
	if t == nil || state == nil {
		return
	}
	i := len(t.marks)
	for i > 0 && t.marks[i-1].at >= p.prompt {
		if t.marks[i-1].at == p.prompt {
			return
		}
		i--
	}
	t.marks = append(t.marks, mark{})
	copy(t.marks[i+1:], t.marks[i:])
	t.marks[i] = mark{p.prompt, state}
	h.bytes += 160
}
