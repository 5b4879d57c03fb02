package main

import (
	"slices"

	"icecore/enginetest"
)

// variant makes one thing of a rollout different.
type variant struct {
	name string
	// think: the model thinks before each answer. delegate: a sub-agent looks first.
	// compact: the context overflows. vendor: the harness asks for its vendor's model.
	think, delegate, compact, vendor bool
	// faults are the engine's; statuses that traces must have besides ok, and no others.
	faults   []enginetest.Fault
	statuses []string
	// face is the engine's; drift samples tokenisations
	// other than the canonical; exact is the gateway's continuity.
	face         string
	drift, exact bool
	// again is another variant, whose model this one goes on with: continuity trusts an
	// engine's rendering only for what it saw it render rightly.
	again string
}

const (
	vllm   = "vllm"
	sglext = "sglang-sglext"
)

var variants = []*variant{
	{name: "plain"},
	{name: "vendor", vendor: true},
	{name: "thinking", think: true},
	{name: "sub-agent", delegate: true},
	{name: "compaction", compact: true},
	{name: "cut", faults: []enginetest.Fault{{Kind: "cut_broken", After: 1, First: 1, At: 9}}, statuses: []string{"upstream_error"}},
	{name: "500", faults: []enginetest.Fault{{Kind: "status", Status: 500, After: 1, First: 1}}, statuses: []string{"upstream_error"}},
	{name: "503", faults: []enginetest.Fault{{Kind: "status", Status: 503, RetryAfter: "1", After: 1, First: 1, Message: "overloaded"}}, statuses: []string{"upstream_error"}},
	{name: "vllm-off", drift: true},
	{name: "vllm-exact", drift: true, exact: true},
	{name: "vllm-again", drift: true, exact: true, again: "vllm-exact"},
	{name: "sglang-off", drift: true, face: sglext},
	{name: "sglang-exact", drift: true, exact: true, face: sglext},
	{name: "sglang-again", drift: true, exact: true, face: sglext, again: "sglang-exact"},
}

func (v *variant) engine() string {
	if v.face == sglext {
		return sglext
	}
	return vllm
}

// suits says whether the harness has what the variant needs.
func (v *variant) suits(h *harness) bool {
	return (!v.delegate || h.delegates) && (!v.compact || h.compacts)
}

// script is what the engine does for a rollout.
func (v *variant) script(a *agent) enginetest.Script {
	return enginetest.Script{
		Agent: a.turn, Sampling: enginetest.Sampling{Drift: v.drift}, Faults: v.faults,
		Server: enginetest.Server{TokenizeMessages: true},
		// Some ids in a chunk, as engines send them; few, for streams to be cut amid.
		Chunks: enginetest.Chunks{Sizes: []int{1, 3, 2}},
	}
}

// checkVariant checks that what the variant is about did happen.
func (r *rollout) checkVariant(res *result, traces []*stored) {
	v := r.variant
	for status, n := range res.statuses {
		if status != "ok" && !slices.Contains(v.statuses, status) {
			res.fault("%d traces have status %s", n, status)
		}
	}
	for _, status := range v.statuses {
		if res.statuses[status] != 1 {
			res.fault("%d traces have status %s: the engine's fault should have made one", res.statuses[status], status)
		}
	}
	retries, threads := 0, map[string]bool{}
	for _, t := range traces {
		threads[t.Metadata.Gateway.Agent] = true
		if t.Metadata.Gateway.RetryOf != "" {
			retries++
		}
	}
	summaries := int(r.agent.summaries.Load())
	switch {
	case len(v.faults) > 0 && retries == 0:
		res.fault("no trace says that it is a retry")
	// Pi summarises a turn that it cut in two calls, which may be the same.
	case len(v.faults) == 0 && retries > 0 && !v.compact:
		res.fault("%d traces say that they are retries", retries)
	case v.compact && summaries == 0:
		res.fault("the harness asked for no summary: its context was not compacted")
	case v.compact && r.harness.tells && res.auxiliary != summaries:
		res.fault("%d auxiliary traces, where %d summaries were asked for", res.auxiliary, summaries)
	case v.delegate && r.agent.reports.Load() == 0:
		res.fault("no sub-agent reported")
	case v.delegate && len(threads) < 2:
		res.fault("the sub-agent's calls are not told from those of its parent")
	case res.calls < 5:
		res.fault("%d calls: the task takes five", res.calls)
	}
}

// checkContinuity checks what the boundaries ought to be.
func (r *result) checkContinuity(results []*result) {
	v := r.variant
	// Where the engine samples the canonical tokenisation and nothing goes wrong, these
	// harnesses' histories extend what was sampled, thinking included.
	if !v.drift && !v.delegate && !v.compact && len(v.faults) == 0 && r.share() != 1 {
		r.fault("boundaries %s: nothing but first and extends was to be expected", counts(r.boundaries))
	}
	// A drifting sample may happen to be canonical, and then extends without help.
	if off := r.without(results); off != nil && (r.spliced == 0 || r.share() < off.share()) {
		r.fault("%s of the boundaries extend with continuity, %s without; %s", percent(r.share()), percent(off.share()), r.splices())
	}
}
