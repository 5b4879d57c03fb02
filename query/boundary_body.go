package query

import (
	"fmt"

	"icecore/query/enginebody"
	"icecore/trace"
)

// compareBody compares every place of the bodies with the trace.
func (i *inspection) compareBody() {
	s := &i.answer.Stations.Body
	if i.trace == nil || !s.Present {
		return
	}
	t := &i.answer.Stations.Trace
	var ids, logprobs bodyPick
	var anyIDs, anyLogprobs bool
	for n := range i.compared {
		r := &i.compared[n]
		if r.sequence == "prompt" {
			i.bodyIDs("body.prompt_ids", r, t.prompt)
			s.promptFrom(r)
			continue
		}
		if r.IDs != nil {
			ids.offer(r, i.bodyIDs("body.ids", r, t.response))
			anyIDs = true
		}
		if r.Logprobs != nil {
			logprobs.offer(r, i.bodyLogprobs(r))
			anyLogprobs = anyLogprobs || !r.TextOnly
		}
	}
	if anyIDs && !anyLogprobs && t.logprobs != nil {
		i.note(check{Name: "body.logprobs", Kind: missingInBody,
			Detail: "the trace has log-probs, and the body, which carries the ids, carries none: they came from elsewhere"})
	}
	if r := ids.run; r != nil {
		s.Source = r.source
		s.response = r.IDs
	}
	if r := logprobs.run; r != nil {
		s.LogprobsSource = r.source
		s.logprobs = r.Logprobs
	}
	s.hold(s.prompt, s.response, s.logprobs)
}

// bodyPick chooses the place whose tokens are shown: the first that differs,
// else the first.
type bodyPick struct {
	run *placedRun
	bad bool
}

func (p *bodyPick) offer(r *placedRun, ok bool) {
	if p.run == nil || !ok && !p.bad {
		p.run, p.bad = r, !ok
	}
}

func (s *bodyStation) promptFrom(r *placedRun) {
	if s.prompt == nil {
		s.prompt = r.IDs
	}
}

func (i *inspection) bodyIDs(name string, r *placedRun, got []int32) (ok bool) {
	if got == nil {
		i.note(check{Name: name, Kind: missingInTrace, Sequence: r.sequence,
			Detail: fmt.Sprintf("%s carries %d ids of the %s, the trace none", r.source, len(r.IDs), r.sequence)})
		return false
	}
	c := idPair(r.sequence, "the body", "the trace", r.IDs, got).compare(name, i.around)
	c.Detail = r.source + ": " + c.Detail
	if !c.OK && r.sequence == "response" && len(r.IDs) < len(got) {
		if i.trace.IDsIncomplete {
			c.Detail += "; the trace is marked ids_incomplete"
		} else if n := len(r.IDs); n > 0 && idPair("", "", "", r.IDs, got[len(got)-n:]).equal() {
			c.Detail += fmt.Sprintf("; the body has only the last %d", n)
		}
	}
	i.note(c)
	return c.OK
}

func (p *pair) equal() bool {
	for i := range min(p.wantLen, p.gotLen) {
		if !p.same(i, i) {
			return false
		}
	}
	return p.wantLen == p.gotLen
}

func (i *inspection) bodyLogprobs(r *placedRun) (ok bool) {
	t := &i.answer.Stations.Trace
	var c check
	switch {
	case t.logprobs == nil && r.Logprobs.Len() == len(t.response) && !allUnknown(r.Logprobs):
		c = check{Kind: missingInTrace, Detail: fmt.Sprintf("the body carries a log-prob for each of the %d ids, the trace none", len(t.response))}
	case t.logprobs == nil:
		c = check{OK: true, Detail: fmt.Sprintf("the body carries %d log-probs for %d ids, so the trace rightly has none", r.Logprobs.Len(), len(t.response))}
	case r.TextOnly && r.Logprobs.Len() != t.logprobs.Len():
		c = check{OK: true, Detail: fmt.Sprintf("the body carries %d log-probs of the visible text, which cannot be set beside %d ids", r.Logprobs.Len(), len(t.response))}
	default:
		c = logprobPair("the body", "the trace", r.Logprobs, t.logprobs).compare("", i.around)
	}
	c.Name, c.Sequence, c.Detail = "body.logprobs", "response", r.source+": "+c.Detail
	i.note(c)
	return c.OK
}

func allUnknown(l *trace.Logprobs) bool {
	for i := range l.Len() {
		if p := logprobAt(l, i); p.known && p.value > engineFloor {
			return false
		}
	}
	return true
}

// compareUsage compares the engine's own counts with the lengths of the trace.
func (i *inspection) compareUsage() {
	if i.trace == nil {
		return
	}
	if u := i.answer.Stations.Body.Usage; u != nil {
		i.usage("body", u.Prompt, u.Response)
	}
	if i.trace.Usage != nil {
		u := enginebody.ParseResponse(fmt.Appendf(nil, `{"usage":%s}`, i.trace.Usage), nil).Usage
		if i.trace.ChoiceGroup != "" {
			u.Response = nil // it may count all choices
		}
		i.usage("trace", u.Prompt, u.Response)
	}
}

func (i *inspection) usage(station string, prompt, response *int64) {
	t := &i.answer.Stations.Trace
	for _, side := range []struct {
		name  string
		says  *int64
		holds *int
		told  bool
	}{{"prompt", prompt, t.PromptLength, false}, {"response", response, t.ResponseLength, i.trace.IDsIncomplete}} {
		if side.says == nil || side.holds == nil {
			continue
		}
		ok := *side.says == int64(*side.holds)
		detail := fmt.Sprintf("the engine counted %d tokens in the %s, the trace has %d ids", *side.says, side.name, *side.holds)
		if !ok && side.told {
			ok, detail = true, detail+" and is marked ids_incomplete"
		}
		i.agree(station+".usage_"+side.name, usageDisagrees, ok, *side.says, *side.holds, detail)
	}
}

// compareFinish compares why the engine says that it stopped with what the trace
// says. Where either says nothing, or the engine a word of its own, there is
// nothing to compare.
func (i *inspection) compareFinish() {
	if i.trace == nil || i.trace.FinishReason == "" {
		return
	}
	same, known := i.finish.Says(i.trace.FinishReason)
	if !known {
		return
	}
	i.agree("body.finish_reason", finishDiffers, same, i.finish.Reason, i.trace.FinishReason,
		fmt.Sprintf("response.%s is %s, the trace says %s", i.finish.Source, i.finish.Reason, i.trace.FinishReason))
}
