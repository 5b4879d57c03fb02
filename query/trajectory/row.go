package trajectory

import (
	"icecore/merge"
	"icecore/merge/pass"
	"icecore/store"
	"icecore/trace"
)

// Row is one trajectory with everything that is delivered of it. Where masks and
// log-probs of a delivered row come from is this file.
type Row struct {
	id       string
	m        *pass.Merged
	index    int
	tokens   trace.Tokens
	length   int
	spans    []merge.Span
	logprobs map[int64]*trace.Logprobs

	trained   int
	last      int // the call that the row ends with
	rewritten bool
}

// New takes row index of a merge. logprobs are those of the calls' responses, by
// trace key; a call that has none is not in it, and a row that is only looked at
// may do without any.
func New(m *pass.Merged, rolloutID string, index int, logprobs map[int64]*trace.Logprobs) *Row {
	t := &m.Result.Trajectories[index]
	return &Row{id: merge.TrajectoryID(rolloutID, m.Result.Policy, m.Calls.Calls[t.Namer].TraceID), m: m, index: index,
		tokens: m.Tokens(index), length: t.Length, spans: m.Result.Spans(index), logprobs: logprobs,
		trained: t.TrainedTokens, last: t.Last, rewritten: t.Rewritten}
}

// ID is the trajectory_id. A row keeps it when it is restricted.
func (r *Row) ID() string { return r.id }

// Merged is the merge that the row was made of.
func (r *Row) Merged() *pass.Merged { return r.m }

// Index is the row's place among those of the merge.
func (r *Row) Index() int { return r.index }

// Tokens are the row's ids. They share memory with the calls: read only.
func (r *Row) Tokens() trace.Tokens { return r.tokens }

// Length counts the row's ids.
func (r *Row) Length() int { return r.length }

// Spans are the row's spans by position, Span.Call an index into the merge's
// calls: read only.
func (r *Row) Spans() []merge.Span { return r.spans }

// TrainedTokens counts the ids in trainable spans.
func (r *Row) TrainedTokens() int { return r.trained }

// Rewritten says that the row holds a history that no call had (polar_compat
// only).
func (r *Row) Rewritten() bool { return r.rewritten }

// Call is the trace that sampled a span.
func (r *Row) Call(span int) *store.Call { return &r.m.Calls.Calls[r.spans[span].Call] }

// Logprobs are the log-probs of a span's positions; nil: none are known.
func (r *Row) Logprobs(span int) *trace.Logprobs { return r.logprobs[r.Call(span).Key] }

// PromptLength is the first trained position. 0: the row begins with a trained
// token, which has nothing before it.
func (r *Row) PromptLength() int {
	for _, s := range r.spans {
		if s.Trainable {
			return s.Start
		}
	}
	return r.length
}

// LogprobsComplete says that every trained token has a log-probability.
func (r *Row) LogprobsComplete() bool {
	for i, s := range r.spans {
		if !s.Trainable {
			continue
		}
		l := r.Logprobs(i)
		if l == nil {
			return false
		}
		for j := range l.Len() {
			if _, known := l.At(j); !known {
				return false
			}
		}
	}
	return true
}

// Versions is the range of policy versions over the row's spans, not only the
// trainable ones; nil: none is known.
func (r *Row) Versions() (lo, hi *int64) {
	var v store.VersionRange
	for i := range r.spans {
		v.Widen(r.Call(i))
	}
	return v.Min, v.Max
}

// Undated says that some trained tokens do not say what policy version sampled
// them.
func (r *Row) Undated() bool {
	for i, s := range r.spans {
		var v store.VersionRange
		if v.Widen(r.Call(i)); s.Trainable && v.Min == nil {
			return true
		}
	}
	return false
}

// Truncated says that the row's last call stopped at a length limit.
func (r *Row) Truncated() bool { return r.m.Calls.Calls[r.last].FinishReason == "length" }
