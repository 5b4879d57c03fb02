package gateway

import (
	"context"
	"errors"
	"fmt"

	"icecore/trace"
)

// errLost says that traces could not be stored and never will be.
var errLost = errors.New("the trace is lost")

// keep stores traces, whatever it takes: it tries again until they are durable or the
// gateway has stopped. nil: they are durable. Of a trace that is refused less is tried:
// without its bodies, then its ids and how it ended, then that it was. If that is refused
// as well the error is errLost.
func (g *Gateway) keep(ctx context.Context, traces []*trace.Trace) error {
	defer g.metrics.putTime(g.now())()
	err := g.put(ctx, traces)
	if !errors.Is(err, ErrRefused) {
		return err
	}
	// One bad trace must not take the others with it.
	var lost error
	for _, t := range traces {
		err := g.put(ctx, []*trace.Trace{t})
		if errors.Is(err, ErrRefused) && (t.RequestBody != nil || t.ResponseBody != nil) {
			g.log.Warn("trace refused; storing it without its bodies", "trace", t.TraceID, "rollout", t.RolloutID, "err", err)
			g.metrics.captureFailed("refused_body")
			err = g.put(ctx, []*trace.Trace{withoutBodies(t)})
		}
		for _, less := range []func(*trace.Trace) *trace.Trace{essential, withoutIDs} {
			if errors.Is(err, ErrRefused) {
				g.log.Error("trace refused; storing less of it", "trace", t.TraceID, "rollout", t.RolloutID, "err", err)
				g.metrics.captureFailed("refused_trace")
				err = g.put(ctx, []*trace.Trace{less(t)})
			}
		}
		switch {
		case errors.Is(err, ErrRefused):
			g.metrics.captureFailed("refused")
			g.log.Error("TRACE LOST: the store refuses it; its rollout stays incomplete", "trace", t.TraceID, "rollout", t.RolloutID, "err", err)
			lost = errors.Join(lost, fmt.Errorf("%w: %w", errLost, err))
		case err != nil:
			return err
		}
	}
	return lost
}

// put tries until the traces are durable, refused, or ctx ends.
func (g *Gateway) put(ctx context.Context, traces []*trace.Trace) error {
	wait := newBackoff()
	err := g.capture.Put(ctx, traces)
	if err == nil || errors.Is(err, ErrRefused) {
		return err
	}
	g.struggling.Add(1)
	defer g.struggling.Add(-1)
	for n := 1; ; n++ {
		g.metrics.captureFailed("put")
		g.log.Warn("store trace failed; trying again", "trace", traces[0].TraceID, "rollout", traces[0].RolloutID, "tries", n, "err", err)
		if !wait.sleep(ctx) {
			g.metrics.captureFailed("stopped")
			g.log.Error("TRACE LOST: the gateway stopped before the store took it; its rollout stays incomplete",
				"trace", traces[0].TraceID, "rollout", traces[0].RolloutID, "err", err)
			return fmt.Errorf("store trace: %w", err)
		}
		if err = g.capture.Put(ctx, traces); err == nil || errors.Is(err, ErrRefused) {
			return err
		}
	}
}

// withoutBodies is a copy of a trace that says that its bodies are gone.
func withoutBodies(t *trace.Trace) *trace.Trace {
	light := *t
	light.RequestBody, light.ResponseBody = nil, nil
	light.Metadata = flagged(light.Metadata, "bodies_left_out")
	return &light
}

// essential is what of a trace only the call itself could say: its ids, and how it ended.
func essential(t *trace.Trace) *trace.Trace {
	nothing := []byte(`{"gateway":{}}`)
	return &trace.Trace{TraceID: t.TraceID, RolloutID: t.RolloutID, Seq: t.Seq, PromptIDs: t.PromptIDs, ResponseIDs: t.ResponseIDs,
		IDsIncomplete: t.IDsIncomplete, Status: t.Status, FinishReason: t.FinishReason, ChoiceGroup: t.ChoiceGroup, ChoiceIndex: t.ChoiceIndex,
		Kind: t.Kind, API: t.API, StartedAt: t.StartedAt, FirstTokenAt: t.FirstTokenAt, FinishedAt: t.FinishedAt,
		Metadata: flagged(nothing, "trace_cut")}
}

// withoutIDs is essential without the ids, which are not trained then.
func withoutIDs(t *trace.Trace) *trace.Trace {
	least := essential(t)
	least.PromptIDs, least.ResponseIDs, least.IDsIncomplete, least.FinishReason = nil, nil, true, ""
	return least
}
