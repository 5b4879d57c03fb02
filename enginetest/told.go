package enginetest

import (
	"math"
	"slices"
	"strconv"
)

// What an answer tells of a range of ids is what was sampled, as far as the
// script's faults leave it.

// toldIDs gives the ids of [from, to) that are told; nil: none.
func (c *call) toldIDs(a *answer, from, to int) []int32 {
	ids := a.ids[from:to]
	switch c.script.IDs.Answer {
	case "none", "in_logprobs":
		return nil
	case "tail":
		if first := len(a.ids) - c.script.IDs.Tail; from < first {
			ids = a.ids[min(first, to):to]
		}
	case "first_missing":
		first := 1
		if sizes := c.script.Chunks.Sizes; len(sizes) > 0 {
			first = sizes[0]
		}
		if from < first {
			ids = a.ids[min(first, to):to]
		}
	}
	return ids
}

// toldPrompt gives the prompt's ids as they are told; nil: they are not.
func (c *call) toldPrompt() []int32 {
	switch c.script.IDs.Prompt {
	case "absent":
		return nil
	case "wrong":
		ids := slices.Clone(c.prompt)
		ids[len(ids)/2] ^= 1
		return ids
	case "short":
		return c.prompt[:len(c.prompt)-1]
	}
	return c.prompt
}

// toldLogprob is one position as it is told.
type toldLogprob struct {
	id    int32
	value float64
	null  bool
}

// toldLogprobs gives the log-probs of [from, to).
func (c *call) toldLogprobs(a *answer, from, to int) []toldLogprob {
	l := &c.script.Logprobs
	if l.Fault == "missing" {
		return nil
	}
	n := len(a.ids)
	if l.Fault == "short" && to == n {
		to = max(from, n-1)
	}
	out := make([]toldLogprob, 0, to-from+1)
	for i := from; i < to; i++ {
		k := i
		if l.Fault == "shifted" {
			k = min(i+1, n-1)
		}
		out = append(out, c.faulty(toldLogprob{id: a.ids[k], value: float64(a.logprobs[k])}, i))
	}
	if l.Fault == "long" && to == n && n > 0 {
		out = append(out, toldLogprob{id: a.ids[n-1], value: float64(a.logprobs[n-1])})
	}
	return out
}

func (c *call) faulty(t toldLogprob, i int) toldLogprob {
	l := &c.script.Logprobs
	if !slices.Contains(l.At, i) && (len(l.At) > 0 || i > 0) {
		return t
	}
	switch l.Fault {
	case "nan":
		t.value = math.NaN()
	case "-inf":
		t.value = math.Inf(-1)
	case "floor":
		t.value = -9999
	case "null":
		t.null = true
	}
	return t
}

func (t toldLogprob) append(dst []byte) []byte {
	if t.null {
		return append(dst, "null"...)
	}
	return appendFloat(dst, t.value)
}

// appendContent writes chat's logprobs: token is the id's text, or token_id:N.
func appendContent(dst []byte, told []toldLogprob, byID bool, top int) []byte {
	dst = append(dst, `{"content":[`...)
	for i, t := range told {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = t.entry(dst, byID)
		dst = append(dst, `,"top_logprobs":[`...)
		for k := range top {
			if k > 0 {
				dst = append(dst, ',')
			}
			alternative := t
			if k > 0 { // others, less likely the later
				alternative = toldLogprob{id: (t.id + int32(k)) % 256, value: t.value - float64(k)}
			}
			dst = append(alternative.entry(dst, byID), '}')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, "]}"...)
}

// entry writes the position without its closing brace.
func (t toldLogprob) entry(dst []byte, byID bool) []byte {
	dst = append(dst, `{"token":`...)
	dst = appendToken(dst, t.id, byID)
	dst = append(dst, `,"logprob":`...)
	dst = t.append(dst)
	dst = append(dst, `,"bytes":[`...)
	for i, b := range []byte(Token(t.id)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(b), 10)
	}
	return append(dst, ']')
}

func appendToken(dst []byte, id int32, byID bool) []byte {
	if byID {
		dst = append(dst, `"token_id:`...)
		return append(strconv.AppendInt(dst, int64(id), 10), '"')
	}
	return appendString(dst, lossy([]byte(Token(id))))
}

// counts gives prompt and completion tokens as usage tells them.
func (c *call) counts() (prompt, completion int) {
	for _, a := range c.answers {
		completion += len(a.drawn())
	}
	if c.script.Chunks.Usage == "wrong" {
		completion += 7
	}
	return len(c.prompt), completion
}

func (c *call) appendUsage(dst []byte) []byte {
	prompt, completion := c.counts()
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(prompt), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(prompt+completion), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(completion), 10)
	return append(dst, `,"prompt_tokens_details":null}`...)
}
