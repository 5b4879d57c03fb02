package merge

// retries is what a node without a choice group must know of its like: the nodes
// with an equal prompt and no group either.
type retries struct {
	extended bool
	ok       int
}

// dispose judges every call by strict_tree.
func (f *forest) dispose(r *Result) {
	byPrompt := make([]retries, len(f.tree.radix.vertices))
	chosen := map[group]bool{}
	for _, i := range f.nodes {
		at := f.tree.calls[i].promptEnd
		if name := f.choice[i].group; name != "" {
			chosen[group{at, name}] = chosen[group{at, name}] || f.extended[i]
			continue
		}
		byPrompt[at].extended = byPrompt[at].extended || f.extended[i]
		if f.ok[i] {
			byPrompt[at].ok++
		}
	}
	for i := range r.Nodes {
		n, e, at := &r.Nodes[i], &f.tree.calls[i], f.standing[i]
		n.Standing = at
		switch {
		case e.end == nowhere:
			n.Disposition = Untokenized
		case at == None:
			n.Disposition = EmptyResponse
		case at != i:
			n.Disposition = Duplicate
		case f.extended[i]:
			n.Disposition = Trained
		case f.choice[i].group != "":
			n.Disposition = judgeChoice(chosen[group{e.promptEnd, f.choice[i].group}], f.ok[i])
		default:
			n.Disposition = judgeRetry(byPrompt[e.promptEnd], f.ok[i])
		}
	}
}

// judgeChoice is for a choice that nothing extends; chosen says whether another
// of its group was extended.
func judgeChoice(chosen, ok bool) Disposition {
	switch {
	case chosen:
		return Unchosen
	case ok:
		return Trained
	default:
		return Unobserved
	}
}

// judgeRetry is for a node outside any group that nothing extends.
func judgeRetry(like retries, ok bool) Disposition {
	switch {
	case like.extended:
		return AbandonedRetry
	case !ok && like.ok > 0:
		return AbandonedRetry
	case !ok:
		return Unobserved
	case like.ok == 1:
		return Trained
	default:
		return UnresolvedRetry
	}
}

// rows makes one trajectory per leaf. A node's span is trainable in the first
// row that holds it, which is the first whose way back comes by it.
func (f *forest) rows(r *Result) {
	inner := make([]bool, len(r.Nodes))
	for _, i := range f.nodes {
		n := &r.Nodes[i]
		if n.Parent = f.parent[i]; n.Parent == None {
			continue
		}
		parent := &r.Nodes[n.Parent]
		n.Cut = parent.PromptLen + parent.ResponseLen
		if n.Disposition == Trained {
			inner[n.Parent] = true
		}
	}
	for _, i := range f.nodes {
		if r.Nodes[i].Disposition != Trained || inner[i] {
			continue
		}
		row := r.open(i)
		for at := i; at != None && r.Nodes[at].Row == None; at = r.Nodes[at].Parent {
			r.train(at, row)
		}
	}
}

// singles makes one trajectory per trained node.
func (f *forest) singles(r *Result) {
	for _, i := range f.nodes {
		if r.Nodes[i].Disposition == Trained {
			r.train(i, r.open(i))
		}
	}
}

// open starts the row that is call i's own prompt and response.
func (r *Result) open(i int) (row int) {
	r.Trajectories = append(r.Trajectories, Trajectory{
		Namer: i, Last: i, Length: r.Nodes[i].PromptLen + r.Nodes[i].ResponseLen,
	})
	return len(r.Trajectories) - 1
}

// train gives call i its one trainable span.
func (r *Result) train(i, row int) {
	n := &r.Nodes[i]
	n.Row, n.SpanStart = row, n.PromptLen
	r.Trajectories[row].TrainedTokens += n.ResponseLen
}
