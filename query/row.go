package query

import (
	"encoding/json"
	"strconv"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/store"
	"icecore/trace"
	"icecore/wire"
)

type merged = pass.Merged

// row is one trajectory with everything that is delivered of it. Where masks
// and log-probs of a delivered row come from is this file.
type row struct {
	id       string
	m        *merged
	index    int
	tokens   trace.Tokens
	length   int
	spans    []merge.Span
	logprobs map[int64]*trace.Logprobs
}

func newRow(m *merged, rolloutID string, p merge.Policy, index int, logprobs map[int64]*trace.Logprobs) *row {
	t := &m.Result.Trajectories[index]
	return &row{id: merge.TrajectoryID(rolloutID, p, m.Calls.Calls[t.Namer].TraceID), m: m, index: index,
		tokens: m.Tokens(index), length: t.Length, spans: m.Result.Spans(index), logprobs: logprobs}
}

func (r *row) trajectory() *merge.Trajectory { return &r.m.Result.Trajectories[r.index] }

func (r *row) call(span int) *store.Call { return &r.m.Calls.Calls[r.spans[span].Call] }

// spanLogprobs are the log-probs of a span's positions; nil: none are known.
func (r *row) spanLogprobs(span int) *trace.Logprobs { return r.logprobs[r.call(span).Key] }

// promptLength is the first trained position.
func (r *row) promptLength() int {
	for _, s := range r.spans {
		if s.Trainable {
			return s.Start
		}
	}
	return r.length
}

// logprobsComplete says that every trained token has a log-probability.
func (r *row) logprobsComplete() bool {
	for i, s := range r.spans {
		if !s.Trainable {
			continue
		}
		l := r.spanLogprobs(i)
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

// versions is the range of policy versions over the row's spans.
func (r *row) versions() (lo, hi *int64) {
	var v store.VersionRange
	for i := range r.spans {
		v.Widen(r.call(i))
	}
	return v.Min, v.Max
}

// appendTokens writes the fields of a trajectory as JSON, without braces. how,
// when set, adds to a span how its call was sampled.
func (r *row) appendTokens(out []byte, how func([]byte, *store.Call) []byte) []byte {
	out = append(append(out, `"trajectory_id":`...), quoted(r.id)...)
	out = append(out, `,"token_ids":[`...)
	comma := false
	for _, piece := range r.tokens {
		for _, id := range piece {
			if comma {
				out = append(out, ',')
			}
			comma = true
			out = strconv.AppendInt(out, int64(id), 10)
		}
	}
	out = append(out, `],"loss_mask":[`...)
	at := 0
	for _, s := range r.spans {
		bit := byte('0')
		if s.Trainable {
			bit = '1'
		}
		out = appendRun(out, '0', at, s.Start)
		out = appendRun(out, bit, s.Start, s.End)
		at = s.End
	}
	out = appendRun(out, '0', at, r.length)
	out = append(out, `],"logprobs":[`...)
	at = 0
	for i, s := range r.spans {
		out = appendNulls(out, at, s.Start)
		l := r.spanLogprobs(i)
		if l == nil {
			out = appendNulls(out, s.Start, s.End)
		} else {
			for j := range l.Len() {
				out = separate(out, s.Start+j)
				v, known := l.At(j)
				out = wire.AppendLogprob(out, v, known)
			}
		}
		at = s.End
	}
	out = appendNulls(out, at, r.length)
	out = append(out, `],"spans":[`...)
	for i, s := range r.spans {
		out = separate(out, i)
		out = append(append(out, `{"trace_id":`...), quoted(r.call(i).TraceID)...)
		out = strconv.AppendInt(append(out, `,"start":`...), int64(s.Start), 10)
		out = strconv.AppendInt(append(out, `,"end":`...), int64(s.End), 10)
		out = strconv.AppendBool(append(out, `,"trainable":`...), s.Trainable)
		if how != nil {
			out = how(out, r.call(i))
		}
		out = append(out, '}')
	}
	out = append(out, `],"history_rewritten":`...)
	return strconv.AppendBool(out, r.trajectory().Rewritten)
}

func separate(out []byte, at int) []byte {
	if at > 0 {
		return append(out, ',')
	}
	return out
}

func appendRun(out []byte, bit byte, from, to int) []byte {
	for i := from; i < to; i++ {
		out = append(separate(out, i), bit)
	}
	return out
}

func appendNulls(out []byte, from, to int) []byte {
	for i := from; i < to; i++ {
		out = append(separate(out, i), "null"...)
	}
	return out
}

func quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always encodes
	}
	return b
}

// truncated says that the row's last call stopped at a length limit.
func (r *row) truncated() bool {
	return r.m.Calls.Calls[r.trajectory().Last].FinishReason == "length"
}
