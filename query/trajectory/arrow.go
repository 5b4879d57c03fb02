package trajectory

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"icecore/query/table"
	"icecore/trace"
)

// Arrow writes rows as an Arrow IPC stream.
type Arrow struct {
	raw    io.Writer
	schema *arrow.Schema
	w      *ipc.Writer
	b      *array.RecordBuilder
	long   longLists
	n      int
	col    int
	// prefixes is there when the stream has the columns of a lease.
	prefixes *prefixes
}

// NewArrow makes the sink. schema is trace.TrajectorySchema, or
// trace.DeliverySchema for wants that have Delivered. Each entry of metadata
// stands in the schema's metadata as "icecore." and its name. codec compresses
// buffers: zstd, lz4, or "" for none.
func NewArrow(w io.Writer, schema *arrow.Schema, metadata map[string]string, codec string) *Arrow {
	keys := slices.Sorted(maps.Keys(metadata))
	values := make([]string, len(keys))
	for i, k := range keys {
		values[i] = metadata[k]
		keys[i] = "icecore." + k
	}
	meta := arrow.NewMetadata(keys, values)
	fields := schema.Fields()
	s := &Arrow{raw: w, schema: arrow.NewSchema(fields, &meta), b: array.NewRecordBuilder(memory.DefaultAllocator, shortSchema(fields))}
	if len(fields) > trace.TrajectorySchema.NumFields() {
		s.prefixes = &prefixes{}
	}
	s.w = ipc.NewWriter(w, append(table.CodecOptions(codec), ipc.WithSchema(s.schema))...)
	return s
}

// next gives the builder of the next column that is no long list.
func (s *Arrow) next() array.Builder {
	s.col++
	return s.b.Field(s.col - 1)
}

// text appends to a string or dictionary column; "" is null.
func (s *Arrow) text(v string) error {
	b := s.next()
	if v == "" {
		b.AppendNull()
		return nil
	}
	if d, ok := b.(*array.BinaryDictionaryBuilder); ok {
		if err := d.AppendString(v); err != nil {
			return fmt.Errorf("make Arrow row: %w", err)
		}
		return nil
	}
	b.(*array.StringBuilder).Append(v)
	return nil
}

func (s *Arrow) i32(v int)         { s.next().(*array.Int32Builder).Append(int32(v)) }
func (s *Arrow) flag(v bool)       { s.next().(*array.BooleanBuilder).Append(v) }
func (s *Arrow) optI64(v *int64)   { appendOptInt(s.next(), v) }
func (s *Arrow) optF64(v *float64) { appendOptFloat(s.next(), v) }

// Row implements Sink. It appends the columns in the order of the schema.
func (s *Arrow) Row(r *Row, w *Want, k *Rollout) error {
	s.col = 0
	for _, v := range []string{r.id, k.ID, k.GroupID, k.TaskID, k.Split, k.Harness, k.Model, r.m.Result.Policy.String()} {
		if err := s.text(v); err != nil {
			return err
		}
	}
	s.long.add(r)
	s.spans(r)
	s.i32(r.PromptLength())
	s.i32(r.trained)
	lo, hi := r.Versions()
	s.optI64(lo)
	s.optI64(hi)
	s.optF64(k.Reward)
	s.optI64(k.GroupSize)
	s.optI64(k.SampleIndex)
	if err := s.text(k.Status); err != nil {
		return err
	}
	s.flag(k.Complete())
	s.i32(k.Rows)
	s.optI64(&k.Trained)
	s.i32(w.InRollout)
	s.flag(w.InRollout == k.Rows-1)
	s.flag(r.LogprobsComplete())
	s.flag(r.Truncated())
	s.flag(r.rewritten)
	if s.prefixes != nil {
		if err := s.delivered(r, w.Delivered); err != nil {
			return err
		}
	}
	s.n++
	return nil
}

// Flush implements Sink.
func (s *Arrow) Flush() error {
	if s.n == 0 {
		return nil
	}
	short := s.b.NewRecordBatch()
	defer short.Release()
	rec := s.long.into(s.schema, short)
	defer rec.Release()
	s.n = 0
	if err := s.w.Write(rec); err != nil {
		return fmt.Errorf("send Arrow batch: %w", err)
	}
	return nil
}

// End implements Sink.
func (s *Arrow) End() error {
	s.b.Release()
	if err := s.w.Close(); err != nil {
		return fmt.Errorf("end Arrow stream: %w", err)
	}
	return nil
}

// Poison implements Sink. It makes every reader fail.
func (s *Arrow) Poison() { table.Poison(s.raw) }
