package engine

import (
	"slices"

	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// Sampled gives what is known so far of choice i, at any time, also after a fault. It
// is for the goroutine that calls Next.
func (s *Stream) Sampled(i int) *Sampled {
	out := &Sampled{Told: s.told, ToldFirst: s.toldFirst}
	h := &heard{}
	if i >= 0 && i < len(s.choices) {
		h = s.choices[i]
	}
	if h.weight != "" {
		out.Told, out.ToldFirst = h.weight, false
	}
	for _, word := range s.flags {
		out.flag(word)
	}
	if s.hasPrompt && (len(s.prompt) > 0 || turn.Count(s.prompted(h)) == 0) {
		out.PromptIDs = s.prompt
	} else {
		out.flag(flagPromptMissing)
	}
	if s.sent != nil && s.hasPrompt && !slices.Equal(s.sent, s.prompt) {
		out.flag(flagPromptDiffer)
	}
	logs := s.choose(h, out)
	if s.disagree(h, out.IDs) {
		out.Incomplete = true // of the flags only this one keeps it from being trained
		out.flag(flagDisagree)
	}
	out.pair(logs)
	s.count(h, out)
	out.finish(h, s.engine.word)
	s.versionsOf(h, out)
	slices.Sort(out.Flags)
	return out
}

// choose picks the one list of ids that is recorded, and the log-probs that belong to
// it. nil: there are none.
func (s *Stream) choose(h *heard, out *Sampled) []position {
	logs := h.logprobs
	switch {
	case h.output != nil:
		out.IDs = h.output
	case h.hasIDs:
		out.IDs = h.ids
	case h.hasMeta:
		if out.IDs = idsOf(h.meta); out.IDs != nil {
			logs = h.meta
		}
	case h.hasLogs:
		out.IDs = idsOf(h.logprobs)
	}
	if out.IDs == nil && s.nothing(h) {
		out.IDs = []int32{}
	}
	if out.IDs == nil {
		out.flag(flagMissing)
		return nil
	}
	if out.IDs = slices.Clip(out.IDs); len(out.IDs) == 0 {
		out.IDs = []int32{}
	}
	if h.hasMeta && len(h.meta) == len(out.IDs) {
		return h.meta // it has ids of its own, to be checked
	}
	if !h.hasLogs {
		return nil
	}
	return logs
}

// disagree says that one source of ids is another answer than the one that is recorded.
func (s *Stream) disagree(h *heard, ids []int32) bool {
	if ids == nil {
		return false
	}
	if h.hasIDs && !slices.Equal(h.ids, ids) {
		return true
	}
	if meta := idsOf(h.meta); h.hasMeta && meta != nil && !slices.Equal(meta, ids) {
		return true
	}
	if h.completionN != nil || s.usage.usage.Completion != nil {
		return false // the count says whether ids are missing
	}
	return h.hasLogs && len(idsOf(h.logprobs)) > len(ids)
}

// prompted is how many ids the engine counted in the prompt; nil: it did not say.
func (s *Stream) prompted(h *heard) *int64 {
	if n := s.usage.usage.Prompt; n != nil {
		return n
	}
	return h.promptN
}

// nothing says that a choice surely has no ids: the engine counted none, or it told the
// prompt's ids, so that it would tell others, and said nothing.
func (s *Stream) nothing(h *heard) bool {
	if h.said {
		return false
	}
	if h.completionN != nil {
		return *h.completionN == 0
	}
	if n := s.usage.usage.Completion; n != nil {
		return *n == 0
	}
	return s.hasPrompt && (s.plan.kind == KindVLLM || h.finish == finishAbort)
}

// count checks ids against what the engine counted.
func (s *Stream) count(h *heard, out *Sampled) {
	u := &s.usage.usage
	if s.over.Load() && u.Prompt == nil && u.Completion == nil && h.completionN == nil {
		out.flag(flagUsageMissing)
	}
	if prompt := s.prompted(h); out.PromptIDs != nil && prompt != nil && *prompt != int64(len(s.prompt)) {
		// A context that is not what the engine read must not be trained in.
		out.Incomplete = true
		out.flag(flagUsagePrompt)
	}
	counted, have := h.completionN, int64(len(out.IDs))
	if counted == nil && u.Completion != nil && out.IDs != nil {
		// The usage counts all choices together.
		counted, have = u.Completion, 0
		for _, other := range s.choices {
			var of Sampled
			s.choose(other, &of)
			have += int64(len(of.IDs))
		}
	}
	switch {
	case counted == nil || out.IDs == nil:
	case *counted > have:
		out.Incomplete = true
		out.flag(flagIncomplete)
	case *counted < have:
		out.Incomplete = true // which of them were sampled is not known
		out.flag(flagUsageCompletion)
	}
}

func (out *Sampled) finish(h *heard, word func(string) string) {
	if h.odd == "" && slices.Contains(trace.FinishReasons, h.finish) {
		out.Finish = h.finish
	}
	out.StopReason = word(h.stop)
	if h.odd != "" {
		out.flag(flagFinishUnknown)
		out.keep("finish_reason", word(h.odd))
	}
	if h.finish == turn.FinishToolCalls && h.named == nil {
		out.flag(flagCallsMissing)
	}
	for _, named := range h.named {
		if !named && h.finish != "" {
			out.flag(flagCallUnnamed)
		}
	}
	if h.finish == turn.FinishStop && h.stopText {
		out.flag(flagPastStop)
	}
}

// versionsOf takes the spans that the engine told, where they fit the ids.
func (s *Stream) versionsOf(h *heard, out *Sampled) {
	spans := h.spans
	if spans == nil && s.asked == 1 {
		spans = s.spans
	}
	if len(spans) == 0 || out.IDs == nil {
		return
	}
	var fits bool
	if out.Versions, out.VersionStrings, fits = versions(spans, len(out.IDs)); !fits {
		out.flag(flagVersionsOdd)
		told := make([]any, min(len(spans), maxSpans))
		for i, span := range spans[:len(told)] {
			told[i] = map[string]any{"version": span.version, "start": span.start, "end": span.end}
		}
		out.keep("weight_versions", told)
	}
}

// maxSpans is how many spans are kept in metadata, which has them only where they are
// of no use.
const maxSpans = 64

func (out *Sampled) flag(word string) {
	if !slices.Contains(out.Flags, word) {
		out.Flags = append(out.Flags, word)
	}
}

func (out *Sampled) keep(name string, value any) {
	if out.Raw == nil {
		out.Raw = map[string]any{}
	}
	out.Raw[name] = value
}
