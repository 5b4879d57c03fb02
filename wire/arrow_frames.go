package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// frame is one message of an Arrow IPC stream.
type frame struct {
	offset     int
	meta, body []byte
	header     byte
	rows       int64
}

// What a message holds (flatbuf MessageHeader).
const (
	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3
)

// arrowFault ends a walk over metadata that cannot be right.
type arrowFault string

func invalidArrow(offset int, message string, err error) *EnvelopeError {
	return &EnvelopeError{Code: CodeInvalidArrow, Offset: int64(offset), Message: "Arrow stream: " + message, Err: err}
}

// readFrames cuts an IPC stream into its messages. It demands the end-of-stream
// marker: arrow-go takes a stream that was cut between two messages for whole.
func readFrames(body []byte) ([]frame, error) {
	var frames []frame
	for at := 0; ; {
		start := at
		size, next, ok := frameSize(body, at)
		if !ok {
			return nil, invalidArrow(at, "ends without its end-of-stream marker", nil)
		}
		at = next
		if size == 0 {
			if at != len(body) {
				return nil, invalidArrow(at, "something follows the end-of-stream marker", nil)
			}
			if len(frames) == 0 {
				return nil, invalidArrow(0, "holds no schema", nil)
			}
			return frames, nil
		}
		if size < 8 || int64(size) > int64(len(body)-at) {
			return nil, invalidArrow(start, "the metadata of a message is longer than the body", nil)
		}
		f := frame{offset: start, meta: body[at : at+int(size)]}
		at += int(size)
		length, err := walkMessage(&f, len(frames) == 0)
		if err == nil && (length < 0 || length > int64(len(body)-at)) {
			err = fmt.Errorf("a message says that its body has %d bytes, but %d are left", length, len(body)-at)
		}
		if err == nil && f.header != headerSchema {
			f.body = body[at : at+int(length)]
			err = f.walkBatch()
		}
		if err != nil {
			return nil, invalidArrow(start, err.Error(), nil)
		}
		at += int(length)
		frames = append(frames, f)
	}
}

// frameSize reads the prefix of a message: the continuation marker, which old
// writers leave out, and the length of the metadata.
func frameSize(body []byte, at int) (size uint32, next int, ok bool) {
	for range 2 {
		if len(body)-at < 4 {
			return 0, at, false
		}
		size = binary.LittleEndian.Uint32(body[at:])
		at += 4
		if size != math.MaxUint32 {
			return size, at, true
		}
	}
	return 0, at, false
}

// walk runs f, which reads metadata, and returns what stopped it.
func walk(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case arrowFault:
			err = fmt.Errorf("%s", string(p))
		default:
			err = fmt.Errorf("an offset in the metadata leads outside of it")
		}
	}()
	f()
	return nil
}

func walkMessage(f *frame, first bool) (bodyLength int64, err error) {
	err = walk(func() {
		m := flatRoot(f.meta)
		f.header, bodyLength = m.byte(1), m.int64(3)
		header, ok := m.table(2)
		s := schemaWalk{}
		s.metadata(m, 4)
		switch {
		case !ok || f.header < headerSchema || f.header > headerBatch:
			panic(arrowFault("a message is neither schema, dictionary nor record batch"))
		case first != (f.header == headerSchema):
			panic(arrowFault("the first message, and no other, must be the schema"))
		case first:
			s.schema(header)
		}
	})
	return bodyLength, err
}

// schemaWalk bounds what arrow-go will make of a schema: its tables may be
// shared, so a few bytes could stand for any number of fields, and nest deeper
// than a stack can.
type schemaWalk struct{ fields, text int }

const (
	maxFields     = 4096
	maxNesting    = 16
	maxSchemaText = 4 << 20
)

func (w *schemaWalk) schema(s flat) {
	if s.int16(0) != 0 {
		panic(arrowFault("is big-endian; send little-endian"))
	}
	w.metadata(s, 2)
	start, n := s.vector(1, 4)
	for i := range n {
		w.field(s.follow(start+4*i), 1)
	}
}

// field walks {name, nullable, type_type, type, dictionary, children,
// custom_metadata}.
func (w *schemaWalk) field(f flat, depth int) {
	if w.fields++; w.fields > maxFields || depth > maxNesting {
		panic(arrowFault(fmt.Sprintf("has more than %d fields, or nests them deeper than %d", maxFields, maxNesting)))
	}
	w.string(f, 0)
	start, n := f.vector(0, 1)
	name := f.buf[start : start+n]
	typ, ok := f.table(3)
	if f.byte(2) >= 64 || allowedTypes>>f.byte(2)&1 == 0 || !ok {
		panic(arrowFault(fmt.Sprintf("column %s is of a type that is not supported here", quoted(string(name)))))
	}
	if f.byte(2) == typeTimestamp {
		w.string(typ, 1)
	}
	w.metadata(f, 6)
	start, n = f.vector(5, 4)
	for i := range n {
		w.field(f.follow(start+4*i), depth+1)
	}
}

const typeTimestamp = 10

// allowedTypes are flatbuf types by number: null, int, float, binary, utf8,
// bool, decimal, date, time, timestamp, list, struct, fixed-size binary and list,
// the large and view forms. Left out: interval, union, map, duration, run-end,
// list view.
const allowedTypes = 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<9 | 1<<typeTimestamp |
	1<<12 | 1<<13 | 1<<15 | 1<<16 | 1<<19 | 1<<20 | 1<<21 | 1<<23 | 1<<24

func (w *schemaWalk) string(t flat, n int) {
	_, length := t.vector(n, 1)
	if w.text += length + 16; w.text > maxSchemaText {
		panic(arrowFault("holds too much text in its metadata"))
	}
}

func (w *schemaWalk) metadata(t flat, n int) {
	start, count := t.vector(n, 4)
	for i := range count {
		pair := t.follow(start + 4*i)
		w.string(pair, 0)
		w.string(pair, 1)
	}
}

// batch gives the RecordBatch table {length, nodes, buffers, compression,
// variadicBufferCounts} of a batch or dictionary.
func (f *frame) batch() flat {
	header, _ := flatRoot(f.meta).table(2)
	if f.header == headerDictionary {
		data, ok := header.table(1)
		if !ok {
			panic(arrowFault("a dictionary has no data"))
		}
		return data
	}
	return header
}

// walkBatch checks that counts are sane and that buffers lie inside the body
// without sharing bytes, so that nothing can stand for more than was sent.
func (f *frame) walkBatch() error {
	return walk(func() {
		b := f.batch()
		if f.rows = b.int64(0); f.rows < 0 || f.rows > math.MaxInt32 {
			panic(arrowFault("a batch has an impossible number of rows"))
		}
		nodes, n := b.vector(1, 16)
		for i := range n {
			length, nulls := b.int64At(nodes+16*i), b.int64At(nodes+16*i+8)
			if length < 0 || length > math.MaxInt32 || nulls < 0 || nulls > length {
				panic(arrowFault("a column has an impossible length or number of nulls"))
			}
		}
		left := int64(len(f.body))
		buffers, n := b.vector(2, 16)
		for i := range n {
			offset, length := b.int64At(buffers+16*i), b.int64At(buffers+16*i+8)
			if offset < 0 || length < 0 || length > left || offset > int64(len(f.body))-length {
				panic(arrowFault("a buffer lies outside of its message, or shares its bytes"))
			}
			left -= length
		}
		variadic, count := b.vector(4, 8)
		for i, rest := 0, int64(n); i < count; i++ {
			views := b.int64At(variadic + 8*i)
			if rest -= views; views < 0 || rest < 0 {
				panic(arrowFault("a column counts more buffers than there are"))
			}
		}
	})
}
