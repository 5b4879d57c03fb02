package merge

import (
	"slices"

	"icecore/trace"
)

// chain is a row of polar_compat in the making.
type chain struct {
	first, last int // calls
	kept        int // the last call that was not dropped
	endOfTurn   int32
	hasEnd      bool
	broken      bool // an end of turn was missing: everything after is dropped
	rewritten   bool
	length      int
}

// polar does as Polar's prefix_merging builder does (NVIDIA-NeMo/
// ProRL-Agent-Server, src/polar/trajectory/builder): calls whose prompts extend
// each other are glued into one row, and the history in between is the first
// response as sampled, whatever the harness made of it. Where that is not what
// the later call received, the row says so (Rewritten).
func (t *Tree) polar(r *Result, l *layout) {
	var chains []chain
	live := newEnclosing(len(l.in)) // ends of the prompts of the chains' last calls
	owner := make([]int, len(l.in)) // chain by number of that end
	for _, i := range r.Order {
		e, n := &t.calls[i], &r.Nodes[i]
		if e.end == nowhere {
			n.Disposition = Untokenized
			continue
		}
		n.Standing = i
		at := l.in[e.promptEnd]
		c := len(chains)
		if found := live.find(at); found != None {
			c = owner[found]
			t.join(r, &chains[c], i)
			live.set(found, 0)
		} else {
			chains = append(chains, t.start(r.Policy, i))
			keep(r, &chains[c], i)
		}
		// An empty prompt is a prefix of every other and says nothing, so it is
		// never made a place to join.
		if e.promptLen > 0 {
			live.set(at, l.out[e.promptEnd])
			owner[at] = c
		}
	}
	for c := range chains {
		r.emit(&chains[c])
	}
}

// start opens a chain with call i.
func (t *Tree) start(p Policy, i int) chain {
	c := chain{first: i, last: i, kept: None}
	e := &t.calls[i]
	if p.EndOfTurn != nil {
		c.endOfTurn, c.hasEnd = *p.EndOfTurn, true
	} else if e.FinishReason == "stop" || e.FinishReason == "tool_calls" {
		c.endOfTurn, c.hasEnd = lastID(e.Response)
	}
	return c
}

// join appends call i to its chain, or drops it.
func (t *Tree) join(r *Result, c *chain, i int) {
	prev, e, n := &t.calls[c.last], &t.calls[i], &r.Nodes[i]
	c.last = i
	if c.broken || !c.hasEnd {
		c.broken = true
		n.Disposition = DroppedByPolicy
		return
	}
	tail := e.Prompt.Slice(prev.promptLen, e.promptLen)
	k := indexOf(tail, c.endOfTurn)
	if k < 0 {
		c.broken = true
		n.Disposition = DroppedByPolicy
		return
	}
	// Up to here the harness repeats the answer. When the answer lacks its end of
	// turn, the one that the harness wrote is kept as context.
	answer := k
	if id, ok := lastID(prev.Response); ok && id == c.endOfTurn {
		answer = k + 1
	}
	if !equal(tail.Slice(0, answer), prev.Response) {
		c.rewritten = true
	}
	n.Cut = prev.promptLen + answer
	keep(r, c, i)
}

// keep puts call i behind the chain, its contribution beginning at its Cut.
func keep(r *Result, c *chain, i int) {
	n := &r.Nodes[i]
	n.Disposition = Trained
	if n.ResponseLen == 0 {
		n.Disposition = EmptyResponse
	}
	n.Parent = c.kept
	n.SpanStart = c.length + n.PromptLen - n.Cut
	c.length = n.SpanStart + n.ResponseLen
	c.kept = i
}

// emit makes a trajectory of a chain that sampled something.
func (r *Result) emit(c *chain) {
	row, trained := len(r.Trajectories), 0
	for i := c.kept; i != None; i = r.Nodes[i].Parent {
		if n := &r.Nodes[i]; n.Disposition == Trained {
			n.Row = row
			trained += n.ResponseLen
		}
	}
	if trained > 0 {
		r.Trajectories = append(r.Trajectories, Trajectory{
			Namer: c.first, Last: c.kept, Length: c.length, Rewritten: c.rewritten, TrainedTokens: trained,
		})
	}
}

// lastID is the last id, when there is one.
func lastID(ids trace.Tokens) (int32, bool) {
	for _, piece := range slices.Backward(ids) {
		if len(piece) > 0 {
			return piece[len(piece)-1], true
		}
	}
	return 0, false
}

// indexOf is the first place of id, or -1.
func indexOf(ids trace.Tokens, id int32) int {
	at := 0
	for _, piece := range ids {
		if k := slices.Index(piece, id); k >= 0 {
			return at + k
		}
		at += len(piece)
	}
	return -1
}

// equal compares ids, however they are cut into pieces.
func equal(a, b trace.Tokens) bool {
	if a.Len() != b.Len() {
		return false
	}
	var x, y []int32
	for {
		for ; len(x) == 0 && len(a) > 0; a = a[1:] {
			x = a[0]
		}
		for ; len(y) == 0 && len(b) > 0; b = b[1:] {
			y = b[0]
		}
		n := min(len(x), len(y))
		if n == 0 {
			return true
		}
		if commonBeginning(x[:n], y[:n]) < n {
			return false
		}
		x, y = x[n:], y[n:]
	}
}
