package generate

import (
	"fmt"
	"strconv"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// Whole implements turn.Provider.
func (Provider) Whole(r *turn.Request, a *turn.Answer) ([]byte, error) {
	dst := []byte(`{"candidates":[`)
	for i := range a.Choices {
		c := &a.Choices[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		w := writer{dst: dst, id: traceOf(&a.Head, i), names: r.Names, last: true}
		var parts []part
		if thought := c.Message.Reasoning; thought != nil && *thought != "" {
			w.thought = *thought
			if !r.Reasoning.Hidden {
				parts = append(parts, part{text: []byte(*thought), thought: true})
			}
		}
		if said := c.Message.Text() + c.Refusal; said != "" {
			// The signature goes on the text itself, where no call takes it.
			parts = append(parts, part{text: []byte(said)})
		}
		for j := range c.Message.Calls {
			call := &c.Message.Calls[j]
			parts = append(parts, part{call: call, text: []byte(call.Arguments)})
		}
		dst, _ = w.candidate(i, parts, finishOf(c.End))
	}
	dst = append(dst, `],"usageMetadata":`...)
	dst = append(appendUsage(dst, a.Usage, &a.Head), ',')
	return append(appendTail(dst, &a.Head), '}'), nil
}

// WholeFlags implements turn.WholeFlagger.
func (Provider) WholeFlags(_ *turn.Request, a *turn.Answer) []string {
	for i := range a.Choices {
		for j := range a.Choices[i].Message.Calls {
			if _, valid := a.Choices[i].Message.Calls[j].Input(); !valid {
				return []string{turn.FlagInvalidArguments}
			}
		}
	}
	return nil
}

// writer writes the parts of one candidate.
type writer struct {
	dst     []byte
	id      string // the trace's
	names   turn.Names
	thought string
	// last: nothing comes after these parts, so a signature has to be among them.
	last bool
	// calls counts those that were written.
	calls int
}

// candidate writes it whole and says whether arguments had to be left out.
func (w *writer) candidate(i int, parts []part, finish string) (dst []byte, flagged bool) {
	w.dst = append(w.dst, `{"content":{"parts":[`...)
	sign := w.last && w.signable(parts)
	for n, p := range parts {
		if n > 0 {
			w.dst = append(w.dst, ',')
		}
		switch {
		case p.call != nil:
			flagged = !w.call(p, sign) || flagged
			sign = false // on the first call, which is where harnesses keep it
		case p.thought:
			w.dst = append(body.AppendString(append(w.dst, `{"text":`...), string(p.text)), `,"thought":true}`...)
		default:
			w.dst = body.AppendString(append(w.dst, `{"text":`...), string(p.text))
			if sign && n == len(parts)-1 {
				w.signature()
				sign = false
			}
			w.dst = append(w.dst, '}')
		}
	}
	if w.last && (sign || len(parts) == 0) {
		// The text is behind already, or there was none.
		if len(parts) > 0 {
			w.dst = append(w.dst, ',')
		}
		w.dst = append(w.dst, `{"text":""`...)
		if sign {
			w.signature()
		}
		w.dst = append(w.dst, '}')
	}
	w.dst = append(w.dst, `],"role":"model"},`...)
	if finish != "" {
		w.dst = append(append(append(w.dst, `"finishReason":"`...), finish...), `",`...)
	}
	return append(strconv.AppendInt(append(w.dst, `"index":`...), int64(i), 10), '}'), flagged
}

// signable says that a signature is worth sending: there is thinking to come back, or
// a call, whose source it tells.
func (w *writer) signable(parts []part) bool {
	for _, p := range parts {
		if p.call != nil {
			return true
		}
	}
	return w.thought != ""
}

func (w *writer) signature() {
	anchor := turn.Anchor{TraceID: w.id, Reasoning: w.thought}
	w.dst = body.AppendString(append(w.dst, `,"thoughtSignature":`...), anchor.Seal())
}

// call writes a call, and says whether its arguments were an object.
func (w *writer) call(p part, sign bool) bool {
	c := turn.Call{ID: p.call.ID, Name: p.call.Name, Arguments: string(p.text)}
	id := c.ID
	if id == "" {
		id = fmt.Sprintf("call_%s_%d", strings.ReplaceAll(w.id, "-", ""), w.calls)
	}
	w.calls++
	args, valid := c.Input()
	w.dst = body.AppendString(append(w.dst, `{"functionCall":{"id":`...), id)
	w.dst = body.AppendString(append(w.dst, `,"name":`...), w.names.Of(c.Name).Name)
	w.dst = append(append(append(w.dst, `,"args":`...), args...), '}')
	if sign {
		w.signature()
	}
	w.dst = append(w.dst, '}')
	return valid
}

// finishOf gives why the answer ended in this API's words; calls end in STOP too.
func finishOf(e turn.End) string {
	switch e.Finish {
	case turn.FinishLength:
		return "MAX_TOKENS"
	case turn.FinishContentFilter:
		return "SAFETY"
	}
	return "STOP"
}

// appendUsage writes counts; thoughts are not part of candidates here.
func appendUsage(dst []byte, u turn.Usage, h *turn.Head) []byte {
	if u.Prompt == nil {
		u.Prompt = h.PromptTokens
	}
	prompt, completion := turn.Count(u.Prompt), turn.Count(u.Completion)
	thoughts := min(turn.Count(u.Reasoning), completion)
	dst = strconv.AppendInt(append(dst, `{"promptTokenCount":`...), prompt, 10)
	dst = strconv.AppendInt(append(dst, `,"candidatesTokenCount":`...), completion-thoughts, 10)
	if u.Reasoning != nil {
		dst = strconv.AppendInt(append(dst, `,"thoughtsTokenCount":`...), thoughts, 10)
	}
	if u.Cached != nil {
		dst = strconv.AppendInt(append(dst, `,"cachedContentTokenCount":`...), *u.Cached, 10)
	}
	dst = strconv.AppendInt(append(dst, `,"totalTokenCount":`...), prompt+completion, 10)
	return append(dst, '}')
}
