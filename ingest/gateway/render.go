package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"icecore/ingest/gateway/continuity"
	"icecore/ingest/gateway/continuity/template"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/settings"
)

// way is one way to know what an engine makes of messages: its own, or the settings'
// template with tools in one form.
type way struct {
	// source is whose renderings are trusted together. Its life is the engine's count of
	// downs: whatever comes up again is proven anew, for it may have another template.
	source continuity.Source
	tokens tokens
}

// proof is a rendering, and whose it is.
type proof struct {
	source   continuity.Source
	rendered []int32
}

// ways gives the ways that have not disagreed with the engine's prompts yet. The
// engine's own comes first; where that has, there is no other: a template of ours
// knows no better.
func (c *call) ways(e sampler, ec *engine.Call) []way {
	source := continuity.Source{Name: e.Name() + "\x00" + c.model, Life: e.Downs()}
	if c.g.trust.Disagreed(source) {
		return nil
	}
	ways := []way{{source, tokens{c: c, e: e, ec: ec}}}
	if c.options.ChatTemplate == nil {
		return ways
	}
	forms := template.Forms
	if c.options.ChatTemplateTools != "" {
		forms = []template.Form{c.options.ChatTemplateTools}
	}
	for _, form := range forms {
		from := continuity.Source{Name: source.Name + "\x00" + string(form), Life: source.Life}
		if !c.g.trust.Disagreed(from) {
			ways = append(ways, way{from, tokens{c, e, ec, form}})
		}
	}
	if len(ways) == 1 {
		return nil // every form has, so the engine renders nothing itself
	}
	return ways
}

// proofs renders in every way there is; where the engine's own gives something, in no
// other.
func (c *call) proofs(ctx context.Context, ways []way) (out []proof) {
	for i, w := range ways {
		ids, err := w.tokens.Render(ctx)
		switch {
		case err == nil && i == 0:
			return []proof{{w.source, ids}}
		case err == nil:
			out = append(out, proof{w.source, ids})
		case i == 0 && !errors.Is(err, continuity.ErrNone):
			c.g.log.Debug("continuity: the engine's rendering failed", "trace", c.ids[0], "err", err)
			return nil
		default:
			c.g.log.Debug("continuity: not rendered", "trace", c.ids[0], "err", err)
		}
	}
	return out
}

// promptParams are members beside messages and tools by which engines change a prompt.
var promptParams = []string{"chat_template", "chat_template_kwargs", "reasoning_effort", "documents",
	"add_generation_prompt", "continue_final_message"}

// param is a member as the engine gets it: the model's options win.
func (c *call) param(name string) json.RawMessage {
	if v := c.params[name]; v != nil {
		return v
	}
	return c.request.Sampling[name]
}

// features are what a rendering is proven for: the sorts of messages, and each value of
// what else the prompt depends on.
func (c *call) features() []string {
	out := continuity.Features(c.request)
	for _, name := range promptParams {
		if v := c.param(name); v != nil {
			sum := sha256.Sum256(v)
			out = append(out, name+"="+hex.EncodeToString(sum[:8]))
		}
	}
	return out
}

// tokens are an engine's token tools for one call. With a form, messages are rendered
// by the options' template, and the engine makes ids of the text.
type tokens struct {
	c    *call
	e    sampler
	ec   *engine.Call
	form template.Form
}

// Source implements continuity.Sourced.
func (t tokens) Source() string { return t.e.Name() }

// Render implements continuity.Tokens.
func (t tokens) Render(ctx context.Context) ([]int32, error) {
	r := t.c.request
	if len(r.Tools) > 0 && (r.Choice.Name != "" || r.Choice.Mode == "none") {
		return nil, continuity.ErrNone // engines differ in which tools they show then
	}
	if t.form == "" {
		messages := *t.ec
		messages.PromptIDs = nil
		ids, err := t.e.Render(ctx, &messages)
		return ids, lacking(err)
	}
	text, err := t.text()
	if err != nil {
		// What cannot be rendered surely is not rendered.
		return nil, fmt.Errorf("%w: %w", continuity.ErrNone, err)
	}
	return t.Tokenize(ctx, text)
}

// text renders by the template, with the variables that the engine's would have.
func (t tokens) text() (string, error) {
	params := maps.Clone(t.c.options.ChatTemplateParams)
	if params == nil {
		params = settings.Members{}
	}
	for _, name := range promptParams {
		raw := t.c.param(name)
		switch {
		case raw == nil || string(raw) == "null":
		case name == "chat_template_kwargs":
			var more settings.Members
			if err := json.Unmarshal(raw, &more); err != nil {
				return "", fmt.Errorf("read %s: %w", name, err)
			}
			maps.Copy(params, more)
		case name == "reasoning_effort": // engines hand it to the template
			params[name] = raw
		default:
			return "", fmt.Errorf("%s is not rendered here", name)
		}
	}
	return t.c.options.ChatTemplate.Render(t.c.request, template.Options{Field: t.c.options.ReasoningField, Tools: t.form, Params: params})
}

// Detokenize implements continuity.Tokens.
func (t tokens) Detokenize(ctx context.Context, ids []int32) (string, error) {
	text, err := t.e.Detokenize(ctx, t.ec.Model, ids)
	return text, lacking(err)
}

// Tokenize implements continuity.Tokens.
func (t tokens) Tokenize(ctx context.Context, text string) ([]int32, error) {
	ids, err := t.e.Tokenize(ctx, t.ec.Model, text)
	return ids, lacking(err)
}

// lacking is err in the words of package continuity.
func lacking(err error) error {
	if errors.Is(err, engine.ErrNone) {
		return continuity.ErrNone
	}
	return err
}
