package enginebody

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"icecore/trace"
)

// runs are the places of a body found so far, in the order of finding.
type runs []*Run

// at is the run of a place, made when it is new.
func (rs *runs) at(source string) *Run {
	for _, r := range *rs {
		if r.Source == source {
			return r
		}
	}
	r := &Run{Source: source}
	*rs = append(*rs, r)
	return r
}

func (r *Run) set(ids []int32, logprobs *trace.Logprobs) { r.IDs, r.Logprobs = ids, logprobs }

// add puts a chunk behind what came before.
func (r *Run) add(ids []int32, logprobs *trace.Logprobs) {
	if ids != nil {
		if r.IDs == nil {
			r.IDs = []int32{}
		}
		r.IDs = append(r.IDs, ids...)
	}
	if logprobs == nil {
		return
	}
	if r.Logprobs == nil {
		r.Logprobs = &trace.Logprobs{}
	}
	for i := range logprobs.Len() {
		if v, known := logprobs.At(i); known {
			r.Logprobs.Append(v)
		} else {
			r.Logprobs.AppendUnknown()
		}
	}
}

// grow takes a chunk of a stream that may repeat all that came before (SGLang's
// does unless it is told otherwise). total counts the tokens sampled so far, nil
// where the engine does not say.
func (r *Run) grow(ids []int32, logprobs *trace.Logprobs, total *int64) {
	add := Run{IDs: ids, Logprobs: logprobs}
	n, have := int64(add.Len()), int64(r.Len())
	switch {
	case total != nil && n == *total, total == nil && r.IDs != nil && len(ids) >= len(r.IDs) && slices.Equal(r.IDs, ids[:len(r.IDs)]):
		r.set(ids, logprobs)
	case total != nil && have+n > *total && *total >= have:
		// The chunk of an abort may repeat the last token.
		keep := int(*total - have)
		if ids != nil {
			ids = ids[:keep]
		}
		if logprobs != nil {
			logprobs = first(logprobs, keep)
		}
		r.add(ids, logprobs)
	default:
		r.add(ids, logprobs)
	}
}

func first(l *trace.Logprobs, n int) *trace.Logprobs {
	out := &trace.Logprobs{Values: l.Values[:n]}
	if l.Known != nil {
		out.Known = l.Known[:n]
	}
	return out
}

// idOf reads one token id.
func idOf(v any) (int32, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return NotTold, false
	}
	id, err := strconv.ParseInt(string(n), 10, 32)
	if err != nil || id < 0 {
		return NotTold, false
	}
	return int32(id), true
}

// idList reads a list of token ids, all of which must be some.
func idList(v any) ([]int32, bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	ids := make([]int32, len(list))
	for i, e := range list {
		if ids[i], ok = idOf(e); !ok {
			return nil, false
		}
	}
	return ids, true
}

// idInText reads "token_id:123", which vLLM writes in place of a token's text
// when it is asked to.
func idInText(v any) (int32, bool) {
	text, _ := v.(string)
	digits, ok := strings.CutPrefix(text, "token_id:")
	if !ok {
		return NotTold, false
	}
	return idOf(json.Number(digits))
}

// addLogprob appends a log-probability: a number, the name of one that JSON has
// no number for, or null. Anything else is not known either.
func addLogprob(l *trace.Logprobs, v any) {
	var text string
	switch v := v.(type) {
	case json.Number:
		text = string(v)
	case string:
		text = v
	}
	f, err := strconv.ParseFloat(text, 32)
	if err != nil && !math.IsInf(f, 0) {
		l.AppendUnknown()
		return
	}
	l.Append(float32(f))
}

func count(v any) *int64 {
	n, ok := v.(json.Number)
	if !ok {
		return nil
	}
	i, err := n.Int64()
	if err != nil || i < 0 {
		return nil
	}
	return &i
}
