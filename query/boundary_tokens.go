package query

import (
	"math"
	"strconv"

	"icecore/query/enginebody"
	"icecore/trace"
	"icecore/wire"
)

// logprob is one log-probability as JSON writes it.
type logprob struct {
	value float32
	known bool
}

func logprobAt(l *trace.Logprobs, i int) logprob {
	v, known := l.At(i)
	return logprob{v, known}
}

func (l logprob) same(o logprob) bool {
	if l.known != o.known || !l.known {
		return l.known == o.known
	}
	return math.Float32bits(l.value) == math.Float32bits(o.value) || l.value != l.value && o.value != o.value
}

// MarshalJSON writes null where it is not known, and a string where JSON has no
// number.
func (l logprob) MarshalJSON() ([]byte, error) { return wire.AppendLogprob(nil, l.value, l.known), nil }

// between gives entries [from, to) of log-probs, as far as they are there.
func between(l *trace.Logprobs, from, to int) []logprob {
	if l == nil {
		return nil
	}
	out := []logprob{}
	for i := from; i < min(to, l.Len()); i++ {
		out = append(out, logprobAt(l, i))
	}
	return out
}

// tokenID is a token id as JSON writes it: null where a body does not tell it.
type tokenID int32

// MarshalJSON writes the id or null.
func (id tokenID) MarshalJSON() ([]byte, error) {
	if int32(id) == enginebody.NotTold {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(id), 10), nil
}

func idsBetween(ids []int32, from, to int) []tokenID {
	if ids == nil {
		return nil
	}
	out := []tokenID{}
	for _, id := range ids[min(from, len(ids)):min(to, len(ids))] {
		out = append(out, tokenID(id))
	}
	return out
}
