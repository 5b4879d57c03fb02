package continuity

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// backOff is how many equal ids are decoded before the first that differs. What an id
// decodes to may depend on its left neighbours: a rune that is spread over up to four
// ids, SentencePiece's space that is left away at the start of a text. So two texts
// are decoded from ids that both have.
const backOff = 16

const unknownRune = "\uFFFD"

// like gives a copy without messages and without the text that is kept.
func (h *Held) like() *Held {
	return &Held{
		TraceID: h.TraceID, ToolsHash: h.ToolsHash, ParamsHash: h.ParamsHash, Model: h.Model,
		Tokens: h.Tokens, PromptLen: h.PromptLen, Rendered: h.Rendered, Ended: h.Ended,
	}
}

// sharing gives h with the arrays of longer in place of its own, where they begin with
// the same ids: each call of a thread holds all of the ones before it. h itself stays,
// for those who are reading it.
func (h *Held) sharing(longer *Held) *Held {
	tokens, shared := prefixOf(h.Tokens, longer.Tokens)
	rendered, also := prefixOf(h.Rendered, longer.Rendered)
	if !shared && !also {
		return h
	}
	out := h.like()
	out.Tokens, out.Rendered = tokens, rendered
	h.mu.Lock()
	out.tail, out.tailFrom, out.tailOf, out.hasTail = h.tail, h.tailFrom, h.tailOf, h.hasTail
	h.mu.Unlock()
	return out
}

func prefixOf(ids, longer []int32) ([]int32, bool) {
	if len(ids) == 0 || len(ids) > len(longer) || &ids[0] == &longer[0] || !slices.Equal(ids, longer[:len(ids)]) {
		return ids, false
	}
	return longer[:len(ids):len(ids)], true
}

// cut gives a place in h.Tokens and one in ids before which both have the same text,
// so that only what follows has to be decoded. It is backOff ids before the place
// where they part, or the start.
func (h *Held) cut(ids []int32) (inHeld, inIDs int) {
	k := max(common(h.Tokens, ids)-backOff, 0)
	if h.Rendered == nil {
		return k, k
	}
	// The held prompt was spliced, so ids leave it at its first drift. But they go along
	// with the rendering that the prompt was spliced from, which has its text; and where
	// rendering and prompt end with the same ids, places correspond, counted from the end.
	prompt := h.Tokens[:h.PromptLen]
	same := commonEnd(h.Rendered, prompt)
	at := common(h.Rendered, ids) - backOff
	if at >= len(h.Rendered)-same && at+len(prompt)-len(h.Rendered) > k {
		return at + len(prompt) - len(h.Rendered), at
	}
	return k, k
}

// Sourced are Tokens that say whose they are: what one engine's tokenizer decodes says
// nothing of another's, even under the same model name.
type Sourced interface{ Source() string }

func sourceOf(t Tokens) string {
	if s, ok := t.(Sourced); ok {
		return s.Source()
	}
	return ""
}

// text decodes Tokens[from:]. The last one asked for is kept: retries ask the same.
func (h *Held) text(ctx context.Context, t Tokens, from int) (string, error) {
	source := sourceOf(t)
	h.mu.Lock()
	text, ok := h.tail, h.hasTail && h.tailFrom == from && h.tailOf == source
	h.mu.Unlock()
	if ok {
		return text, nil
	}
	text, err := t.Detokenize(ctx, h.Tokens[from:])
	if err != nil {
		return "", fmt.Errorf("decode the held ids of trace %s: %w", h.TraceID, err)
	}
	h.mu.Lock()
	h.tail, h.tailFrom, h.tailOf, h.hasTail = text, from, source, true
	h.mu.Unlock()
	return text, nil
}

// certain gives the part of a decoded text before the first U+FFFD, which stands for
// bytes that are not known. A text that is decoded from an id other than the first may
// begin within a rune: up to three of them stand at its front then, and are none of
// the matter, as they come from ids that both sides have.
func certain(text string, from int) string {
	front := 0
	for from > 0 && front < 3*len(unknownRune) && strings.HasPrefix(text[front:], unknownRune) {
		front += len(unknownRune)
	}
	if at := strings.Index(text[front:], unknownRune); at >= 0 {
		return text[:front+at]
	}
	return text
}

// common is how many ids are equal from the start.
func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// commonEnd is how many ids are equal at the end.
func commonEnd(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
