package trajectory

import (
	"encoding/json"
	"strconv"

	"icecore/store"
	"icecore/wire"
)

// AppendJSON writes the fields of a trajectory as JSON, without braces. how, when
// set, adds to a span how its call was sampled.
func (r *Row) AppendJSON(out []byte, how func([]byte, *store.Call) []byte) []byte {
	out = append(append(out, `"trajectory_id":`...), Quoted(r.id)...)
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
		l := r.Logprobs(i)
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
		out = append(append(out, `{"trace_id":`...), Quoted(r.Call(i).TraceID)...)
		out = strconv.AppendInt(append(out, `,"start":`...), int64(s.Start), 10)
		out = strconv.AppendInt(append(out, `,"end":`...), int64(s.End), 10)
		out = strconv.AppendBool(append(out, `,"trainable":`...), s.Trainable)
		if how != nil {
			out = how(out, r.Call(i))
		}
		out = append(out, '}')
	}
	out = append(out, `],"history_rewritten":`...)
	return strconv.AppendBool(out, r.rewritten)
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

// Quoted is a text as JSON.
func Quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always encodes
	}
	return b
}
