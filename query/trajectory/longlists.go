package trajectory

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"icecore/trace"
)

// longLists makes the columns that hold nearly all bytes of a stream: token_ids,
// loss_mask and logprobs. Arrow's builders would clear and grow fresh memory for
// every batch; here the memory of one batch serves the next, which is safe
// because a batch is written out before the next begins.
type longLists struct {
	offsets  []int32
	tokens   []int32
	mask     []int8
	logprobs []float32
	known    []byte // one bit per log-prob
	nulls    int
}

// Places of the long columns in trace.TrajectorySchema.
const (
	firstLong   = 8
	longColumns = 3
)

// shortSchema is a schema without the long columns.
func shortSchema(fields []arrow.Field) *arrow.Schema {
	return arrow.NewSchema(slices.Delete(slices.Clone(fields), firstLong, firstLong+longColumns), nil)
}

// add appends one row.
func (l *longLists) add(r *Row) {
	if len(l.offsets) == 0 {
		l.offsets = append(l.offsets, 0)
	}
	from := len(l.tokens)
	l.tokens = r.tokens.AppendTo(l.tokens)
	to := len(l.tokens)
	l.offsets = append(l.offsets, int32(to))
	l.mask = extend(l.mask, to)
	l.logprobs = extend(l.logprobs, to)
	l.known = extend(l.known, int(bitutil.BytesForBits(int64(to))))
	nulls := to - from
	for i, span := range r.spans {
		if span.Trainable {
			for j := from + span.Start; j < from+span.End; j++ {
				l.mask[j] = 1
			}
		}
		nulls -= l.addLogprobs(from+span.Start, r.Logprobs(i))
	}
	l.nulls += nulls
}

// addLogprobs puts a span's log-probs at position at and counts the known ones.
func (l *longLists) addLogprobs(at int, p *trace.Logprobs) (known int) {
	if p == nil {
		return 0
	}
	copy(l.logprobs[at:], p.Values)
	if p.Known == nil {
		bitutil.SetBitsTo(l.known, int64(at), int64(p.Len()), true)
		return p.Len()
	}
	for i, k := range p.Known {
		if k {
			bitutil.SetBit(l.known, at+i)
			known++
		}
	}
	return known
}

// extend lengthens s to n with zeros, whatever its memory held before.
func extend[T int8 | float32 | byte](s []T, n int) []T {
	before := len(s)
	s = slices.Grow(s, n-before)[:n]
	clear(s[before:])
	return s
}

// into puts the long columns among the others, which makes a batch of schema, and
// forgets the rows. The batch must be written before the next row is added.
func (l *longLists) into(schema *arrow.Schema, short arrow.RecordBatch) arrow.RecordBatch {
	rows := int(short.NumRows())
	list := func(field arrow.Field, values *memory.Buffer, known []byte, nulls int) arrow.Array {
		elem := field.Type.(*arrow.ListType).Elem()
		var bitmap *memory.Buffer
		if nulls > 0 {
			bitmap = memory.NewBufferBytes(known)
		}
		child := array.NewData(elem, len(l.tokens), []*memory.Buffer{bitmap, values}, nil, nulls, 0)
		defer child.Release()
		data := array.NewData(field.Type, rows, []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(l.offsets))},
			[]arrow.ArrayData{child}, 0, 0)
		defer data.Release()
		return array.NewListData(data)
	}
	fields := schema.Fields()[firstLong : firstLong+longColumns]
	long := []arrow.Array{
		list(fields[0], memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(l.tokens)), nil, 0),
		list(fields[1], memory.NewBufferBytes(arrow.Int8Traits.CastToBytes(l.mask)), nil, 0),
		list(fields[2], memory.NewBufferBytes(arrow.Float32Traits.CastToBytes(l.logprobs)), l.known, l.nulls),
	}
	rec := array.NewRecordBatch(schema, slices.Insert(slices.Clone(short.Columns()), firstLong, long...), int64(rows))
	for _, c := range long {
		c.Release()
	}
	l.offsets, l.tokens, l.mask, l.logprobs, l.known, l.nulls = l.offsets[:0], l.tokens[:0], l.mask[:0], l.logprobs[:0], l.known[:0], 0
	return rec
}
