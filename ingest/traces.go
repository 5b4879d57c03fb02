package ingest

import (
	"context"
	"errors"
	"fmt"

	"icecore/store"
	"icecore/trace"
)

// putTraces resolves prompt prefixes and stores what could be resolved.
func (a *API) putTraces(ctx context.Context, ts []*trace.Trace) ([]store.Outcome, int64, error) {
	out := make([]store.Outcome, len(ts))
	earlier := make(map[string]*trace.Trace, len(ts))
	ready := make([]*trace.Trace, 0, len(ts))
	where := make([]int, 0, len(ts))
	for i, t := range ts {
		if err := a.resolve(ctx, t, earlier); err != nil {
			var fault *trace.Error
			if !errors.As(err, &fault) {
				return nil, 0, err
			}
			out[i] = store.Outcome{Status: store.Refused, Err: fault}
			continue
		}
		if _, again := earlier[t.TraceID]; !again {
			earlier[t.TraceID] = t
		}
		ready = append(ready, t)
		where = append(where, i)
	}
	if len(ready) == 0 {
		return out, 0, nil
	}
	stored, batch, err := a.s.PutTraces(ctx, ready)
	if err != nil {
		return nil, 0, err
	}
	for i, o := range stored {
		out[where[i]] = o
	}
	return out, batch, nil
}

// resolve puts the ids that prompt_prefix names before those that were sent.
// They are shared, not copied: ten thousand items may repeat a long history.
// Whether the result is the prompt that was meant, its hash decides when it is
// stored.
func (a *API) resolve(ctx context.Context, t *trace.Trace, earlier map[string]*trace.Trace) error {
	p := t.PromptPrefix
	if p == nil {
		return nil
	}
	n := int(p.Length)
	prefix, err := a.prefix(ctx, t, n, earlier[p.TraceID])
	if err != nil {
		return err
	}
	t.PromptIDs = prefix.Concat(t.PromptIDs).Compact()
	if total := t.PromptIDs.Len() + len(t.ResponseIDs); total > a.opts.Limits.MaxTokens {
		return &trace.Error{Code: trace.CodeTooManyTokens, Field: "prompt_prefix",
			Message: fmt.Sprintf("prompt and response hold %d tokens, more than the limit of %d", total, a.opts.Limits.MaxTokens)}
	}
	return nil
}

// prefix takes the ids from an earlier item of the request, or from the store.
func (a *API) prefix(ctx context.Context, t *trace.Trace, n int, base *trace.Trace) (trace.Tokens, error) {
	if base != nil && base.RolloutID == t.RolloutID && base.PromptIDs != nil {
		ids := base.PromptIDs.Concat(trace.TokensOf(base.ResponseIDs))
		if n <= ids.Len() {
			return ids.Slice(0, n), nil
		}
	}
	ids, err := a.s.ResolvePrefix(ctx, t.RolloutID, t.PromptPrefix.TraceID, n)
	if err != nil {
		return nil, fmt.Errorf("resolve prompt prefix: %w", err)
	}
	return ids, nil
}
