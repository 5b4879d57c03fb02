package continuity

import (
	"context"
	"strings"
)

// gap is how many ids a template may write at the end of a turn otherwise than the
// model did, for it to be a mere gap.
const gap = 3

// Classify says how a prompt, as the engine received it, relates to the held calls of
// its thread. t may be nil, or lack tools: then texts are not compared. It asks for at
// most two texts, and for none when ids or messages tell.
func Classify(ctx context.Context, prompt []int32, candidates []*Match, t Tokens) Label {
	best, shared := nearest(prompt, candidates)
	if best == nil {
		return Label{Kind: First}
	}
	h := best.Held
	l := Label{From: h.TraceID, Shared: shared, Of: len(h.Tokens)}
	unchanged := best.MessagesEqual && best.SettingsEqual
	turnEnd := unchanged && shared >= h.PromptLen
	switch {
	case shared == len(h.Tokens):
		l.Kind = Extends
	case turnEnd && h.Ended && shared == len(h.Tokens)-1:
		l.Kind = TemplateGap // all but the id that ended the turn: no text needed
	case !best.MessagesEqual && best.Through < best.of-1:
		l.Kind = Rewritten // something before our answer
	default:
		l.Kind = byText(ctx, prompt, best, t)
		if l.Kind == Rewritten && turnEnd && len(h.Tokens)-shared <= gap {
			l.Kind = TemplateGap
		}
	}
	return l
}

// nearest gives the held call that the prompt is set against: the longest that it
// begins with, else that with the most equal messages, and among such the one with the
// most equal ids. nil: there is none that it could go on from. A call that holds the
// whole prompt already is none: the prompt is a retry of it.
func nearest(prompt []int32, candidates []*Match) (best *Match, shared int) {
	whole := false
	for _, m := range candidates {
		n := common(m.Held.Tokens, prompt)
		extends := n > 0 && n == len(m.Held.Tokens)
		related := m.Through > 0 || m.met || m.MessagesEqual
		switch {
		case extends && (!whole || n > shared):
			best, shared, whole = m, n, true
		case whole || !related || m.within && !m.MessagesEqual:
		case best == nil, m.rank() == best.rank() && n > shared:
			best, shared = m, n
		}
	}
	return best, shared
}

// byText compares texts: Retokenised, Rewritten or Unknown.
func byText(ctx context.Context, prompt []int32, m *Match, t Tokens) string {
	unknown := Unknown
	if !m.MessagesEqual || !m.SettingsEqual {
		unknown = Rewritten // without the text, the messages must tell
	}
	if t == nil {
		return unknown
	}
	inHeld, inPrompt := m.Held.cut(prompt)
	held, err := m.Held.text(ctx, t, inHeld)
	if err != nil {
		return unknown
	}
	asked, err := t.Detokenize(ctx, prompt[inPrompt:])
	if err != nil {
		return unknown
	}
	switch {
	case !strings.HasPrefix(asked, certain(held, inHeld)):
		return Rewritten
	case certain(held, inHeld) != held:
		return unknown
	}
	return Retokenised
}
