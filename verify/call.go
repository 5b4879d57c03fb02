package verify

import (
	"cmp"
	"slices"
)

// call is what a policy may read of a trace. p and r count its prompt's and
// response's ids, known says that both are known; tape begins with them.
type call struct {
	key        int64
	id         string
	seq        *int64
	tape       *tape
	p, r       int
	known      bool
	incomplete bool
	ok         bool
	finish     string
	group      string
	index      *int64
}

// before is the order of calls: by seq, absent ones last, then by id.
func (c *call) before(o *call) int {
	switch {
	case c.seq != nil && o.seq != nil && *c.seq != *o.seq:
		return cmp.Compare(*c.seq, *o.seq)
	case c.seq != nil && o.seq == nil:
		return -1
	case c.seq == nil && o.seq != nil:
		return 1
	}
	return cmp.Compare(c.id, o.id)
}

func (c *call) length() int { return c.p + c.r }

// tokenized says that the call takes part.
func (c *call) tokenized() bool { return c.known && c.length() > 0 && !c.incomplete }

// sequence identifies a sequence of ids.
type sequence struct {
	length int
	hash   uint64
}

func (c *call) prefix(n int) sequence { return sequence{n, c.tape.hash(n)} }
func (c *call) prompt() sequence      { return c.prefix(c.p) }
func (c *call) whole() sequence       { return c.prefix(c.length()) }

// begins says that the whole of c is a prefix of o's first n ids.
func (c *call) begins(o *call, n int) bool {
	return c.length() <= n && c.whole() == o.prefix(c.length())
}

// verdict is what the law says of one call: its disposition, and for calls that
// stand in a row the call before it, where its share begins, and its span.
type verdict struct {
	disposition string
	inRow       bool
	previous    *call
	cut         int
	spanStart   int // -1: no span
	row         int // -1: trainable nowhere
	// boundary is empty for calls that are no node.
	boundary string
	nearest  *call
	shared   int
}

// row is a trajectory of the law.
type row struct {
	namer, last *call
	length      int
	rewritten   bool
}

// judgement is what the law makes of a rollout.
type judgement struct {
	of   map[*call]*verdict
	rows []row
}

// judge applies a policy: its name, and for polar_compat its end of turn or nil.
func judge(calls []*call, policy string, endOfTurn *int32) *judgement {
	calls = slices.Clone(calls)
	slices.SortFunc(calls, (*call).before)
	j := &judgement{of: map[*call]*verdict{}}
	for _, c := range calls {
		j.of[c] = &verdict{spanStart: -1, row: -1}
	}
	t := newTree(calls)
	t.boundaries(j)
	switch policy {
	case "polar_compat":
		polar(j, calls, endOfTurn)
	case "per_request":
		t.dispositions(j)
		t.singles(j)
	default:
		t.dispositions(j)
		t.paths(j)
	}
	return j
}
