package verify

import (
	"slices"
)

// node is a set of equal calls; the first in order stands for it.
type node struct {
	*call
	ok       bool
	parent   *node
	extended bool
	// group is the choice group that counts; empty: none.
	group string
	stub  bool
}

// tree is a rollout as strict_tree sees it.
type tree struct {
	calls []*call
	nodes []*node // in order
	of    map[*call]*node
	// whole holds the nodes of equal S that may be parents, the best first.
	whole map[sequence]*node
	// lengths of these S, ascending.
	lengths []int
	// samePrompt holds the nodes of equal P, in order.
	samePrompt map[sequence][]*node
}

// newTree takes the calls in order.
func newTree(calls []*call) *tree {
	t := &tree{calls: calls, of: map[*call]*node{}, whole: map[sequence]*node{}, samePrompt: map[sequence][]*node{}}
	t.gather()
	t.findStubs()
	for _, n := range t.nodes {
		if !n.stub {
			if have := t.whole[n.call.whole()]; have == nil || n.ok && !have.ok {
				t.whole[n.call.whole()] = n
			}
		}
	}
	for s := range t.whole {
		t.lengths = append(t.lengths, s.length)
	}
	slices.Sort(t.lengths)
	t.lengths = slices.Compact(t.lengths)
	for _, c := range calls {
		if !c.tokenized() {
			continue
		}
		parent := t.longest(c)
		if n := t.of[c]; n != nil {
			n.parent = parent
		}
		if parent != nil {
			parent.extended = true
		}
	}
	return t
}

// gather makes nodes of calls with a response.
func (t *tree) gather() {
	type same struct {
		prompt, whole sequence
		group         string
		index         int64
		hasIndex      bool
	}
	choices := choiceGroups(t.calls)
	have := map[same]*node{}
	for _, c := range t.calls {
		if !c.tokenized() || c.r == 0 {
			continue
		}
		s := same{prompt: c.prompt(), whole: c.whole()}
		if choices[choice{c.prompt(), c.group}] {
			s.group = c.group
			if c.index != nil {
				s.index, s.hasIndex = *c.index, true
			}
		}
		n := have[s]
		if n == nil {
			n = &node{call: c, group: s.group}
			have[s] = n
			t.nodes = append(t.nodes, n)
			t.samePrompt[s.prompt] = append(t.samePrompt[s.prompt], n)
		}
		n.ok = n.ok || c.ok
		t.of[c] = n
	}
}

// choice is a choice group as named by calls of one prompt.
type choice struct {
	prompt sequence
	group  string
}

// choiceGroups says which of them are such: those that name two different
// indexes, or, of the calls without one, two different responses.
func choiceGroups(calls []*call) map[choice]bool {
	indexes := map[choice]map[int64]bool{}
	responses := map[choice]map[sequence]bool{}
	out := map[choice]bool{}
	for _, c := range calls {
		if !c.tokenized() || c.group == "" {
			continue
		}
		k := choice{c.prompt(), c.group}
		if indexes[k] == nil {
			indexes[k], responses[k] = map[int64]bool{}, map[sequence]bool{}
		}
		if c.index != nil {
			indexes[k][*c.index] = true
		} else {
			responses[k][c.whole()] = true
		}
		out[k] = len(indexes[k]) > 1 || len(responses[k]) > 1
	}
	return out
}

// findStubs marks replies that broke off: not ok, and a proper beginning of an
// ok one to the same prompt.
func (t *tree) findStubs() {
	for _, same := range t.samePrompt {
		for _, n := range same {
			for _, o := range same {
				if !n.ok && o.ok && n.r < o.r && n.begins(o.call, o.length()) {
					n.stub = true
				}
			}
		}
	}
}

// longest finds the node whose S is the longest prefix of the call's prompt.
func (t *tree) longest(c *call) *node {
	at, _ := slices.BinarySearch(t.lengths, c.p+1)
	for i := at - 1; i >= 0; i-- {
		if n := t.whole[c.prefix(t.lengths[i])]; n != nil {
			return n
		}
	}
	return nil
}

// dispositions follows rules 1, 2 and 4 of strict_tree.
func (t *tree) dispositions(j *judgement) {
	for _, c := range t.calls {
		switch n := t.of[c]; {
		case !c.tokenized():
			j.of[c].disposition = "untokenized"
		case n == nil:
			j.of[c].disposition = "empty_response"
		case n.call != c:
			j.of[c].disposition = "duplicate"
		default:
			j.of[c].disposition = t.disposition(n)
		}
	}
}

func (t *tree) disposition(n *node) string {
	if n.extended {
		return "trained"
	}
	extended, ok := false, 0
	for _, o := range t.samePrompt[n.prompt()] {
		if o.group != n.group {
			continue
		}
		extended = extended || o.extended
		if o.ok {
			ok++
		}
	}
	switch {
	case n.group != "" && extended:
		return "unchosen"
	case n.group != "" && n.ok:
		return "trained"
	case n.group != "":
		return "unobserved"
	case extended:
		return "abandoned_retry"
	case !n.ok && ok > 0:
		return "abandoned_retry"
	case !n.ok:
		return "unobserved"
	case ok > 1:
		return "unresolved_retry"
	}
	return "trained"
}

// paths makes the rows of strict_tree: one per trained node without a trained
// child, with a span per node on the way to it.
func (t *tree) paths(j *judgement) {
	trained := func(n *node) bool { return j.of[n.call].disposition == "trained" }
	inner := map[*node]bool{}
	for _, n := range t.nodes {
		if n.parent != nil && trained(n) {
			inner[n.parent] = true
		}
	}
	for _, n := range t.nodes {
		if !trained(n) || inner[n] {
			continue
		}
		for on := n; on != nil; on = on.parent {
			d := j.of[on.call]
			if d.row >= 0 {
				break // so does all before it
			}
			d.inRow, d.row, d.spanStart = true, len(j.rows), on.p
			if on.parent != nil {
				d.previous, d.cut = on.parent.call, on.parent.length()
			}
		}
		j.rows = append(j.rows, row{namer: n.call, last: n.call, length: n.length()})
	}
}

// singles makes the rows of per_request.
func (t *tree) singles(j *judgement) {
	for _, n := range t.nodes {
		if d := j.of[n.call]; d.disposition == "trained" {
			d.inRow, d.row, d.spanStart = true, len(j.rows), n.p
			j.rows = append(j.rows, row{namer: n.call, last: n.call, length: n.length()})
		}
	}
}
