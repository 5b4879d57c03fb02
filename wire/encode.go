package wire

import (
	"encoding/hex"
	"math"
	"strconv"

	"icecore/trace"
)

// EncodeTraceJSON appends t in the wire's own field names: decoding the result
// gives an equal trace. What the capturer did not say is left out. Bodies are
// written as they were sent, line breaks included; one that is not JSON is
// written as a string.
func EncodeTraceJSON(dst []byte, t *trace.Trace) []byte {
	e := encoder{out: append(dst, '{'), first: true}
	e.text("trace_id", t.TraceID)
	e.text("rollout_id", t.RolloutID)
	e.integer("seq", t.Seq)
	e.text("task_id", t.Attributes.TaskID)
	e.text("group_id", t.Attributes.GroupID)
	e.integer("sample_index", t.Attributes.SampleIndex)
	e.text("harness", t.Attributes.Harness)
	e.text("harness_version", t.Attributes.HarnessVersion)
	e.text("model", t.Attributes.Model)
	e.text("tokenizer", t.Tokenizer)
	e.text("api", t.API)
	e.text("parent_rollout_id", t.ParentRolloutID)
	e.text("kind", string(t.Kind))
	e.text("status", string(t.Status))
	e.text("finish_reason", t.FinishReason)
	e.text("choice_group", t.ChoiceGroup)
	e.integer("choice_index", t.ChoiceIndex)
	e.integer("policy_version", t.PolicyVersion)
	e.spans(t.PolicyVersionSpans)
	e.text("chat_template_hash", t.ChatTemplateHash)
	e.text("tools_hash", t.ToolsHash)
	e.raw("sampling", t.Sampling)
	e.raw("usage", t.Usage)
	e.raw("metadata", t.Metadata)
	e.time("started_at", t.StartedAt)
	e.time("first_token_at", t.FirstTokenAt)
	e.time("finished_at", t.FinishedAt)
	e.text("error", t.Error)
	e.flag("ids_incomplete", t.IDsIncomplete)
	e.flag("text_repaired", t.TextRepaired)
	e.prefix(t.PromptPrefix)
	if t.PromptHash != nil {
		e.text("prompt_hash", hex.EncodeToString(t.PromptHash))
	}
	if t.PromptIDs != nil {
		e.tokens("prompt_token_ids", t.PromptIDs)
	}
	if t.ResponseIDs != nil {
		e.tokens("response_token_ids", trace.TokensOf(t.ResponseIDs))
	}
	e.logprobs(t.ResponseLogprobs)
	e.body("request", t.RequestBody)
	e.body("response", t.ResponseBody)
	if n := len(t.Extra); n > 2 {
		e.out = append(append(e.out, ','), t.Extra[1:n-1]...)
	}
	return append(e.out, '}')
}

type encoder struct {
	out   []byte
	first bool
}

func (e *encoder) key(name string) {
	if !e.first {
		e.out = append(e.out, ',')
	}
	e.first = false
	e.out = append(append(append(e.out, '"'), name...), '"', ':')
}

func (e *encoder) text(name, v string) {
	if v != "" {
		e.key(name)
		e.out = appendQuoted(e.out, v)
	}
}

func (e *encoder) integer(name string, v *int64) {
	if v != nil {
		e.key(name)
		e.out = strconv.AppendInt(e.out, *v, 10)
	}
}

func (e *encoder) flag(name string, v bool) {
	if v {
		e.key(name)
		e.out = append(e.out, "true"...)
	}
}

func (e *encoder) time(name string, v *int64) {
	if v != nil {
		e.key(name)
		e.out = appendTime(e.out, *v)
	}
}

func (e *encoder) raw(name string, v []byte) {
	if v != nil {
		e.key(name)
		e.out = append(e.out, v...)
	}
}

func (e *encoder) body(name string, v []byte) {
	if v == nil {
		return
	}
	if !validJSON(v) {
		e.key(name)
		text, _ := repairText(v)
		e.out = appendQuoted(e.out, text)
		return
	}
	e.raw(name, v)
}

// validJSON reports whether v is one JSON value.
func validJSON(v []byte) bool {
	s := scanner{buf: v}
	_, err := s.skip(false)
	return err == nil && s.end() == nil
}

func (e *encoder) prefix(p *trace.PromptPrefix) {
	if p == nil {
		return
	}
	e.key("prompt_prefix")
	e.out = appendQuoted(append(e.out, `{"trace_id":`...), p.TraceID)
	e.out = strconv.AppendInt(append(e.out, `,"length":`...), p.Length, 10)
	e.out = append(e.out, '}')
}

func (e *encoder) spans(spans []trace.VersionSpan) {
	if spans == nil {
		return
	}
	e.key("policy_version_spans")
	e.out = append(e.out, '[')
	for i, s := range spans {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		e.out = strconv.AppendInt(append(e.out, `{"start":`...), s.Start, 10)
		e.out = strconv.AppendInt(append(e.out, `,"version":`...), s.Version, 10)
		e.out = append(e.out, '}')
	}
	e.out = append(e.out, ']')
}

func (e *encoder) tokens(name string, ids trace.Tokens) {
	e.key(name)
	e.out = append(e.out, '[')
	first := true
	for _, piece := range ids {
		for _, id := range piece {
			if !first {
				e.out = append(e.out, ',')
			}
			first = false
			e.out = strconv.AppendInt(e.out, int64(id), 10)
		}
	}
	e.out = append(e.out, ']')
}

func (e *encoder) logprobs(l *trace.Logprobs) {
	if l == nil {
		return
	}
	e.key("response_logprobs")
	e.out = append(e.out, '[')
	for i := range l.Values {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		v, known := l.At(i)
		e.out = AppendLogprob(e.out, v, known)
	}
	e.out = append(e.out, ']')
}

// AppendLogprob appends a log-probability so that reading it gives the same bits:
// null when it is not known, a string when it is not finite.
func AppendLogprob(dst []byte, v float32, known bool) []byte {
	f := float64(v)
	switch {
	case !known:
		return append(dst, "null"...)
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 32)
}
