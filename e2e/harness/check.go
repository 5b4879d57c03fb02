package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"icecore/enginetest"
)

// result is what a rollout came to.
type result struct {
	*rollout
	calls, auxiliary, trajectories int
	trained, sampled               int
	statuses, boundaries, labels   map[string]int
	why                            map[string]int // why it was not spliced
	spliced                        int
	peak                           int64 // the longest prompt and answer, in tokens
	faults                         []string
	took                           time.Duration
}

func (r *result) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// share is the part of the boundaries that extend what was there, of those that could.
func (r *result) share() float64 {
	could := 0
	for kind, n := range r.boundaries {
		if kind != "first" {
			could += n
		}
	}
	if could == 0 {
		return math.NaN()
	}
	return float64(r.boundaries["extends"]) / float64(could)
}

// check compares what is stored with what the engine did.
func (r *rollout) check(ctx context.Context, res *result) error {
	entries := map[string]enginetest.Entry{}
	for _, e := range r.engine.Calls() {
		if e.Script != r.script || e.Seq <= r.since {
			continue
		}
		if _, twice := entries[e.RequestID]; twice || e.RequestID == "" {
			res.fault("the engine got the request id %q twice or not at all", e.RequestID)
		}
		entries[e.RequestID] = e
		for _, c := range e.Choices {
			res.peak = max(res.peak, int64(len(e.PromptIDs)+len(c.IDs)))
		}
	}
	traces, err := r.server.traces(ctx, r.id)
	if err != nil {
		return err
	}
	res.count(traces)
	seen := map[string]bool{}
	for _, t := range traces {
		e, there := entries[t.TraceID]
		seen[t.TraceID] = true
		switch {
		case there:
			compare(res, t, e)
		case t.Status == "ok" || t.IDs != nil:
			res.fault("trace %s has an answer that the engine knows nothing of", t.TraceID)
		}
	}
	for id := range entries {
		if !seen[id] {
			res.fault("the engine's call %s has no trace", id)
		}
	}
	r.checkVariant(res, traces)
	return r.checkMerged(ctx, res, entries)
}

func (r *result) count(traces []*stored) {
	r.calls = len(traces)
	r.statuses, r.labels, r.why = map[string]int{}, map[string]int{}, map[string]int{}
	for _, t := range traces {
		r.statuses[t.Status]++
		if t.Kind == "auxiliary" {
			r.auxiliary++
		}
		c := t.Metadata.Gateway.Continuity
		r.labels[c.Label]++
		if c.Spliced {
			r.spliced++
		} else {
			r.why[c.Why]++
		}
		r.sampled += len(t.IDs)
	}
}

// compare sets a trace against the engine's own entry.
func compare(res *result, t *stored, e enginetest.Entry) {
	if len(e.Choices) == 0 { // it sampled nothing
		if t.Status == "ok" || len(t.IDs) > 0 {
			res.fault("trace %s: status %s and %d ids, where the engine sampled nothing (%s)", t.TraceID, t.Status, len(t.IDs), e.Ended)
		}
		return
	}
	truth := e.Choices[0]
	if !slices.Equal(t.Prompt, e.PromptIDs) {
		res.fault("trace %s: %d prompt ids are not the %d that the engine read", t.TraceID, len(t.Prompt), len(e.PromptIDs))
	}
	switch whole := e.Ended == "done"; {
	case whole && t.Status != "ok":
		res.fault("trace %s: status %s (%v), where the engine's answer was whole", t.TraceID, t.Status, t.Error)
	case !whole && t.Status == "ok":
		res.fault("trace %s: status ok, where the engine's answer ended as %s", t.TraceID, e.Ended)
	case whole && len(t.IDs) != len(truth.IDs):
		res.fault("trace %s: %d ids, where the engine sampled %d", t.TraceID, len(t.IDs), len(truth.IDs))
	case t.Incomplete || len(t.Metadata.Gateway.Flags) > 0:
		res.fault("trace %s: ids_incomplete %v, flags %v", t.TraceID, t.Incomplete, t.Metadata.Gateway.Flags)
	}
	if len(t.IDs) > len(truth.IDs) || !slices.Equal(t.IDs, truth.IDs[:len(t.IDs)]) {
		res.fault("trace %s: its ids are not those that the engine sampled", t.TraceID)
		return
	}
	if len(t.Logprobs) != len(t.IDs) {
		res.fault("trace %s: %d log-probabilities for %d ids", t.TraceID, len(t.Logprobs), len(t.IDs))
		return
	}
	for i, p := range t.Logprobs {
		if p == nil || math.Float32bits(*p) != math.Float32bits(truth.Logprobs[i]) {
			res.fault("trace %s: the log-probability at %d is not the engine's", t.TraceID, i)
			return
		}
	}
}

// checkMerged sets what a learner would get against the engine's entries.
func (r *rollout) checkMerged(ctx context.Context, res *result, entries map[string]enginetest.Entry) error {
	var known struct {
		Complete bool `json:"complete"`
		Open     int  `json:"open_intents"`
	}
	if err := r.server.call(ctx, "GET", "/v1/rollouts/"+r.id, nil, &known); err != nil {
		return err
	}
	if !known.Complete || known.Open > 0 {
		res.fault("the rollout is not complete: %d announced calls have no trace", known.Open)
	}
	var m merged
	if err := r.server.call(ctx, "GET", "/v1/rollouts/"+r.id+"/trajectories?policy=strict_tree", nil, &m); err != nil {
		return err
	}
	res.trajectories, res.boundaries = len(m.Trajectories), map[string]int{}
	for _, b := range m.Boundaries {
		res.boundaries[b.Kind]++
	}
	for k, t := range m.Trajectories {
		for _, s := range t.Spans {
			e := entries[s.TraceID]
			if len(e.Choices) == 0 {
				res.fault("trajectory %d: a span of %s, which sampled nothing", k, s.TraceID)
				continue
			}
			whole := append(slices.Clone(e.PromptIDs), e.Choices[0].IDs...)
			if s.End > len(t.IDs) || !slices.Equal(t.IDs[:s.End], whole[:min(s.End, len(whole))]) || s.Start != len(e.PromptIDs) {
				res.fault("trajectory %d: up to %d it is not what the engine read and sampled in call %s", k, s.End, s.TraceID)
				continue
			}
			for i := s.Start; i < s.End; i++ {
				if p := t.Logprobs[i]; (t.Mask[i] == 1) != s.Trainable || p == nil || math.Float32bits(*p) != math.Float32bits(e.Choices[0].Logprobs[i-s.Start]) {
					res.fault("trajectory %d: mask or log-probability at %d is wrong", k, i)
					break
				}
			}
		}
		for _, one := range t.Mask {
			res.trained += one
		}
	}
	for id, what := range m.Dispositions {
		if e := entries[id]; e.Ended == "done" && what != "trained" && !again(e, entries) {
			res.fault("trace %s is whole and its prompt was asked once, but it is %s", id, what)
		}
	}
	return nil
}

// again says whether another call had the same prompt: of such, a harness goes on from
// one, and the others are not trained.
func again(e enginetest.Entry, entries map[string]enginetest.Entry) bool {
	for id, other := range entries {
		if id != e.RequestID && slices.Equal(other.PromptIDs, e.PromptIDs) {
			return true
		}
	}
	return false
}
