// Package enginebody finds token ids, log-probabilities, token counts and finish
// reasons in the bodies that inference engines answer with, and prompt ids in those that they
// are asked with. Engines put them at different places; a body is searched at
// all of them, and every place that carries something is told.
//
// Parsing is pure and never fails: what is not understood carries nothing.
package enginebody

import (
	"cmp"
	"slices"

	"icecore/trace"
)

// NotTold stands in Run.IDs for a position whose id the body does not name.
const NotTold int32 = -1

// Run is what one place of a body tells of one sequence of tokens.
type Run struct {
	// Source is the place, as a path into the body: choices[0].token_ids.
	Source string
	// IDs are token ids, or NotTold; nil: the place carries none.
	IDs []int32
	// Logprobs are natural logarithms; nil: the place carries none. When IDs is
	// there too, both have the same length.
	Logprobs *trace.Logprobs
	// TextOnly: the API gives these for the visible text alone, so that their
	// number says nothing.
	TextOnly bool
}

// Len is the number of tokens that the run speaks of.
func (r *Run) Len() int {
	if r.IDs != nil || r.Logprobs == nil {
		return len(r.IDs)
	}
	return r.Logprobs.Len()
}

// Usage is how many tokens an engine says that it read and sampled; nil: it does
// not say. Response is nil also where the count is over several choices.
type Usage struct {
	Source           string
	Prompt, Response *int64
}

// Body is what was found in a body.
type Body struct {
	// Streamed: the body is a stream's events, of which Events were read.
	Streamed bool
	Events   int
	// Prompt and Response have one run per place, those with ids first.
	Prompt, Response []Run
	Usage            Usage
	Finish           Finish
}

// ParseResponse searches the body of an answer. Of several choices it takes the
// one with the given index (nil: 0); a body with one choice is taken for it.
func ParseResponse(raw []byte, choice *int64) *Body {
	events, streamed := eventsOf(raw, maxWraps)
	c := collector{choices: map[int64]*parts{}, finish: map[int64]Finish{}}
	for _, e := range events {
		c.event(e)
	}
	b := &Body{Streamed: streamed, Events: len(events)}
	p := c.pick(choice)
	b.Prompt = told(c.prompt, p.prompt)
	b.Response = told(p.response)
	b.Usage = c.usage
	b.Finish = c.pickFinish(choice)
	if len(c.choices) > 1 {
		b.Usage.Response = p.sampled
	}
	return b
}

// ParseRequest searches the body of a request for the ids of its prompt.
func ParseRequest(raw []byte) *Body {
	events, _ := eventsOf(raw, maxWraps)
	b := &Body{Events: len(events)}
	var found runs
	for _, e := range events {
		for _, name := range []string{"prompt_token_ids", "input_ids", "prompt", "token_ids"} {
			// A batch of one is written as a list in a list, too.
			v := e[name]
			if list, ok := v.([]any); ok && len(list) == 1 {
				if inner, ok := list[0].([]any); ok {
					v = inner
				}
			}
			if ids, ok := idList(v); ok && len(ids) > 0 {
				found.at(name).set(ids, nil)
			}
		}
	}
	b.Prompt = told(found)
	return b
}

// told gives the runs that carry something, those with ids first.
func told(all ...runs) []Run {
	var out []Run
	for _, rs := range all {
		for _, r := range rs {
			named := slices.ContainsFunc(r.IDs, func(id int32) bool { return id != NotTold })
			// A list of log-probs without ids says nothing of ids, not even that there
			// are none.
			if !named && (len(r.IDs) > 0 || r.Logprobs != nil) {
				r.IDs = nil
			}
			if r.IDs != nil || r.Len() > 0 {
				out = append(out, *r)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Run) int { return cmp.Compare(rank(&a), rank(&b)) })
	return out
}

func rank(r *Run) int {
	switch {
	case r.IDs == nil:
		return 2
	case slices.Contains(r.IDs, NotTold):
		return 1
	}
	return 0
}
