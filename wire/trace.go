package wire

import (
	"fmt"

	"icecore/trace"
)

// seqWarning is given with every trace that has no seq.
const seqWarning = "seq: absent, so this trace is ordered after all that have one, by trace_id"

var traceKind *kind[trace.Trace]

// Set in init: keeping unknown fields looks at the name of the list.
func init() {
	traceKind = &kind[trace.Trace]{
		list:   "traces",
		fields: traceFields,
		id:     func(t *trace.Trace) string { return t.TraceID },
		finish: finishTrace,
	}
}

var traceFields = newTable(keepUnknown,
	field[trace.Trace]{name: "trace_id", set: text(traceID)},
	field[trace.Trace]{name: "rollout_id", set: text(rolloutID)},
	field[trace.Trace]{name: "seq", set: optionalInteger(seq)},
	field[trace.Trace]{name: "prompt_token_ids", set: readPromptIDs},
	field[trace.Trace]{name: "response_token_ids", set: readResponseIDs},
	field[trace.Trace]{name: "response_logprobs", set: readLogprobs, words: true},
	field[trace.Trace]{name: "prompt_prefix", set: readPrefix},
	field[trace.Trace]{name: "prompt_hash", set: readHash},
	field[trace.Trace]{name: "ids_incomplete", set: boolean(idsIncomplete)},
	field[trace.Trace]{name: "policy_version", set: optionalInteger(policyVersion)},
	field[trace.Trace]{name: "policy_version_spans", set: readSpans},
	field[trace.Trace]{name: "status", set: text(status)},
	field[trace.Trace]{name: "finish_reason", set: text(finishReason)},
	field[trace.Trace]{name: "choice_group", set: text(choiceGroup)},
	field[trace.Trace]{name: "choice_index", set: optionalInteger(choiceIndex)},
	field[trace.Trace]{name: "kind", set: text(traceKindOf)},
	field[trace.Trace]{name: "task_id", set: text(taskID)},
	field[trace.Trace]{name: "group_id", set: text(groupID)},
	field[trace.Trace]{name: "sample_index", set: optionalInteger(sampleIndex)},
	field[trace.Trace]{name: "harness", set: text(harness)},
	field[trace.Trace]{name: "harness_version", set: text(harnessVersion)},
	field[trace.Trace]{name: "model", set: text(model)},
	field[trace.Trace]{name: "tokenizer", set: text(tokenizer)},
	field[trace.Trace]{name: "api", set: text(api)},
	field[trace.Trace]{name: "parent_rollout_id", set: text(parentRolloutID)},
	field[trace.Trace]{name: "chat_template_hash", set: text(chatTemplateHash)},
	field[trace.Trace]{name: "tools_hash", set: text(toolsHash)},
	field[trace.Trace]{name: "sampling", set: jsonObject(sampling)},
	field[trace.Trace]{name: "usage", set: jsonObject(usage)},
	field[trace.Trace]{name: "metadata", set: jsonObject(metadata)},
	field[trace.Trace]{name: "started_at", set: moment(startedAt)},
	field[trace.Trace]{name: "first_token_at", set: moment(firstTokenAt)},
	field[trace.Trace]{name: "finished_at", set: moment(finishedAt)},
	field[trace.Trace]{name: "error", set: textOrJSON(errorText)},
	field[trace.Trace]{name: "request", set: body(requestBody)},
	field[trace.Trace]{name: "response", set: body(responseBody)},
	// Written by EncodeTraceJSON, so that a copied trace stays flagged.
	field[trace.Trace]{name: "text_repaired", set: boolean(textRepaired)},
	// What GET /v1/traces/{trace_id} adds to a trace is no part of it.
	field[trace.Trace]{name: "stored", set: passOver},
)

// Where each field of a trace lives, for all wire formats.
func traceID(t *trace.Trace) *string          { return &t.TraceID }
func rolloutID(t *trace.Trace) *string        { return &t.RolloutID }
func seq(t *trace.Trace) **int64              { return &t.Seq }
func idsIncomplete(t *trace.Trace) *bool      { return &t.IDsIncomplete }
func policyVersion(t *trace.Trace) **int64    { return &t.PolicyVersion }
func status(t *trace.Trace) *trace.Status     { return &t.Status }
func finishReason(t *trace.Trace) *string     { return &t.FinishReason }
func choiceGroup(t *trace.Trace) *string      { return &t.ChoiceGroup }
func choiceIndex(t *trace.Trace) **int64      { return &t.ChoiceIndex }
func traceKindOf(t *trace.Trace) *trace.Kind  { return &t.Kind }
func taskID(t *trace.Trace) *string           { return &t.Attributes.TaskID }
func groupID(t *trace.Trace) *string          { return &t.Attributes.GroupID }
func sampleIndex(t *trace.Trace) **int64      { return &t.Attributes.SampleIndex }
func harness(t *trace.Trace) *string          { return &t.Attributes.Harness }
func harnessVersion(t *trace.Trace) *string   { return &t.Attributes.HarnessVersion }
func model(t *trace.Trace) *string            { return &t.Attributes.Model }
func tokenizer(t *trace.Trace) *string        { return &t.Tokenizer }
func api(t *trace.Trace) *string              { return &t.API }
func parentRolloutID(t *trace.Trace) *string  { return &t.ParentRolloutID }
func chatTemplateHash(t *trace.Trace) *string { return &t.ChatTemplateHash }
func toolsHash(t *trace.Trace) *string        { return &t.ToolsHash }
func sampling(t *trace.Trace) *[]byte         { return &t.Sampling }
func usage(t *trace.Trace) *[]byte            { return &t.Usage }
func metadata(t *trace.Trace) *[]byte         { return &t.Metadata }
func startedAt(t *trace.Trace) **int64        { return &t.StartedAt }
func firstTokenAt(t *trace.Trace) **int64     { return &t.FirstTokenAt }
func finishedAt(t *trace.Trace) **int64       { return &t.FinishedAt }
func errorText(t *trace.Trace) *string        { return &t.Error }
func requestBody(t *trace.Trace) *[]byte      { return &t.RequestBody }
func responseBody(t *trace.Trace) *[]byte     { return &t.ResponseBody }
func textRepaired(t *trace.Trace) *bool       { return &t.TextRepaired }

func readPromptIDs(s *scanner, t *trace.Trace) error {
	ids, err := s.tokenIDs()
	t.PromptIDs = trace.TokensOf(ids)
	return err
}

func readResponseIDs(s *scanner, t *trace.Trace) (err error) {
	t.ResponseIDs, err = s.tokenIDs()
	return err
}

func readLogprobs(s *scanner, t *trace.Trace) (err error) {
	t.ResponseLogprobs, err = s.logprobs()
	return err
}

func passOver(s *scanner, _ *trace.Trace) error {
	_, err := s.skip(false)
	return err
}

func readHash(s *scanner, t *trace.Trace) error {
	if s.peek() != '"' {
		return s.wrongType("64 hexadecimal digits")
	}
	v, err := s.textBytes()
	if err != nil {
		return err
	}
	hash, wrong := parseHash(v)
	if wrong != nil {
		return wrong
	}
	t.PromptHash = hash
	return nil
}

var prefixFields = newTable(refuseUnknown,
	field[trace.PromptPrefix]{name: "trace_id", set: text(func(p *trace.PromptPrefix) *string { return &p.TraceID })},
	field[trace.PromptPrefix]{name: "length", set: integer(func(p *trace.PromptPrefix) *int64 { return &p.Length })},
)

func readPrefix(s *scanner, t *trace.Trace) error {
	t.PromptPrefix = &trace.PromptPrefix{}
	return nested(s, prefixFields, t.PromptPrefix)
}

var spanFields = newTable(refuseUnknown,
	field[trace.VersionSpan]{name: "start", set: integer(func(v *trace.VersionSpan) *int64 { return &v.Start })},
	field[trace.VersionSpan]{name: "version", set: integer(func(v *trace.VersionSpan) *int64 { return &v.Version })},
)

func readSpans(s *scanner, t *trace.Trace) error {
	return list(s, "an array of {start, version}", func(int) error {
		if len(t.PolicyVersionSpans) > s.lim.MaxTokens {
			return tooManyTokens(s.lim.MaxTokens)
		}
		var v trace.VersionSpan
		err := nested(s, spanFields, &v)
		t.PolicyVersionSpans = append(t.PolicyVersionSpans, v)
		return err
	})
}

// finishTrace completes and checks a trace whose fields are read, by whichever
// format.
func finishTrace(s *scanner, t *trace.Trace, rec *record) {
	extra, err := joinMembers(rec.extra)
	if err != nil {
		rec.refuse(err)
		return
	}
	t.Extra = extra
	t.TextRepaired = t.TextRepaired || s.repaired
	if err := t.Validate(s.lim.Limits); err != nil {
		rec.refuse(err)
		return
	}
	if t.Seq == nil {
		rec.warn(seqWarning)
	}
	if l := t.ResponseLogprobs; l != nil {
		if at, n := l.Impossible(); n > 0 {
			rec.warn(fmt.Sprintf("response_logprobs[%d]: %v is above 0, which no log-probability is; %d of %d are: they are kept as sent, and a learner should leave them out",
				at, l.Values[at], n, l.Len()))
		}
	}
}
