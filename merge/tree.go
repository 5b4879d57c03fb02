package merge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Tree holds the calls of one rollout, linked by their tokens. It grows by Add
// in any order. Trace ids must differ from call to call; the ids of a call are
// read-only once added. Runs may share a tree, but nothing may run beside an Add.
type Tree struct {
	calls []entry
	radix radix
}

// entry is a call with its place in the radix tree.
type entry struct {
	Call
	promptLen, responseLen int
	// promptEnd and end are the vertices where the prompt and the whole sequence
	// end: equal vertices are equal ids. nowhere when the call is untokenized.
	promptEnd, end int32
}

// nowhere is the vertex of a call that is not in the tree, and of nothing.
const nowhere = -1

// NewTree gives a tree without calls.
func NewTree() *Tree {
	return &Tree{radix: newRadix()}
}

// Add links a call and returns its index (0, 1, 2, … in order of Add). It
// compares the call's own ids once at most, and none that lie in memory which
// the tree has seen at that place before.
func (t *Tree) Add(c Call) int {
	e := entry{
		Call: c, promptLen: c.Prompt.Len(), responseLen: c.Response.Len(),
		promptEnd: nowhere, end: nowhere,
	}
	known := c.Prompt != nil && c.Response != nil && e.promptLen+e.responseLen > 0
	if known && !c.IDsIncomplete {
		e.promptEnd = t.radix.extend(root, c.Prompt)
		e.end = t.radix.extend(e.promptEnd, c.Response)
	}
	t.calls = append(t.calls, e)
	return len(t.calls) - 1
}

// Len is the number of calls.
func (t *Tree) Len() int { return len(t.calls) }

// Call gives the i-th call added.
func (t *Tree) Call(i int) Call { return t.calls[i].Call }

// Run applies a policy to the calls added so far. It reads no token for
// strict_tree and per_request, and for polar_compat only what each call adds to
// its chain. It panics on a policy that ParsePolicy does not know.
func (t *Tree) Run(p Policy) *Result {
	r := &Result{Policy: p, Nodes: make([]Node, len(t.calls)), Order: t.order()}
	for i := range t.calls {
		e := &t.calls[i]
		r.Nodes[i] = Node{Parent: None, Row: None, Standing: None, PromptLen: e.promptLen, ResponseLen: e.responseLen}
	}
	f := t.link(r.Order)
	r.Boundaries = f.boundaries()
	switch p.Name {
	case "", StrictTree:
		f.dispose(r)
		f.rows(r)
	case PerRequest:
		f.dispose(r)
		f.singles(r)
	case PolarCompat:
		t.polar(r, &f.layout)
	default:
		panic(fmt.Sprintf("merge: run: no policy is called %q", p.Name))
	}
	return r
}

// Run applies a policy to calls at once.
func Run(calls []Call, p Policy) *Result {
	t := NewTree()
	for _, c := range calls {
		t.Add(c)
	}
	return t.Run(p)
}

// order gives the call indexes by (seq, trace_id), an absent seq last.
func (t *Tree) order() []int {
	order := make([]int, len(t.calls))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &t.calls[i], &t.calls[j]
		switch {
		case a.Seq == nil && b.Seq != nil:
			return 1
		case a.Seq != nil && b.Seq == nil:
			return -1
		case a.Seq != nil && *a.Seq != *b.Seq:
			return cmp.Compare(*a.Seq, *b.Seq)
		}
		// The index only decides where the caller broke the rule of distinct ids.
		return cmp.Or(strings.Compare(a.TraceID, b.TraceID), cmp.Compare(i, j))
	})
	return order
}
