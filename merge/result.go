package merge

import (
	"slices"

	"icecore/trace"
)

// None stands for "no such call" and "no such row".
const None = -1

// Disposition says what a policy did with a call.
type Disposition string

// The dispositions.
const (
	Trained         Disposition = "trained"
	Duplicate       Disposition = "duplicate"
	AbandonedRetry  Disposition = "abandoned_retry"
	UnresolvedRetry Disposition = "unresolved_retry"
	Unchosen        Disposition = "unchosen"
	Unobserved      Disposition = "unobserved"
	EmptyResponse   Disposition = "empty_response"
	Untokenized     Disposition = "untokenized"
	DroppedByPolicy Disposition = "dropped_by_policy"
)

// Dispositions lists them.
var Dispositions = []Disposition{
	Trained, Duplicate, AbandonedRetry, UnresolvedRetry, Unchosen,
	Unobserved, EmptyResponse, Untokenized, DroppedByPolicy,
}

// Result is what a policy makes of a rollout. Calls are named by their index of
// Add, rows by their place in Trajectories.
type Result struct {
	Policy Policy
	// Nodes has one entry per call, by index of Add.
	Nodes []Node
	// Order lists the calls by (seq, trace_id).
	Order        []int
	Trajectories []Trajectory
	// Boundaries has one entry per node of strict_tree, in order. They are the
	// same under every policy.
	Boundaries []Boundary
}

// Node is what became of one call.
type Node struct {
	Disposition Disposition
	// Standing is the call that stands for this one: itself, or for a duplicate
	// the first of its like; None for calls that have no part in the policy.
	Standing int
	// Parent is the call before it in its row: for strict_tree its parent, which
	// it has even when it is not trained; for polar_compat the kept call before
	// it in its chain; None for the first, and always for per_request.
	Parent int
	// Row is the trajectory in which its span is trainable, or None.
	Row int
	// Cut is where in its own prompt and response that begins which it adds to
	// the row after Parent.
	Cut int
	// SpanStart is the position of its span in a row; the span is ResponseLen
	// long. It means something for calls with a Row only.
	SpanStart int
	// PromptLen and ResponseLen count ids, as far as they are known.
	PromptLen, ResponseLen int
}

// Trajectory is one row of tokens.
type Trajectory struct {
	// Namer is the call whose trace id names the row: the leaf; for polar_compat
	// the chain's first call.
	Namer int
	// Last is the row's last call, from which Node.Parent leads back.
	Last int
	// Length counts the row's ids.
	Length int
	// Rewritten: the row holds a history that no call had (polar_compat only).
	Rewritten bool
	// TrainedTokens counts the ids in its trainable spans.
	TrainedTokens int
}

// Piece is the range [From, To) of the prompt and response of Call.
type Piece struct{ Call, From, To int }

// Span is the range [Start, End) of a row that Call sampled.
type Span struct {
	Call, Start, End int
	Trainable        bool
}

// Pieces gives the ranges whose concatenation is the row's tokens.
func (r *Result) Pieces(row int) []Piece {
	last := r.Trajectories[row].Last
	if r.Policy.Name != PolarCompat {
		// Every other row is, as it stands, what its last call received and sampled.
		return []Piece{{last, 0, r.Trajectories[row].Length}}
	}
	var pieces []Piece
	for c := last; c != None; c = r.Nodes[c].Parent {
		n := &r.Nodes[c]
		pieces = append(pieces, Piece{c, n.Cut, n.PromptLen + n.ResponseLen})
	}
	slices.Reverse(pieces)
	return pieces
}

// Spans gives the row's spans by position. They are made anew on each call: a
// chain that forks everywhere has quadratically many over all its rows.
func (r *Result) Spans(row int) []Span {
	var spans []Span
	for c := r.Trajectories[row].Last; c != None; c = r.Nodes[c].Parent {
		n := &r.Nodes[c]
		if n.Row != None {
			spans = append(spans, Span{c, n.SpanStart, n.SpanStart + n.ResponseLen, n.Row == row})
		}
	}
	slices.Reverse(spans)
	return spans
}

// Tokens gives the row's ids, sharing those of the calls. The result must be of
// this tree.
func (t *Tree) Tokens(r *Result, row int) trace.Tokens {
	var ids trace.Tokens
	for _, p := range r.Pieces(row) {
		e := &t.calls[p.Call]
		part := e.sequence()
		if p.From > 0 || p.To < e.promptLen+e.responseLen {
			part = part.Slice(p.From, p.To)
		}
		if ids == nil {
			ids = part
			continue
		}
		ids = append(ids, part...)
	}
	return ids
}
