package turn

import (
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// anchorMark begins every anchor of ours; another's signature does not. With it an
// anchor is valid base64 as a whole: Google's SDKs take a signature for encoded bytes,
// and write it anew, Python's in the other alphabet.
const anchorMark = "icecore1"

// maxAnchor bounds what Open inflates.
const maxAnchor = 16 << 20

var (
	anchorWriter, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<17))
	anchorReader, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxAnchor))
)

// Anchor names the trace that a turn came from and holds its reasoning. Harnesses
// return it untouched (as signature, encrypted_content or thoughtSignature) even
// where they drop or empty the reasoning beside it.
type Anchor struct {
	TraceID   string
	Reasoning string
}

// Seal writes an anchor as base64 with padding.
func (a Anchor) Seal() string {
	raw := binary.AppendUvarint(nil, uint64(len(a.TraceID)))
	raw = append(raw, a.TraceID...)
	raw = append(raw, a.Reasoning...)
	return anchorMark + base64.StdEncoding.EncodeToString(anchorWriter.EncodeAll(raw, nil))
}

// standard turns base64 for URLs into the usual one.
var standard = strings.NewReplacer("-", "+", "_", "/")

// OpenAnchor reads what Seal wrote, in either alphabet of base64; false: it is not ours.
func OpenAnchor(text string) (Anchor, bool) {
	body, ours := strings.CutPrefix(text, anchorMark)
	if !ours {
		return Anchor{}, false
	}
	packed, err := base64.RawStdEncoding.DecodeString(standard.Replace(strings.TrimRight(body, "=")))
	if err != nil {
		return Anchor{}, false
	}
	raw, err := anchorReader.DecodeAll(packed, nil)
	if err != nil {
		return Anchor{}, false
	}
	n, used := binary.Uvarint(raw)
	if used <= 0 || n > uint64(len(raw)-used) {
		return Anchor{}, false
	}
	return Anchor{TraceID: string(raw[used : used+int(n)]), Reasoning: string(raw[used+int(n):])}, true
}

// maxSealed bounds what the anchors of one request hold together: a few bytes of a
// body could otherwise become gigabytes.
const maxSealed = 64 << 20

// Anchor opens the anchor in sealed, which belongs to the message that is put into
// Messages next, and notes its trace in Anchors; false: it is not ours. path names its
// place in the harness's body. The error is a *Fault.
func (r *Request) Anchor(sealed, path string) (Anchor, bool, error) {
	a, ours, err := r.Open(sealed, path)
	if ours {
		r.Anchored(len(r.Messages), a.TraceID)
	}
	return a, ours, err
}

// Open is Anchor for what belongs to no message yet: it only counts what the request
// holds.
func (r *Request) Open(sealed, path string) (Anchor, bool, error) {
	a, ours := OpenAnchor(sealed)
	if !ours {
		return Anchor{}, false, nil
	}
	if r.sealed += len(a.Reasoning); r.sealed > maxSealed {
		return Anchor{}, false, &Fault{Status: 413, Code: CodeTooLarge, Field: path,
			Message: path + ": the reasoning that signatures of this request hold is larger than 64 MiB"}
	}
	return a, true, nil
}

// Anchored notes that the message at a place came from a trace. The first to say so
// stays.
func (r *Request) Anchored(at int, traceID string) {
	if r.Anchors == nil {
		r.Anchors = map[int]string{}
	}
	if r.Anchors[at] == "" {
		r.Anchors[at] = traceID
	}
}
