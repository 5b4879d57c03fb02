package continuity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// tries bounds how many held calls Best looks at: branches with the same messages.
const tries = 3

// Best tries the matches that the request can go on from, best first, and gives the
// first plan that splices, or why the best of them does not. It renders once.
func Best(ctx context.Context, matches []*Match, t Tokens) (Plan, error) {
	if len(matches) == 0 {
		return Plan{Why: WhyFirst}, nil
	}
	once := &renderOnce{Tokens: t}
	var first Plan
	for i, m := range matches[:min(len(matches), tries)] {
		if i > 0 && !m.fits() {
			break
		}
		plan, err := Splice(ctx, m, once)
		if err != nil || plan.PromptIDs != nil {
			return plan, err
		}
		if i == 0 {
			first = plan
		}
	}
	return first, nil
}

// fits is all that can be known without the engine.
func (x *Match) fits() bool {
	h := x.Held
	return x.MessagesEqual && x.SettingsEqual && len(h.Tokens) > 0 && h.PromptLen <= len(h.Tokens)
}

// Splice gives the prompt that begins with the held ids and has exactly the text of
// the rendering, or a plan without PromptIDs that says why there is none. It asks the
// engine for at most one rendering, two texts and one tokenisation, and for no more
// than a rendering where that begins with the held ids anyway.
func Splice(ctx context.Context, m *Match, t Tokens) (Plan, error) {
	if m == nil {
		return Plan{Why: WhyFirst}, nil
	}
	if !m.fits() {
		return Plan{Why: WhyNoMatch}, nil
	}
	h := m.Held
	rendered, err := t.Render(ctx)
	if err != nil {
		return broken(Plan{}, fmt.Errorf("render the request: %w", err))
	}
	plan := Plan{Rendered: rendered}
	if n := common(h.Tokens, rendered); n == len(h.Tokens) {
		if len(rendered) == n {
			plan.Why = WhyNotBoundary // the engine would go on with our own answer
			return plan, nil
		}
		plan.PromptIDs, plan.From, plan.Kept = rendered, h.TraceID, n
		return plan, nil
	}

	inHeld, inRendered := h.cut(rendered)
	held, err := h.text(ctx, t, inHeld)
	if err != nil {
		return broken(plan, err)
	}
	if certain(held, inHeld) != held {
		plan.Why = WhyReplacement
		return plan, nil
	}
	asked, err := t.Detokenize(ctx, rendered[inRendered:])
	if err != nil {
		return broken(plan, fmt.Errorf("decode the rendering: %w", err))
	}
	rest, same := strings.CutPrefix(asked, held)
	if !same {
		plan.Why = WhyTextDiffers
		return plan, nil
	}
	if rest == "" {
		plan.Why = WhyNotBoundary
		return plan, nil
	}
	ids, err := t.Tokenize(ctx, rest)
	if err != nil {
		return broken(plan, fmt.Errorf("tokenise what follows: %w", err))
	}
	// The rendering must itself have these ids at its end. Else the held part ends within
	// one of its tokens, or its tokeniser reads the rest otherwise when it stands alone.
	if end := rendered[inRendered:]; len(ids) == 0 || commonEnd(end, ids) < len(ids) {
		plan.Why = WhyNotBoundary
		return plan, nil
	}
	plan.PromptIDs = slices.Concat(h.Tokens, ids)
	plan.From, plan.Kept = h.TraceID, len(h.Tokens)
	return plan, nil
}

// broken is a plan that a token tool ended.
func broken(p Plan, err error) (Plan, error) {
	if errors.Is(err, ErrNone) {
		p.Why = WhyNoRender
		return p, nil
	}
	p.Why = WhyError
	return p, err
}

// renderOnce keeps the rendering.
type renderOnce struct {
	Tokens
	ids  []int32
	done bool
}

// Source implements Sourced.
func (r *renderOnce) Source() string { return sourceOf(r.Tokens) }

// Render renders the first time.
func (r *renderOnce) Render(ctx context.Context) ([]int32, error) {
	if r.done {
		return r.ids, nil
	}
	ids, err := r.Tokens.Render(ctx)
	if err != nil {
		return nil, err
	}
	r.ids, r.done = ids, true
	return ids, nil
}
