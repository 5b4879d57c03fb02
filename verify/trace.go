package verify

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"maps"
	"slices"
)

const traceColumns = `trace_key, rollout_key, batch, trace_id, rollout_id, content_hash, seq, tape_key, prompt_length,
	response_length, prompt_hash, has_logprobs, ids_incomplete, policy_version, policy_version_spans, status, finish_reason,
	choice_group, choice_index, kind, task_id, group_id, sample_index, harness, harness_version, model, tokenizer, api,
	parent_rollout_id, chat_template_hash, tools_hash, sampling, usage, metadata, extra, error, epoch_us(started_at),
	epoch_us(first_token_at), epoch_us(finished_at), request_bytes, response_bytes`

// traceRow is a row of ice.traces.
type traceRow struct {
	key, rolloutKey, batch        int64
	id, rolloutID                 string
	contentHash                   []byte
	seq                           sql.NullInt64
	tapeKey                       int64
	promptLength, responseLength  sql.NullInt64
	promptHash                    []byte
	hasLogprobs, incomplete       bool
	policyVersion                 sql.NullInt64
	spans                         []versionSpan
	spansBad                      bool
	status                        string
	finish, choiceGroup           sql.NullString
	choiceIndex                   sql.NullInt64
	kind                          string
	task, group                   sql.NullString
	sampleIndex                   sql.NullInt64
	texts                         [8]sql.NullString // harness to tools_hash
	documents                     [4]sql.NullString // sampling to extra
	failure                       sql.NullString
	started, firstToken, finished sql.NullInt64
	requestBytes, responseBytes   sql.NullInt64

	logprobs *logprobs
	// tape holds the ids; nil when there are none, or they cannot be told.
	tape *tape
}

type versionSpan struct{ start, version int64 }

func (t *traceRow) scan(s scan) error {
	var spans any
	to := []any{&t.key, &t.rolloutKey, &t.batch, &t.id, &t.rolloutID, &t.contentHash, &t.seq, &t.tapeKey, &t.promptLength,
		&t.responseLength, &t.promptHash, &t.hasLogprobs, &t.incomplete, &t.policyVersion, &spans, &t.status, &t.finish,
		&t.choiceGroup, &t.choiceIndex, &t.kind, &t.task, &t.group, &t.sampleIndex}
	for i := range t.texts {
		to = append(to, &t.texts[i])
	}
	for i := range t.documents {
		to = append(to, &t.documents[i])
	}
	to = append(to, &t.failure, &t.started, &t.firstToken, &t.finished, &t.requestBytes, &t.responseBytes)
	if err := s(to...); err != nil {
		return err
	}
	list, _ := spans.([]any)
	for _, e := range list {
		m, _ := e.(map[string]any)
		start, ok1 := m["start"].(int64)
		version, ok2 := m["version"].(int64)
		t.spansBad = t.spansBad || !ok1 || !ok2
		t.spans = append(t.spans, versionSpan{start, version})
	}
	t.spansBad = t.spansBad || spans != nil && len(list) == 0
	return nil
}

func (t *traceRow) prompt() int   { return int(t.promptLength.Int64) }
func (t *traceRow) response() int { return int(t.responseLength.Int64) }
func (t *traceRow) length() int   { return t.prompt() + t.response() }

var (
	statuses = []string{"ok", "aborted", "client_gone", "upstream_error"}
	finishes = []string{"stop", "length", "tool_calls", "content_filter", "abort"}
	kinds    = []string{"agent", "auxiliary"}
)

// trace checks a trace row by itself, and finds its tape.
func (v *run) trace(r *rollout, t *traceRow) {
	v.checked(checkTraces, 1)
	fail := func(format string, args ...any) { v.fail(checkTraces, r.name(), t.id, format, args...) }
	if r.id != "" && t.rolloutID != r.id {
		fail("says that its rollout is %q, where its rollout_key is that of %q", t.rolloutID, r.id)
	}
	switch {
	case t.promptLength.Int64 < 0 || t.responseLength.Int64 < 0:
		fail("has the lengths %d and %d", t.promptLength.Int64, t.responseLength.Int64)
		r.damaged = true
		return
	case t.promptLength.Valid != (t.promptHash != nil):
		fail("prompt_length and prompt_hash must be known together")
	case t.promptHash != nil && len(t.promptHash) != sha256.Size:
		fail("prompt_hash has %d bytes", len(t.promptHash))
	}
	if len(t.contentHash) != sha256.Size {
		fail("content_hash has %d bytes", len(t.contentHash))
	}
	for _, c := range []struct {
		name, value string
		known       bool
		allowed     []string
	}{{"status", t.status, true, statuses}, {"kind", t.kind, true, kinds}, {"finish_reason", t.finish.String, t.finish.Valid, finishes}} {
		if c.known && !slices.Contains(c.allowed, c.value) {
			fail("%s is %q", c.name, c.value)
		}
	}
	for _, c := range []struct {
		name  string
		value sql.NullInt64
	}{{"seq", t.seq}, {"policy_version", t.policyVersion}, {"choice_index", t.choiceIndex}, {"sample_index", t.sampleIndex}} {
		if c.value.Int64 < 0 {
			fail("%s is %d", c.name, c.value.Int64)
		}
	}
	v.versionSpans(r, t)
	v.findTape(r, t)
}

func (v *run) versionSpans(r *rollout, t *traceRow) {
	last := int64(-1)
	for i, s := range t.spans {
		if t.spansBad || i == 0 && s.start != 0 || s.start <= last || s.version < 0 ||
			s.start > 0 && s.start >= t.responseLength.Int64 {
			v.fail(checkTraces, r.name(), t.id, "policy_version_spans %v do not divide a response of %d ids", t.spans, t.response())
			return
		}
		last = s.start
	}
	if t.spansBad {
		v.fail(checkTraces, r.name(), t.id, "policy_version_spans are empty or hold no numbers")
	}
}

func (v *run) findTape(r *rollout, t *traceRow) {
	if t.length() == 0 {
		if t.tapeKey != 0 {
			v.fail(checkTraces, r.name(), t.id, "has no ids, but lies on tape %d", t.tapeKey)
		}
		return
	}
	tape := r.tapes[t.tapeKey]
	switch {
	case tape == nil:
		v.fail(checkTraces, r.name(), t.id, "lies on tape %d, which its rollout does not have", t.tapeKey)
	case tape.broken: // told by the tape
	case tape.length() < t.length():
		v.fail(checkTraces, r.name(), t.id, "has %d ids, but tape %d holds %d", t.length(), tape.key, tape.length())
	default:
		t.tape = tape
		return
	}
	r.damaged = true
}

// promptHashes compares the SHA-256 of every prompt. The prompts of one tape
// are beginnings of each other, so the tape is hashed once.
func (v *run) promptHashes(r *rollout) {
	onTape := map[*tape][]*traceRow{}
	for _, t := range r.traces {
		if t.promptHash != nil && (t.tape != nil || t.length() == 0) {
			onTape[t.tape] = append(onTape[t.tape], t)
		}
	}
	for tape, traces := range onTape {
		slices.SortFunc(traces, func(a, b *traceRow) int { return cmp.Compare(a.prompt(), b.prompt()) })
		var pieces [][]int32
		if tape != nil {
			pieces = tape.pieces(traces[len(traces)-1].prompt())
		}
		h := sha256.New()
		done := 0
		var buf []byte
		for _, t := range traces {
			for done < t.prompt() {
				n := min(len(pieces[0]), t.prompt()-done)
				buf = buf[:0]
				for _, id := range pieces[0][:n] {
					buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
				}
				h.Write(buf)
				done += n
				if pieces[0] = pieces[0][n:]; len(pieces[0]) == 0 {
					pieces = pieces[1:]
				}
			}
			if sum := h.Sum(nil); !bytes.Equal(sum, t.promptHash) {
				v.fail(checkTraces, r.name(), t.id, "the stored prompt of %d ids has SHA-256 %x, prompt_hash is %x", t.prompt(), sum, t.promptHash)
			}
		}
	}
}

func sortedKeys[V any](m map[int64]V) []int64 { return slices.Sorted(maps.Keys(m)) }
