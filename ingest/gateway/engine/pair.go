package engine

import (
	"math"
	"strconv"

	"icecore/trace"
)

// idsOf reads the ids that a list of log-probs names; nil: not every position does.
func idsOf(logs []position) []int32 {
	ids := make([]int32, len(logs))
	for i, p := range logs {
		if p.id < 0 {
			return nil
		}
		ids[i] = p.id
	}
	return ids
}

// floor is what vLLM says of a position that has no log-prob, or one below.
const floor = -9999

// values are those that were not taken, by position. There may be one for each token.
type values map[string]any

const maxValues = 256

func (v *values) add(at int, value float64) {
	if *v == nil {
		*v = values{}
	}
	switch {
	case len(*v) >= maxValues:
		more, _ := (*v)["more"].(int)
		(*v)["more"] = more + 1
	case math.IsNaN(value):
		(*v)[strconv.Itoa(at)] = "NaN"
	case math.IsInf(value, 1):
		(*v)[strconv.Itoa(at)] = "Infinity"
	default:
		(*v)[strconv.Itoa(at)] = value
	}
}

// pair sets the log-probs. They are taken only as a whole: as many as there are ids,
// and none that names another id.
func (out *Sampled) pair(logs []position) {
	if out.IDs == nil {
		return
	}
	if logs == nil {
		if len(out.IDs) > 0 {
			out.flag(flagLogsMissing)
		}
		return
	}
	if len(logs) != len(out.IDs) {
		out.flag(flagLogsDropped)
		return
	}
	for i, p := range logs {
		if p.id >= 0 && p.id != out.IDs[i] {
			out.flag(flagLogsDropped)
			return
		}
	}
	l := &trace.Logprobs{Values: make([]float32, 0, len(logs))}
	var floored, strange values
	for i, p := range logs {
		switch value := float32(p.value); { // as it is kept, and compared with the body again
		case !p.known:
			l.AppendUnknown()
		case value != value || value > trace.Rounding: // no log-probability
			l.AppendUnknown()
			strange.add(i, p.value)
		case value <= floor && !math.IsInf(p.value, -1): // that is a value
			l.AppendUnknown()
			floored.add(i, p.value)
		default:
			l.Append(value)
		}
	}
	out.Logprobs = l
	if floored != nil {
		out.keep("logprobs_floored", map[string]any(floored))
	}
	if strange != nil {
		out.flag(flagLogsOdd)
		out.keep("logprobs_odd", map[string]any(strange))
	}
	if uniform(l) {
		out.flag(flagUniform)
	}
}

// A tail of uniformTail log-probs that are all alike and this low is the mark of
// logits that were NaN and were made uniform: -ln(vocabulary).
const (
	uniformTail = 16
	uniformLow  = -6
)

func uniform(l *trace.Logprobs) bool {
	n := l.Len()
	if n < uniformTail {
		return false
	}
	last, known := l.At(n - 1)
	if !known || !(last < uniformLow) {
		return false
	}
	for i := n - uniformTail; i < n; i++ {
		if v, known := l.At(i); !known || v-last > 1e-3 || last-v > 1e-3 {
			return false
		}
	}
	return true
}
