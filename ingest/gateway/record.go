package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// record makes the traces of a call: one for each choice, whatever there is of it.
// response is what was, or is about to be, sent to the harness.
func (c *call) record(o *outcome, status trace.Status, response []byte, flags []string) []*trace.Trace {
	traces := make([]*trace.Trace, len(c.ids))
	for i, id := range c.ids {
		s := &engine.Sampled{}
		if i < len(o.sampled) && o.sampled[i] != nil {
			s = o.sampled[i]
		}
		v := resolveVersion(s, c.agent.policyVersion, o.before, o.after)
		t := &trace.Trace{
			TraceID: id, RolloutID: c.caller.rollout, Seq: o.intents[i].Seq,
			PromptIDs: trace.TokensOf(s.PromptIDs), ResponseIDs: s.IDs, ResponseLogprobs: s.Logprobs, IDsIncomplete: s.Incomplete,
			PolicyVersion: v.version, PolicyVersionSpans: v.spans,
			Status: status, FinishReason: s.Finish, Kind: c.agent.kind,
			Attributes: trace.Attributes{Model: c.model}, API: c.provider.API(), ToolsHash: c.tools,
			StartedAt: micros(c.started), FirstTokenAt: micros(o.firstToken), FinishedAt: micros(o.ended),
		}
		if len(c.ids) > 1 {
			at := int64(i)
			t.ChoiceGroup, t.ChoiceIndex = c.ids[0], &at
		}
		// A rollout that names another harness must not get the version of this one.
		if c.caller.harness == "" || c.caller.harness == c.agent.harness {
			t.Attributes.Harness, t.Attributes.HarnessVersion = c.agent.harness, c.agent.version
		}
		if o.fault != nil {
			t.Error = clip(o.fault.Error(), 2048)
		}
		t.Sampling = c.lost("sampling", c.sampling)
		t.Usage = c.lost("usage", func() ([]byte, error) { return usageOf(o.usage) })
		t.Metadata = c.lost("metadata", func() ([]byte, error) { return c.metadata(o, s, v, flags) })
		// The bodies are the call's: the first choice has them for all.
		if i == 0 {
			t.RequestBody, t.ResponseBody = c.bodies(o, response)
		}
		traces[i] = t
	}
	return traces
}

// bare is the least that a call leaves: that it was, and nothing that could be wrong.
func (c *call) bare(o *outcome) []*trace.Trace {
	traces := make([]*trace.Trace, len(c.ids))
	for i, id := range c.ids {
		traces[i] = &trace.Trace{TraceID: id, RolloutID: c.caller.rollout, Seq: o.intents[i].Seq, Kind: c.agent.kind,
			Status: trace.StatusUpstreamError, Error: "the gateway failed to record the call; its log says why"}
	}
	return traces
}

// lost logs what could not be written as JSON, and leaves it out: a trace without it is
// better than none.
func (c *call) lost(what string, write func() ([]byte, error)) []byte {
	raw, err := write()
	if err != nil {
		c.g.log.Error("trace lacks its "+what, "trace", c.ids[0], "err", err)
		return nil
	}
	return raw
}

func micros(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixMicro()
	return &n
}

func (c *call) bodies(o *outcome, response []byte) (request, answer []byte) {
	switch c.g.settings.Bodies {
	case settings.BodiesHarness:
		return c.body, response
	case settings.BodiesEngine:
		return o.rawRequest, o.rawResponse
	}
	return nil, nil
}

// sampling is what the engine was asked for, under its own names.
func (c *call) sampling() ([]byte, error) {
	all := map[string]any{}
	for name, raw := range c.request.Sampling {
		all[name] = raw
	}
	for name, raw := range c.params {
		all[name] = raw
	}
	if c.request.MaxTokens != nil {
		all["max_tokens"] = *c.request.MaxTokens
	}
	if n := c.request.Choices(); n > 1 {
		all["n"] = n
	}
	if c.options.LogprobsMode != "" {
		all["logprobs_mode"] = c.options.LogprobsMode
	}
	return sortedJSON(all)
}

func usageOf(u turn.Usage) ([]byte, error) {
	if u.Raw != nil && string(u.Raw) != "null" {
		return sortedJSON(u.Raw)
	}
	all := map[string]any{}
	for name, n := range map[string]*int64{"prompt_tokens": u.Prompt, "completion_tokens": u.Completion, "cached_tokens": u.Cached, "reasoning_tokens": u.Reasoning} {
		if n != nil {
			all[name] = *n
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return sortedJSON(all)
}

// toolsHash is the SHA-256 of the tools as an engine gets them; empty: there are none.
func toolsHash(tools []turn.Tool) (string, error) {
	if len(tools) == 0 {
		return "", nil
	}
	h := sha256.New()
	for i := range tools {
		raw, err := tools[i].JSON()
		if err != nil {
			return "", err
		}
		_, _ = h.Write(append(raw, '\n')) // a hash does not fail
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// paramsHash is of whatever besides messages and tools changes the prompt.
func (c *call) paramsHash() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c.params)) {
		_, _ = h.Write([]byte(name + "\x00" + string(c.params[name]) + "\x00")) // a hash does not fail
	}
	_, _ = h.Write([]byte(c.options.ReasoningField))
	return hex.EncodeToString(h.Sum(nil))
}
