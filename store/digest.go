package store

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"

	"icecore/trace"
)

// digest writes fields into a hash so that no two different meanings give the
// same bytes: each field has a tag, and each text its length.
type digest struct {
	h   hash.Hash
	buf []byte
}

func (d *digest) bytes(tag byte, v []byte, present bool) {
	if !present {
		return
	}
	d.buf = append(d.buf[:0], tag)
	d.buf = binary.LittleEndian.AppendUint64(d.buf, uint64(len(v)))
	d.h.Write(d.buf)
	d.h.Write(v)
}

func (d *digest) str(tag byte, v string) { d.bytes(tag, []byte(v), v != "") }

func (d *digest) num(tag byte, v *int64) {
	if v != nil {
		d.bytes(tag, binary.LittleEndian.AppendUint64(nil, uint64(*v)), true)
	}
}

func (d *digest) flag(tag byte, v bool) { d.bytes(tag, nil, v) }

// attributesDigest is SHA-256 over everything that a trace means except its
// prompt, which is hashed where its beginning may already have been.
func attributesDigest(t *trace.Trace) []byte {
	d := &digest{h: sha256.New()}
	d.str(1, t.TraceID)
	d.str(2, t.RolloutID)
	d.num(3, t.Seq)
	d.bytes(4, trace.Bytes(t.ResponseIDs), t.ResponseIDs != nil)
	d.logprobs(5, t.ResponseLogprobs)
	d.flag(6, t.IDsIncomplete)
	d.num(7, t.PolicyVersion)
	d.versions(8, t.PolicyVersionSpans)
	d.str(9, string(t.Status))
	d.str(10, t.FinishReason)
	d.str(11, t.ChoiceGroup)
	d.num(12, t.ChoiceIndex)
	d.str(13, string(t.Kind))
	d.str(14, t.Attributes.TaskID)
	d.str(15, t.Attributes.GroupID)
	d.num(16, t.Attributes.SampleIndex)
	d.str(17, t.Attributes.Harness)
	d.str(18, t.Attributes.HarnessVersion)
	d.str(19, t.Attributes.Model)
	d.str(20, t.Tokenizer)
	d.str(21, t.API)
	d.str(22, t.ParentRolloutID)
	d.str(23, t.ChatTemplateHash)
	d.str(24, t.ToolsHash)
	d.bytes(25, t.Sampling, t.Sampling != nil)
	d.bytes(26, t.Usage, t.Usage != nil)
	d.bytes(27, t.Metadata, t.Metadata != nil)
	d.bytes(28, t.Extra, t.Extra != nil)
	d.str(29, t.Error)
	d.num(30, t.StartedAt)
	d.num(31, t.FirstTokenAt)
	d.num(32, t.FinishedAt)
	d.bytes(33, t.RequestBody, t.RequestBody != nil)
	d.bytes(34, t.ResponseBody, t.ResponseBody != nil)
	return d.h.Sum(nil)
}

const canonicalNaN = 0x7fc00000

func (d *digest) logprobs(tag byte, l *trace.Logprobs) {
	if l == nil {
		return
	}
	buf := make([]byte, 0, 5*l.Len())
	for i := range l.Values {
		v, known := l.At(i)
		bits := math.Float32bits(v)
		if v != v { // all NaN mean the same
			bits = canonicalNaN
		}
		if !known {
			buf = append(buf, 0)
			continue
		}
		buf = append(buf, 1)
		buf = binary.LittleEndian.AppendUint32(buf, bits)
	}
	d.bytes(tag, buf, true)
}

func (d *digest) versions(tag byte, spans []trace.VersionSpan) {
	if len(spans) == 0 {
		return
	}
	var buf []byte
	for _, s := range spans {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(s.Start))
		buf = binary.LittleEndian.AppendUint64(buf, uint64(s.Version))
	}
	d.bytes(tag, buf, true)
}

// contentHash joins the two parts; promptHash is nil when the prompt is not
// known.
func contentHash(promptHash, attributes []byte) []byte {
	h := sha256.New()
	h.Write([]byte{byte(len(promptHash))})
	h.Write(promptHash)
	h.Write(attributes)
	return h.Sum(nil)
}

// traceHash is the key of the trace index: half of a SHA-256 is enough to keep
// ids apart and makes the index a third smaller.
func traceHash(id string) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:16]
}
