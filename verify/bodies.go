package verify

import (
	"crypto/sha256"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

type bodyKey struct {
	trace int64
	side  string
}

// body is a row of ice.bodies.
type body struct {
	base int64
	size int
	data []byte
	// raw is kept while another body still builds on it.
	raw      []byte
	builders int
	err      error
	done     bool
}

// countBuilders says of each body how many build on it, so that it is forgotten
// after the last of them.
func (r *rollout) countBuilders() {
	for k, b := range r.bodies {
		if base := r.bodies[bodyKey{b.base, k.side}]; b.base != 0 && base != nil {
			base.builders++
		}
	}
}

// unpack decompresses a body along its chain. Bases come before what builds on
// them, so the chain has an end.
func (r *rollout) unpack(k bodyKey) ([]byte, error) {
	b := r.bodies[k]
	if b.done {
		return b.raw, b.err
	}
	b.done = true
	var dict []byte
	var base *body
	if b.base != 0 {
		base = r.bodies[bodyKey{b.base, k.side}]
		switch {
		case base == nil:
			b.err = fmt.Errorf("builds on the %s of trace_key %d, which is missing", k.side, b.base)
		case b.base >= k.trace:
			b.err = fmt.Errorf("builds on the %s of trace_key %d, which does not come before it", k.side, b.base)
		default:
			if dict, b.err = r.unpack(bodyKey{b.base, k.side}); b.err != nil {
				b.err = fmt.Errorf("builds on the %s of trace_key %d, which cannot be read", k.side, b.base)
			}
		}
	}
	if b.err == nil {
		b.raw, b.err = inflate(b.data, dict, b.size)
	}
	b.data = nil
	if base != nil {
		if base.builders--; base.builders == 0 {
			base.raw = nil
		}
	}
	return b.raw, b.err
}

// dictionary is the number under which frames name the base's bytes.
const dictionary = 1

func inflate(data, dict []byte, size int) ([]byte, error) {
	opts := []zstd.DOption{zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(size, 0)) + 1<<20),
		zstd.WithDecoderMaxWindow(zstd.MaxWindowSize)}
	if len(dict) > 0 {
		opts = append(opts, zstd.WithDecoderDictRaw(dictionary, dict))
	}
	d, err := zstd.NewReader(nil, opts...)
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}
	defer d.Close()
	raw, err := d.DecodeAll(data, []byte{})
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if len(raw) != size {
		return nil, fmt.Errorf("decompress: %d bytes come out, raw_bytes says %d", len(raw), size)
	}
	return raw, nil
}

// body gives a trace's body on one side and checks it against the trace row;
// ok is false when its content cannot be told.
func (v *run) body(r *rollout, t *traceRow, side string) (raw []byte, ok bool) {
	bytes := t.requestBytes
	if side == "response" {
		bytes = t.responseBytes
	}
	k := bodyKey{t.key, side}
	b := r.bodies[k]
	switch {
	case b == nil && !bytes.Valid:
		return nil, true
	case b == nil:
		v.fail(checkBodies, r.name(), t.id, "its %s of %d bytes is not stored", side, bytes.Int64)
		return nil, false
	case !bytes.Valid:
		v.fail(checkBodies, r.name(), t.id, "a %s is stored, though the trace row has none", side)
	case bytes.Int64 != int64(b.size):
		v.fail(checkBodies, r.name(), t.id, "its %s has %d bytes, the trace row says %d", side, b.size, bytes.Int64)
	}
	raw, err := r.unpack(k)
	if b.builders == 0 {
		b.raw = nil
	}
	if err != nil {
		v.fail(checkBodies, r.name(), t.id, "its %s cannot be read: %v", side, err)
		return nil, false
	}
	if sent, known := v.sent[k]; known && sha256.Sum256(raw) != sent {
		v.fail(checkBodies, r.name(), t.id, "its %s is not the one in the journal", side)
	}
	return raw, true
}
