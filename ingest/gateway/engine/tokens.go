package engine

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"icecore/ingest/gateway/parser"
	"icecore/ingest/gateway/turn"
)

// ErrNone says that this engine has no such endpoint.
var ErrNone = errors.New("this engine has no such endpoint")

// Names of what engines may have, as keys of Engine.absent beside the routes.
const (
	routeTokenize   = "/tokenize"
	routeDetokenize = "/detokenize"
	rendering       = "/tokenize of messages"
)

// maxTokensAnswer bounds an answer of ids or text.
const maxTokensAnswer = 256 << 20

// Render gives the ids of the call's messages and tools by the engine's own template,
// ready to be answered. It is what the engine would receive, without an answer. The
// error is ErrNone where the engine renders no messages, else a *turn.Fault.
func (e *Engine) Render(ctx context.Context, c *Call) ([]int32, error) {
	kind := e.Kind()
	if kind != KindVLLM && kind != KindSGLang || !e.has(rendering) {
		return nil, ErrNone
	}
	var w writer
	w.put("model", c.Model)
	w.messages(c, kind)
	w.put("add_generation_prompt", true)
	for _, name := range []string{"chat_template_kwargs", "chat_template"} {
		v := c.Params[name]
		if v == nil {
			v = c.Request.Sampling[name]
		}
		if v != nil {
			w.raw(name, v)
		}
	}
	ids, err := e.tokens(ctx, &w, rendering)
	if err == nil && len(ids) == 0 { // a template gives something; the messages were not read
		e.lacks(rendering)
		return nil, ErrNone
	}
	return ids, err
}

// Tokenize gives the ids of a text. No special tokens are added; marks in the text
// become the special ids that they are.
func (e *Engine) Tokenize(ctx context.Context, model, text string) ([]int32, error) {
	kind := e.Kind()
	if kind != KindVLLM && kind != KindSGLang || !e.has(routeTokenize) {
		return nil, ErrNone
	}
	var w writer
	w.put("model", model)
	w.put("prompt", text)
	w.put("add_special_tokens", false)
	return e.tokens(ctx, &w, routeTokenize)
}

// tokens posts to /tokenize. What is absent when the engine refuses is named.
func (e *Engine) tokens(ctx context.Context, w *writer, what string) ([]int32, error) {
	body, err := w.end()
	if err != nil {
		return nil, err
	}
	data, status, err := e.small(ctx, http.MethodPost, routeTokenize, body, maxTokensAnswer)
	if err != nil {
		var f *turn.Fault
		unread := what == rendering && e.Kind() == KindSGLang && (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity)
		if missing(status) && errors.As(err, &f) && f.Code != turn.CodeUnknownModel || unread {
			e.lacks(what)
			return nil, ErrNone
		}
		return nil, err
	}
	s := scan{b: data}
	ids, found := []int32{}, false
	if s.peek() == '{' && s.open('{') {
		for key, ok := s.member(); ok; key, ok = s.member() {
			if string(key) == "tokens" || string(key) == "input_ids" {
				ids, found = s.ids(ids[:0])
			} else {
				s.skip()
			}
		}
	}
	if s.err != nil || !found {
		return nil, &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeEngineError,
			Message: "the engine's answer to /tokenize holds no ids", Cause: s.err}
	}
	return ids, nil
}

// Detokenize gives the text of ids, special tokens included.
func (e *Engine) Detokenize(ctx context.Context, model string, ids []int32) (string, error) {
	kind := e.Kind()
	if kind != KindVLLM && kind != KindSGLang || !e.has(routeDetokenize) {
		return "", ErrNone
	}
	var w writer
	w.put("model", model)
	w.ids("tokens", ids)
	if kind == KindSGLang {
		w.put("skip_special_tokens", false)
	}
	body, err := w.end()
	if err != nil {
		return "", err
	}
	data, status, err := e.small(ctx, http.MethodPost, routeDetokenize, body, maxTokensAnswer)
	if err != nil {
		var f *turn.Fault
		if missing(status) && errors.As(err, &f) && f.Code != turn.CodeUnknownModel {
			e.lacks(routeDetokenize)
			return "", ErrNone
		}
		return "", err
	}
	var told struct{ Prompt, Text *string }
	if err := json.Unmarshal(data, &told); err != nil {
		return "", &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeEngineError,
			Message: "the engine's answer to /detokenize cannot be read", Cause: err}
	}
	switch {
	case told.Prompt != nil:
		return *told.Prompt, nil
	case told.Text != nil:
		return *told.Text, nil
	}
	return "", &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeEngineError,
		Message: "the engine's answer to /detokenize holds no text"}
}

// TokenIn says whether the engine would honour the call's PromptIDs and the answer
// would be parsed as in chat.
func (e *Engine) TokenIn(c *Call) bool {
	r := c.Request
	if e.know(c.Model).noTokenIn || pictures(r) {
		return false
	}
	switch e.Kind() {
	case KindSGLang:
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.knows == nil || e.knows[mInputIDs]
	case KindVLLM:
	default:
		return false
	}
	// Completions parse nothing and force no call.
	forced := r.Choice.Name != "" || r.Choice.Mode == "required" || r.Parallel != nil && !*r.Parallel && len(r.Tools) > 0
	if forced || r.Logprobs || len(r.Tools) > 0 && c.ToolParser == "" || c.ReasoningParser == "" {
		return false
	}
	if parser.Check(c.ReasoningParser, c.ToolParser) != nil {
		return false
	}
	return r.MaxTokens != nil || e.maxLen(c.Model) > 0
}

func pictures(r *turn.Request) bool {
	return slices.ContainsFunc(r.Messages, func(m turn.Message) bool {
		return slices.ContainsFunc(m.Content, func(p turn.Part) bool { return p.Raw != nil })
	})
}

// lastFew is enough ids for a template to open the thinking with: the mark and a line's
// end.
const lastFew = 4

// ending is how a prompt ends.
type ending struct {
	model string
	ids   [lastFew]int32
}

// opens says whether a prompt ends within the thinking. Templates end in few ways, so
// what a few last ids mean is remembered.
func (e *Engine) opens(ctx context.Context, model string, prompt []int32) bool {
	key := ending{model: model}
	copy(key.ids[:], prompt[max(0, len(prompt)-lastFew):])
	e.mu.Lock()
	inside, known := e.endings[key]
	e.mu.Unlock()
	if known {
		return inside
	}
	text, err := e.Detokenize(ctx, model, prompt[max(0, len(prompt)-lastFew):])
	if err != nil {
		return false
	}
	inside = strings.HasSuffix(strings.TrimSpace(text), "<think>")
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.endings == nil || len(e.endings) > 1000 {
		e.endings = map[ending]bool{}
	}
	e.endings[key] = inside
	return inside
}
