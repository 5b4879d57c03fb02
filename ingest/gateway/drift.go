package gateway

import (
	"context"
	"slices"
	"time"

	"icecore/ingest/gateway/continuity"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
)

// driftWait bounds what labelling may ask of the engine's tokenizer, and planning of
// its template.
const driftWait = 5 * time.Second

// drift is how a prompt relates to the sequences of its thread before it, and what was
// done about it.
type drift struct {
	// Label is a continuity.Label's kind; empty: nothing was looked at.
	Label string `json:"label,omitempty"`
	From  string `json:"from,omitempty"`
	// Shared is how many ids the prompt and the sequence before begin alike with, of Of.
	Shared int `json:"shared"`
	Of     int `json:"of"`
	// Spliced: the engine was given ids, of which the first Kept are those of SplicedFrom.
	Spliced     bool   `json:"spliced"`
	Kept        int    `json:"kept,omitempty"`
	SplicedFrom string `json:"spliced_from,omitempty"`
	// Why is why nothing was spliced, where the model's options ask for it.
	Why string `json:"why,omitempty"`

	candidates []*continuity.Match
	// planned is the spliced prompt; rendered is what it has the text of.
	planned, rendered []int32
	// proofs are the renderings to be set against the prompt that the engine tells.
	proofs []proof
}

func (d *drift) unsplice(why string) {
	d.Spliced, d.Kept, d.SplicedFrom, d.planned, d.Why = false, 0, "", nil, why
}

// beginDrift looks up what the thread holds. It is looked up before the engine answers:
// calls of the same thread that end meanwhile are no history of this one.
func (c *call) beginDrift() drift {
	return drift{candidates: c.g.memory.Candidates(c.affinity(), c.request, c.model, c.tools, c.paramsHash())}
}

// planSplice has the engine go on from held ids where that changes no text. Whatever
// fails, the call goes on without.
func (c *call) planSplice(ctx context.Context, e sampler, ec *engine.Call, d *drift) {
	ec.PromptIDs = nil
	d.unsplice("")
	d.rendered, d.proofs = nil, nil
	if c.options.Continuity != settings.ContinuityExactText {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, driftWait)
	defer cancel()
	ways, features := c.ways(e, ec), c.features()
	trusted := slices.IndexFunc(ways, func(w way) bool { return c.g.trust.Trusted(w.source, features) })
	switch {
	case len(ways) == 0:
		d.Why = continuity.WhyDisagrees
	case !e.TokenIn(ec):
		d.Why = continuity.WhyNoTokenIn
	case trusted < 0:
		// No rendering has been set against a prompt of this sort yet: this call does that.
		// In a spliced call nobody would notice that it is another.
		d.Why = "not_proven"
		if len(d.candidates) == 0 {
			d.Why = continuity.WhyFirst
		}
		if d.proofs = c.proofs(ctx, ways); len(d.proofs) == 0 {
			d.Why = continuity.WhyNoRender
		}
	default:
		plan, err := continuity.Best(ctx, d.candidates, ways[trusted].tokens)
		if err != nil {
			c.g.log.Debug("continuity: plan failed", "trace", c.ids[0], "err", err)
		}
		d.rendered, d.Why = plan.Rendered, plan.Why
		if plan.Rendered != nil {
			d.proofs = []proof{{ways[trusted].source, plan.Rendered}}
		}
		if err == nil && plan.PromptIDs != nil {
			ec.PromptIDs, d.planned = plan.PromptIDs, plan.PromptIDs
			d.Spliced, d.Kept, d.SplicedFrom = true, plan.Kept, plan.From
		}
	}
}

// label says how the prompt that the engine received goes on from those before it, and
// what is wrong with it.
func (c *call) label(ctx context.Context, e sampler, ec *engine.Call, o *outcome) {
	if o.sampled[0] == nil || o.sampled[0].PromptIDs == nil {
		return
	}
	d, prompt := &o.drift, o.sampled[0].PromptIDs
	if d.Spliced && !slices.Equal(prompt, d.planned) {
		o.flags = append(o.flags, "splice_not_honoured")
	}
	if !d.Spliced {
		features := c.features()
		for _, p := range d.proofs {
			c.g.trust.Seen(p.source, features, p.rendered, prompt)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), driftWait)
	defer cancel()
	l := continuity.Classify(ctx, prompt, d.candidates, tokens{c: c, e: e, ec: ec})
	d.Label, d.From, d.Shared, d.Of = l.Kind, l.From, l.Shared, l.Of
}

// remember holds what this call's thread may go on from.
func (c *call) remember(o *outcome) {
	for i, s := range o.sampled {
		if s == nil || s.PromptIDs == nil || s.IDs == nil || s.Incomplete {
			continue
		}
		var rendered []int32
		if o.drift.Spliced {
			rendered = o.drift.rendered
		}
		c.g.memory.Put(c.affinity(), &continuity.Held{
			TraceID: c.ids[i], Messages: append(slices.Clip(c.request.Messages), o.gather.Message(i)),
			ToolsHash: c.tools, ParamsHash: c.paramsHash(), Model: c.model,
			Tokens: slices.Concat(s.PromptIDs, s.IDs), PromptLen: len(s.PromptIDs), Rendered: rendered,
			Ended: s.Finish == turn.FinishStop || s.Finish == turn.FinishToolCalls,
		})
	}
}
