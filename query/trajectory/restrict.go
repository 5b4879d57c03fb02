package trajectory

import (
	"slices"

	"icecore/merge"
	"icecore/trace"
)

// Restrict gives the row as it is delivered to a learner of some kinds of calls
// only: spans of other kinds become untrainable (their tokens stay, as context),
// and the row ends with its last trainable span. nil: nothing is left to train.
//
// What remains is a beginning of the row, so every log-prob in it is still
// conditional on exactly the tokens before it.
func (r *Row) Restrict(kinds []trace.Kind) *Row {
	out := *r
	out.spans, out.trained = nil, 0
	trainable := 0 // spans up to the last trainable one
	for i, s := range r.spans {
		s.Trainable = s.Trainable && slices.Contains(kinds, r.Call(i).Kind)
		out.spans = append(out.spans, s)
		if s.Trainable {
			trainable = len(out.spans)
			out.trained += s.End - s.Start
		}
	}
	if trainable == 0 {
		return nil
	}
	out.spans = out.spans[:trainable]
	end := out.spans[trainable-1]
	out.last = end.Call
	if end.End < r.length {
		out.length, out.tokens = end.End, r.tokens.Slice(0, end.End)
		// The part with the other history may be the one that was cut off.
		out.rewritten = r.rewritten && slices.ContainsFunc(out.spans, func(s merge.Span) bool { return !out.faithful(s) })
	}
	return &out
}

// faithful says that what stands before a span is what its call received.
func (r *Row) faithful(s merge.Span) bool {
	return equal(r.tokens.Slice(0, s.Start), r.m.Calls.Calls[s.Call].Prompt)
}

func equal(a, b trace.Tokens) bool {
	return a.Len() == b.Len() && slices.Equal(a.Flat(), b.Flat())
}
