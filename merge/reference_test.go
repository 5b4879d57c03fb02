package merge

import (
	"slices"
	"sort"

	"icecore/trace"
)

// This file is the law once more, written sentence by sentence on flat slices,
// without the tree and without regard to cost. It shares no code with the package
// but the names of dispositions and boundaries.

// view is an answer in terms of trace ids, comparable across orders of arrival.
type view struct {
	Rows         []viewRow
	Dispositions map[string]Disposition
	Boundaries   []viewBoundary
}

type viewRow struct {
	IDs       []int32
	Spans     []viewSpan
	Namer     string
	Rewritten bool
}

type viewSpan struct {
	TraceID    string
	Start, End int
	Trainable  bool
}

type viewBoundary struct {
	TraceID string
	Kind    BoundaryKind
	Nearest string // empty: null
	Shared  int
}

// ref is one call, flat.
type ref struct {
	id           string
	seq          *int64
	p, r         []int32
	tokenized    bool
	ok           bool // of the node, once duplicates are known
	finish       string
	group        string
	index        *int64
	duplicate    bool
	node         bool
	stub         bool
	extended     bool
	parent       *ref
	trainedChild bool
}

func (c *ref) s() []int32 { return slices.Concat(c.p, c.r) }

func isPrefix(short, long []int32) bool {
	return len(short) <= len(long) && slices.Equal(short, long[:len(short)])
}

func sharedBeginning(a, b []int32) int {
	k := 0
	for k < len(a) && k < len(b) && a[k] == b[k] {
		k++
	}
	return k
}

func sameIndex(a, b *int64) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func refCalls(calls []Call) []*ref {
	var out []*ref
	for _, c := range calls {
		x := &ref{
			id: c.TraceID, seq: c.Seq, p: c.Prompt.Flat(), r: c.Response.Flat(), finish: c.FinishReason,
			ok:    c.Status == "" || c.Status == trace.StatusOK,
			group: c.ChoiceGroup, index: c.ChoiceIndex,
		}
		x.tokenized = x.p != nil && x.r != nil && len(x.p)+len(x.r) > 0 && !c.IDsIncomplete
		out = append(out, x)
	}
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if (a.seq == nil) != (b.seq == nil) {
			return a.seq != nil
		}
		if a.seq != nil && *a.seq != *b.seq {
			return *a.seq < *b.seq
		}
		return a.id < b.id
	})
	refChoices(out)
	return out
}

// refChoices takes from each call the group that is none.
func refChoices(calls []*ref) {
	genuine := make([]bool, len(calls))
	for i, c := range calls {
		if c.group == "" || !c.tokenized {
			continue
		}
		for _, a := range calls {
			for _, b := range calls {
				if !a.tokenized || !b.tokenized || a.group != c.group || b.group != c.group ||
					!slices.Equal(a.p, c.p) || !slices.Equal(b.p, c.p) {
					continue
				}
				if a.index != nil && b.index != nil && *a.index != *b.index {
					genuine[i] = true
				}
				if a.index == nil && b.index == nil && !slices.Equal(a.r, b.r) {
					genuine[i] = true
				}
			}
		}
	}
	for i, c := range calls {
		if !genuine[i] {
			c.group, c.index = "", nil
		}
	}
}

func refParent(nodes []*ref, prompt []int32) *ref {
	var best *ref
	for _, n := range nodes {
		if n.stub || !isPrefix(n.s(), prompt) {
			continue
		}
		switch {
		case best == nil, len(n.s()) > len(best.s()):
			best = n
		case len(n.s()) == len(best.s()) && n.ok && !best.ok:
			best = n
		}
	}
	return best
}

// refLink does rules 1 to 3 of strict_tree and returns the nodes in order.
func refLink(calls []*ref) []*ref {
	var nodes []*ref
	for _, c := range calls {
		if !c.tokenized || len(c.r) == 0 {
			continue
		}
		c.node = true
		for _, n := range nodes {
			if slices.Equal(n.p, c.p) && slices.Equal(n.r, c.r) && n.group == c.group && sameIndex(n.index, c.index) {
				c.node, c.duplicate = false, true
				n.ok = n.ok || c.ok
			}
		}
		if c.node {
			nodes = append(nodes, c)
		}
	}
	for _, n := range nodes {
		for _, o := range nodes {
			if !n.ok && o.ok && slices.Equal(n.p, o.p) && len(n.r) < len(o.r) && isPrefix(n.r, o.r) {
				n.stub = true
			}
		}
	}
	for _, n := range nodes {
		if n.parent = refParent(nodes, n.p); n.parent != nil {
			n.parent.extended = true
		}
	}
	for _, c := range calls {
		if c.tokenized && len(c.r) == 0 {
			if parent := refParent(nodes, c.p); parent != nil {
				parent.extended = true
			}
		}
	}
	return nodes
}

func refDisposition(c *ref, nodes []*ref) Disposition {
	switch {
	case !c.tokenized:
		return Untokenized
	case len(c.r) == 0:
		return EmptyResponse
	case c.duplicate:
		return Duplicate
	case c.extended:
		return Trained
	}
	var like []*ref // its group, or its retries, with itself
	extended, oks := false, 0
	for _, n := range nodes {
		if slices.Equal(n.p, c.p) && n.group == c.group {
			like = append(like, n)
		}
	}
	for _, n := range like {
		extended = extended || n.extended
		if n.ok {
			oks++
		}
	}
	if c.group != "" {
		switch {
		case extended:
			return Unchosen
		case c.ok:
			return Trained
		}
		return Unobserved
	}
	switch {
	case extended:
		return AbandonedRetry
	case !c.ok && oks > 0:
		return AbandonedRetry
	case !c.ok:
		return Unobserved
	case oks == 1:
		return Trained
	}
	return UnresolvedRetry
}

func refBoundaries(nodes []*ref) []viewBoundary {
	var out []viewBoundary
	for i, x := range nodes {
		out = append(out, refBoundary(x, nodes[:i]))
	}
	return out
}

func refBoundary(x *ref, earlier []*ref) viewBoundary {
	if len(earlier) == 0 {
		return viewBoundary{x.id, First, "", 0}
	}
	for _, e := range earlier {
		if slices.Equal(e.p, x.p) {
			return viewBoundary{x.id, SamePrompt, e.id, len(x.p)}
		}
	}
	if x.parent != nil {
		return viewBoundary{x.id, Extends, x.parent.id, len(x.parent.s())}
	}
	k, m := 0, earlier[0]
	for _, e := range earlier {
		if n := sharedBeginning(x.p, e.s()); n > k {
			k, m = n, e
		}
	}
	switch {
	case k == 0:
		return viewBoundary{x.id, Disjoint, "", 0}
	case k == len(x.p):
		return viewBoundary{x.id, Rewinds, m.id, k}
	case k >= len(m.p):
		return viewBoundary{x.id, DivergesInResponse, m.id, k}
	}
	return viewBoundary{x.id, DivergesInPrompt, m.id, k}
}

// refRun answers for a whole rollout.
func refRun(calls []Call, p Policy) view {
	refs := refCalls(calls)
	nodes := refLink(refs)
	v := view{Dispositions: map[string]Disposition{}, Boundaries: refBoundaries(nodes)}
	if p.Name == PolarCompat {
		v.Rows, v.Dispositions = refPolar(refs, p.EndOfTurn)
		return v
	}
	for _, c := range refs {
		v.Dispositions[c.id] = refDisposition(c, nodes)
	}
	for _, n := range nodes {
		if v.Dispositions[n.id] == Trained && n.parent != nil {
			n.parent.trainedChild = true
		}
	}
	done := map[string]bool{}
	for _, n := range nodes {
		if v.Dispositions[n.id] != Trained || p.Name != PerRequest && n.trainedChild {
			continue
		}
		row := viewRow{IDs: n.s(), Namer: n.id}
		for at := n; at != nil; at = at.parent {
			row.Spans = append(row.Spans, viewSpan{at.id, len(at.p), len(at.p) + len(at.r), !done[at.id]})
			done[at.id] = true
			if p.Name == PerRequest {
				break
			}
		}
		slices.Reverse(row.Spans)
		v.Rows = append(v.Rows, row)
	}
	return v
}

func refPolar(calls []*ref, endOfTurn *int32) ([]viewRow, map[string]Disposition) {
	var chains [][]*ref
	dispositions := map[string]Disposition{}
	for _, c := range calls {
		if !c.tokenized {
			dispositions[c.id] = Untokenized
			continue
		}
		best := -1
		for i, chain := range chains { // older chains first
			last := chain[len(chain)-1].p
			if len(last) > 0 && isPrefix(last, c.p) && (best < 0 || len(last) > len(chains[best][len(chains[best])-1].p)) {
				best = i
			}
		}
		if best < 0 {
			chains = append(chains, []*ref{c})
		} else {
			chains[best] = append(chains[best], c)
		}
	}
	var rows []viewRow
	for _, chain := range chains {
		if row := refPolarRow(chain, endOfTurn, dispositions); len(row.Spans) > 0 {
			rows = append(rows, row)
		}
	}
	return rows, dispositions
}

func refPolarRow(chain []*ref, endOfTurn *int32, dispositions map[string]Disposition) viewRow {
	first := chain[0]
	end := endOfTurn
	if end == nil && (first.finish == "stop" || first.finish == "tool_calls") && len(first.r) > 0 {
		end = &first.r[len(first.r)-1]
	}
	row := viewRow{Namer: first.id, IDs: slices.Clone(first.p)}
	sample := func(c *ref) {
		dispositions[c.id] = EmptyResponse
		if len(c.r) > 0 {
			dispositions[c.id] = Trained
			row.Spans = append(row.Spans, viewSpan{c.id, len(row.IDs), len(row.IDs) + len(c.r), true})
			row.IDs = append(row.IDs, c.r...)
		}
	}
	sample(first)
	dropped := false
	for i, c := range chain[1:] {
		prev := chain[i]
		tail := c.p[len(prev.p):]
		k := -1
		if end != nil {
			k = slices.Index(tail, *end)
		}
		if dropped || k < 0 {
			dropped = true
			dispositions[c.id] = DroppedByPolicy
			continue
		}
		if len(prev.r) > 0 && prev.r[len(prev.r)-1] == *end {
			row.IDs = append(row.IDs, tail[k+1:]...)
			row.Rewritten = row.Rewritten || !slices.Equal(tail[:k+1], prev.r)
		} else {
			row.IDs = append(row.IDs, tail[k:]...)
			row.Rewritten = row.Rewritten || !slices.Equal(tail[:k], prev.r)
		}
		sample(c)
	}
	return row
}
