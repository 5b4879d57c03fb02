package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// messages hands the frames to arrow-go, which reads buffers in place. It undoes
// buffer compression itself: arrow-go allocates whatever size a buffer claims,
// and whatever window its frames ask for.
type messages struct {
	frames []frame
	next   int
	// left is what buffers may still inflate to.
	left, limit int64
	err         *EnvelopeError
	zstd        *zstd.Decoder
	lz4         *lz4.Reader
}

// Message gives the next message, or io.EOF.
func (m *messages) Message() (*ipc.Message, error) {
	if m.next == len(m.frames) {
		return nil, io.EOF
	}
	f := m.frames[m.next]
	m.next++
	if f.header != headerSchema {
		if err := m.inflate(&f); err != nil {
			m.err = err
			return nil, err
		}
	}
	return ipc.NewMessage(memory.NewBufferBytes(f.meta), memory.NewBufferBytes(f.body)), nil
}

// Retain and Release do nothing: the frames are the caller's.
func (m *messages) Retain() {}

// Release does nothing.
func (m *messages) Release() {}

// inflate replaces a compressed batch by the same one without compression.
func (m *messages) inflate(f *frame) (failed *EnvelopeError) {
	err := walk(func() {
		b := f.batch()
		compression, ok := b.table(3)
		if !ok {
			return
		}
		buffers, n := b.vector(2, 16)
		sizes, total := make([]int64, n), int64(0)
		for i := range sizes {
			if sizes[i] = inflatedSize(b, buffers+16*i, f.body); sizes[i] > m.left {
				failed = &EnvelopeError{Code: CodeRequestTooLarge, Offset: int64(f.offset),
					Message: fmt.Sprintf("Arrow stream: its buffers inflate to more than the limit of %d bytes", m.limit)}
				return
			}
			m.left -= sizes[i]
			total += (sizes[i] + 7) &^ 7
		}
		meta, out := withoutCompression(b), make([]byte, total)
		at := int64(0)
		for i, size := range sizes {
			place := buffers + 16*i
			offset, length := b.int64At(place), b.int64At(place+8)
			m.inflateBuffer(compression.byte(0), out[at:at+size:at+size], f.body[offset:offset+length])
			binary.LittleEndian.PutUint64(meta[place:], uint64(at))
			binary.LittleEndian.PutUint64(meta[place+8:], uint64(size))
			at += (size + 7) &^ 7
		}
		f.meta, f.body = meta, out
	})
	if failed == nil && err == nil {
		// The changed places may have been part of something else.
		err = f.walkBatch()
	}
	if failed == nil && err != nil {
		failed = invalidArrow(f.offset, err.Error(), nil)
	}
	return failed
}

// inflatedSize is what the buffer described at place says that it inflates to:
// its first eight bytes, where -1 means that the rest is not compressed.
func inflatedSize(b flat, place int, body []byte) int64 {
	offset, length := b.int64At(place), b.int64At(place+8)
	if length == 0 {
		return 0
	}
	if length < 8 {
		panic(arrowFault("a compressed buffer is too short"))
	}
	size := int64(binary.LittleEndian.Uint64(body[offset:]))
	if size == -1 {
		return length - 8
	}
	if size < 0 {
		panic(arrowFault("a compressed buffer claims a negative size"))
	}
	return size
}

func (m *messages) inflateBuffer(codec byte, dst, src []byte) {
	if len(src) == 0 {
		return
	}
	raw := int64(binary.LittleEndian.Uint64(src)) == -1
	src = src[8:]
	wrong := arrowFault("a compressed buffer is damaged, or not of the size that it claims")
	switch {
	case raw:
		copy(dst, src)
	case codec == 0:
		if m.lz4 == nil {
			m.lz4 = lz4.NewReader(nil)
		}
		m.lz4.Reset(bytes.NewReader(src))
		if _, err := io.ReadFull(m.lz4, dst); err != nil {
			panic(wrong)
		}
		if n, err := m.lz4.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			panic(wrong)
		}
	case codec == 1:
		if m.zstd == nil {
			// Decodes into what dst has room for, and allocates no window.
			m.zstd, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
		}
		out, err := m.zstd.DecodeAll(src, dst[:0])
		if err != nil || len(out) != len(dst) {
			panic(wrong)
		}
		copy(dst, out)
	default:
		panic(arrowFault("buffers are compressed by an unknown codec"))
	}
}

// withoutCompression copies the metadata, and gives batch b in it a vtable of
// its own that has no compression. (The old one may serve other tables.)
func withoutCompression(b flat) []byte {
	vtable := b.vtable()
	size := int(binary.LittleEndian.Uint16(b.buf[vtable:]))
	meta := slices.Concat(b.buf, b.buf[vtable:vtable+size])
	moved := len(b.buf)
	binary.LittleEndian.PutUint16(meta[moved+4+2*3:], 0)
	binary.LittleEndian.PutUint32(meta[b.pos:], uint32(int32(b.pos-moved)))
	return meta
}

// cappedAllocator bounds what arrow-go allocates by itself, which is little:
// joining the pieces of dictionaries.
type cappedAllocator struct {
	left int64
	over bool
}

// Allocate panics when the bound is passed; arrow-go turns that into an error.
func (a *cappedAllocator) Allocate(size int) []byte {
	if a.left -= int64(size); a.left < 0 {
		a.over = true
		panic("wire: dictionaries exceed the limit")
	}
	return make([]byte, size)
}

// Reallocate is Allocate with a copy.
func (a *cappedAllocator) Reallocate(size int, b []byte) []byte {
	if size <= cap(b) {
		return b[:size]
	}
	grown := a.Allocate(size)
	copy(grown, b)
	return grown
}

// Free leaves the memory to the garbage collector.
func (a *cappedAllocator) Free([]byte) {}
