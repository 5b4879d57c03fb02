package merge

// BoundaryKind says how a call's prompt relates to the sequences before it.
type BoundaryKind string

// The kinds, in the order in which they are tried.
const (
	First              BoundaryKind = "first"
	SamePrompt         BoundaryKind = "same_prompt"
	Extends            BoundaryKind = "extends"
	Disjoint           BoundaryKind = "disjoint"
	Rewinds            BoundaryKind = "rewinds"
	DivergesInResponse BoundaryKind = "diverges_in_response"
	DivergesInPrompt   BoundaryKind = "diverges_in_prompt"
)

// BoundaryKinds lists them.
var BoundaryKinds = []BoundaryKind{
	First, SamePrompt, Extends, Disjoint, Rewinds, DivergesInResponse, DivergesInPrompt,
}

// Boundary is how a node of strict_tree meets the rollout's earlier nodes.
// Counted per harness, they say where a harness breaks its own history.
type Boundary struct {
	Call int
	Kind BoundaryKind
	// Nearest is the call that it was measured against, or None.
	Nearest int
	// Shared counts the ids of the prompt that it has in common with Nearest.
	Shared int
}

// boundaries walks the nodes in order and marks the way of each from its end to
// the root, where nobody went before. What a prompt shares with earlier
// sequences ends at the lowest mark on its own way. Each vertex is marked once
// and passed unmarked once, so all walks together cost one pass over the tree.
func (f *forest) boundaries() []Boundary {
	vertices := f.tree.radix.vertices
	visitor := make([]int, len(vertices)) // first node whose sequence passes or ends here
	asker := make([]int, len(vertices))   // first node whose prompt ends here
	for v := range vertices {
		visitor[v], asker[v] = None, None
	}
	out := make([]Boundary, 0, len(f.nodes))
	for _, i := range f.nodes {
		e := &f.tree.calls[i]
		out = append(out, f.boundary(i, visitor, asker))
		if asker[e.promptEnd] == None {
			asker[e.promptEnd] = i
		}
		for v := e.end; v != nowhere && visitor[v] == None; v = vertices[v].parent {
			visitor[v] = i
		}
	}
	return out
}

func (f *forest) boundary(i int, visitor, asker []int) Boundary {
	e := &f.tree.calls[i]
	if visitor[root] == None {
		return Boundary{i, First, None, 0}
	}
	if other := asker[e.promptEnd]; other != None {
		return Boundary{i, SamePrompt, other, e.promptLen}
	}
	if parent := f.parent[i]; parent != None {
		p := &f.tree.calls[parent]
		return Boundary{i, Extends, parent, p.promptLen + p.responseLen}
	}
	v := e.promptEnd
	for visitor[v] == None {
		v = f.tree.radix.vertices[v].parent
	}
	shared, other := f.tree.radix.vertices[v].depth, visitor[v]
	switch {
	case shared == 0:
		return Boundary{i, Disjoint, None, 0}
	case shared == e.promptLen:
		return Boundary{i, Rewinds, other, shared}
	case shared >= f.tree.calls[other].promptLen:
		return Boundary{i, DivergesInResponse, other, shared}
	default:
		return Boundary{i, DivergesInPrompt, other, shared}
	}
}
