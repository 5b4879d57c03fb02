package verify

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"hash"
)

// meaning hashes the fields of a trace: each that is present as its number, its
// length in eight bytes, little-endian, and its bytes.
type meaning struct{ hash.Hash }

func (m meaning) field(number byte, present bool, value []byte) {
	if present {
		m.Write(binary.LittleEndian.AppendUint64([]byte{number}, uint64(len(value))))
		m.Write(value)
	}
}

// text writes a text; an empty one is absent.
func (m meaning) text(number byte, s string) { m.field(number, s != "", []byte(s)) }

func (m meaning) number(number byte, n sql.NullInt64) {
	m.field(number, n.Valid, binary.LittleEndian.AppendUint64(nil, uint64(n.Int64)))
}

// contents computes the content hash of every trace anew: SHA-256 over the
// length of the prompt hash, the prompt hash, and the hash of all other fields.
// (The prompt hash itself is checked against the ids elsewhere.)
func (v *run) contents(r *rollout) {
	r.countBuilders()
	for _, t := range r.traces {
		request, ok1 := v.body(r, t, "request")
		response, ok2 := v.body(r, t, "response")
		if !ok1 || !ok2 || t.length() > 0 && t.tape == nil {
			continue // what is missing was told
		}
		v.checked(checkContent, 1)
		h := sha256.New()
		h.Write([]byte{byte(len(t.promptHash))})
		h.Write(t.promptHash)
		h.Write(t.meaning(request, response))
		if sum := h.Sum(nil); !bytes.Equal(sum, t.contentHash) {
			v.fail(checkContent, r.name(), t.id, "what is stored has the content hash %x, acknowledged was %x", sum, t.contentHash)
		}
	}
}

func (t *traceRow) meaning(request, response []byte) []byte {
	m := meaning{sha256.New()}
	m.text(1, t.id)
	m.text(2, t.rolloutID)
	m.number(3, t.seq)
	var ids []byte
	if t.tape != nil {
		for _, id := range t.tape.ids(t.prompt(), t.length()) {
			ids = binary.LittleEndian.AppendUint32(ids, uint32(id))
		}
	}
	m.field(4, t.responseLength.Valid, ids)
	m.field(5, t.hasLogprobs, t.logprobs.form)
	m.field(6, t.incomplete, nil)
	m.number(7, t.policyVersion)
	var spans []byte
	for _, s := range t.spans {
		spans = binary.LittleEndian.AppendUint64(spans, uint64(s.start))
		spans = binary.LittleEndian.AppendUint64(spans, uint64(s.version))
	}
	m.field(8, len(t.spans) > 0, spans)
	m.text(9, t.status)
	m.text(10, t.finish.String)
	m.text(11, t.choiceGroup.String)
	m.number(12, t.choiceIndex)
	m.text(13, t.kind)
	m.text(14, t.task.String)
	m.text(15, t.group.String)
	m.number(16, t.sampleIndex)
	for i, s := range t.texts {
		m.text(17+byte(i), s.String)
	}
	for i, s := range t.documents {
		m.field(25+byte(i), s.Valid, []byte(s.String))
	}
	m.text(29, t.failure.String)
	m.number(30, t.started)
	m.number(31, t.firstToken)
	m.number(32, t.finished)
	m.field(33, t.requestBytes.Valid, request)
	m.field(34, t.responseBytes.Valid, response)
	return m.Sum(nil)
}
