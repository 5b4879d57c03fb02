package store

import (
	"container/list"
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/klauspost/compress/zstd"
)

// bodyPacker compresses bodies against those before them: an agent's request
// repeats the request before. Every maxBodyChain-th body goes back to the last
// such one instead, so that reading one body never reads all of them, and what
// is stored still grows with what is new. What it remembers is a cache: without
// it a body is compressed by itself.
type bodyPacker struct {
	last  map[bodySlot]*list.Element
	order *list.List
	bytes int
	zstd  encoders
}

type bodySlot struct {
	rolloutKey int64
	side       string
}

type bodyBase struct {
	slot             bodySlot
	key, anchor      int64
	body, anchorBody []byte
	chain            int
}

// maxBodyMemory bounds what the packer remembers.
const maxBodyMemory = 64 * mib

func newBodyPacker() *bodyPacker {
	return &bodyPacker{last: map[bodySlot]*list.Element{}, order: list.New(), zstd: encoders{}}
}

// pack gives the compressed rows of rec, which holds bodies as they came.
func (p *bodyPacker) pack(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	out := tableBodies.rows()
	defer out.b.Release()
	for i := range int(rec.NumRows()) {
		key := rec.Column(0).(*array.Int64).Value(i)
		slot := bodySlot{rec.Column(1).(*array.Int64).Value(i), rec.Column(2).(*array.String).Value(i)}
		body := rec.Column(5).(*array.Binary).Value(i)
		base, dict := p.base(slot)
		data, err := p.zstd.compress(body, dict)
		if err != nil {
			return nil, fmt.Errorf("compress body of trace %d: %w", key, err)
		}
		p.remember(slot, key, body)
		out.i64(key)
		out.i64(slot.rolloutKey)
		out.str(slot.side)
		out.i64(base)
		out.i32(len(body))
		out.blob(data)
		out.i64(rec.Column(6).(*array.Int64).Value(i))
		out.end()
	}
	return out.record(), nil
}

func (p *bodyPacker) base(slot bodySlot) (key int64, body []byte) {
	e, ok := p.last[slot]
	if !ok {
		return 0, nil
	}
	b := e.Value.(*bodyBase)
	if b.chain == maxBodyChain {
		return b.anchor, b.anchorBody
	}
	return b.key, b.body
}

func (p *bodyPacker) remember(slot bodySlot, key int64, body []byte) {
	body = append([]byte(nil), body...)
	e, ok := p.last[slot]
	if !ok {
		e = p.order.PushFront(&bodyBase{slot: slot, chain: maxBodyChain})
		p.last[slot] = e
	}
	p.order.MoveToFront(e)
	b := e.Value.(*bodyBase)
	p.bytes -= len(b.body) + len(b.anchorBody)
	b.key, b.body = key, body
	if b.chain++; b.chain > maxBodyChain {
		b.chain, b.anchor, b.anchorBody = 1, key, body
	}
	p.bytes += len(b.body) + len(b.anchorBody)
	for p.bytes > maxBodyMemory && p.order.Len() > 1 {
		oldest := p.order.Back()
		o := oldest.Value.(*bodyBase)
		p.bytes -= len(o.body) + len(o.anchorBody)
		p.order.Remove(oldest)
		delete(p.last, o.slot)
	}
}

// bodyWindow lets a body refer to all of the body before it. There are few windows, so
// that few encoders are kept; a wider one than is needed changes nothing.
func bodyWindow(n int) int {
	w := mib
	for w < n {
		w *= 8
	}
	return min(w, zstd.MaxWindowSize)
}

// maxKeptWindow bounds the windows whose encoders are kept: they hold buffers of that size.
const maxKeptWindow = 8 * mib

// encoders are used again: one has megabytes of tables, and made anew for each body they
// would be most of what the whole server allocates. They are for one goroutine.
type encoders map[encoderKind]*zstd.Encoder

type encoderKind struct {
	window int
	based  bool
}

// dictID marks a frame that needs its base as a raw dictionary.
const dictID = 1

func (es encoders) compress(body, base []byte) ([]byte, error) {
	var dict []zstd.EOption
	if len(base) > 0 {
		dict = []zstd.EOption{zstd.WithEncoderDictRaw(dictID, base)}
	}
	kind := encoderKind{bodyWindow(len(body) + len(base)), len(base) > 0}
	e := es[kind]
	if e != nil {
		if err := e.ResetWithOptions(nil, dict...); err != nil {
			return nil, fmt.Errorf("start zstd: %w", err)
		}
		return e.EncodeAll(body, nil), nil
	}
	e, err := zstd.NewWriter(nil, append(dict, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithWindowSize(kind.window))...)
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}
	if kind.window <= maxKeptWindow {
		es[kind] = e
	}
	return e.EncodeAll(body, nil), nil
}

func decompress(data, base []byte, size int) ([]byte, error) {
	opts := []zstd.DOption{zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(size) + mib),
		zstd.WithDecoderMaxWindow(zstd.MaxWindowSize)}
	if len(base) > 0 {
		opts = append(opts, zstd.WithDecoderDictRaw(dictID, base))
	}
	d, err := zstd.NewReader(nil, opts...)
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}
	defer d.Close()
	body, err := d.DecodeAll(data, make([]byte, 0, size))
	if err != nil {
		return nil, fmt.Errorf("decompress body: %w", err)
	}
	if len(body) != size {
		return nil, fmt.Errorf("decompress body: %d bytes instead of %d", len(body), size)
	}
	return body, nil
}

// body reads one body; nil when the trace has none on that side.
func (s *Store) body(ctx context.Context, rolloutKey, traceKey int64, side string) ([]byte, error) {
	bodies, err := readBodies(ctx, s.wh(), map[int64][]int64{rolloutKey: {traceKey}}, side)
	return bodies[traceKey], err
}
