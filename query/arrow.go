package query

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"icecore/query/table"
	"icecore/trace"
)

// arrowSink writes rows as an Arrow IPC stream of trace.TrajectorySchema.
type arrowSink struct {
	raw    io.Writer
	schema *arrow.Schema
	w      *ipc.Writer
	b      *array.RecordBuilder
	long   longLists
	n      int
	col    int
}

func newArrowSink(w io.Writer, p *plan, codec string) *arrowSink {
	counts := p.counts()
	keys := make([]string, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	values := make([]string, len(keys))
	for i, k := range keys {
		values[i] = counts[k]
		keys[i] = "icecore." + k
	}
	meta := arrow.NewMetadata(keys, values)
	schema := arrow.NewSchema(trace.TrajectorySchema.Fields(), &meta)
	opts := append(table.CodecOptions(codec), ipc.WithSchema(schema))
	return &arrowSink{raw: w, schema: schema, w: ipc.NewWriter(w, opts...), b: array.NewRecordBuilder(memory.DefaultAllocator, shortSchema)}
}

// next gives the builder of the next column that is no long list.
func (s *arrowSink) next() array.Builder {
	s.col++
	return s.b.Field(s.col - 1)
}

// text appends to a string or dictionary column; "" is null.
func (s *arrowSink) text(v string) error {
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

func (s *arrowSink) i32(v int)       { s.next().(*array.Int32Builder).Append(int32(v)) }
func (s *arrowSink) flag(v bool)     { s.next().(*array.BooleanBuilder).Append(v) }
func (s *arrowSink) optI64(v *int64) { appendOptInt(s.next(), v) }

func (s *arrowSink) optF64(v *float64) { appendOptFloat(s.next(), v) }

func appendOptInt(b array.Builder, v *int64) {
	if v == nil {
		b.AppendNull()
		return
	}
	b.(*array.Int64Builder).Append(*v)
}

func appendOptFloat(b array.Builder, v *float64) {
	if v == nil {
		b.AppendNull()
		return
	}
	b.(*array.Float64Builder).Append(*v)
}

func appendOptText(b array.Builder, v string) {
	if v == "" {
		b.AppendNull()
		return
	}
	b.(*array.StringBuilder).Append(v)
}

// row appends the columns in the order of the schema.
func (s *arrowSink) row(r *row, k *planRollout) error {
	s.col = 0
	for _, v := range []string{r.id, k.ID, k.GroupID, k.TaskID, k.Split, k.Harness, k.Model, r.m.Result.Policy.String()} {
		if err := s.text(v); err != nil {
			return err
		}
	}
	s.long.add(r)
	s.spans(r)
	s.i32(r.promptLength())
	s.i32(r.trajectory().TrainedTokens)
	lo, hi := r.versions()
	s.optI64(lo)
	s.optI64(hi)
	s.optF64(k.reward)
	s.optI64(k.GroupSize)
	s.optI64(k.SampleIndex)
	if err := s.text(k.Status); err != nil {
		return err
	}
	s.flag(k.Complete())
	s.i32(k.rows)
	s.optI64(&k.trained)
	s.i32(r.index)
	s.flag(r.index == k.rows-1)
	s.flag(r.logprobsComplete())
	s.flag(r.truncated())
	s.flag(r.trajectory().Rewritten)
	s.n++
	return nil
}

// sampling is what a span tells of how it was sampled.
type sampling struct {
	Temperature  *float64 `json:"temperature"`
	TopP         *float64 `json:"top_p"`
	TopK         *int64   `json:"top_k"`
	LogprobsMode string   `json:"logprobs_mode"`
}

func samplingOf(raw []byte) sampling {
	var s sampling
	if len(raw) > 0 {
		// Sampling is the capturer's own object: a field of another type than
		// ours is left unknown rather than refused.
		_ = json.Unmarshal(raw, &s)
	}
	switch s.LogprobsMode {
	case "raw", "processed":
	case "raw_logprobs":
		s.LogprobsMode = "raw"
	case "processed_logprobs":
		s.LogprobsMode = "processed"
	default:
		s.LogprobsMode = "unknown"
	}
	return s
}

func (s *arrowSink) spans(r *row) {
	l := s.next().(*array.ListBuilder)
	l.Append(true)
	st := l.ValueBuilder().(*array.StructBuilder)
	for i, span := range r.spans {
		c := r.call(i)
		how := samplingOf(c.Sampling)
		st.Append(true)
		f := st.FieldBuilder
		f(0).(*array.StringBuilder).Append(c.TraceID)
		f(1).(*array.Int32Builder).Append(int32(span.Start))
		f(2).(*array.Int32Builder).Append(int32(span.End))
		f(3).(*array.BooleanBuilder).Append(span.Trainable)
		appendOptInt(f(4), c.PolicyVersion)
		appendVersions(f(5).(*array.ListBuilder), c.Versions)
		appendOptFloat(f(6), how.Temperature)
		appendOptFloat(f(7), how.TopP)
		appendOptInt(f(8), how.TopK)
		f(9).(*array.StringBuilder).Append(how.LogprobsMode)
		f(10).(*array.StringBuilder).Append(string(c.Status))
		appendOptText(f(11), c.FinishReason)
		f(12).(*array.StringBuilder).Append(string(c.Kind))
	}
}

func appendVersions(l *array.ListBuilder, versions []trace.VersionSpan) {
	if len(versions) == 0 {
		l.AppendNull()
		return
	}
	l.Append(true)
	st := l.ValueBuilder().(*array.StructBuilder)
	for _, v := range versions {
		st.Append(true)
		st.FieldBuilder(0).(*array.Int64Builder).Append(v.Start)
		st.FieldBuilder(1).(*array.Int64Builder).Append(v.Version)
	}
}

func (s *arrowSink) flush() error {
	if s.n == 0 {
		return nil
	}
	short := s.b.NewRecordBatch()
	defer short.Release()
	rec := s.long.into(short)
	defer rec.Release()
	s.n = 0
	if err := s.w.Write(rec); err != nil {
		return fmt.Errorf("send Arrow batch: %w", err)
	}
	return nil
}

func (s *arrowSink) end() error {
	s.b.Release()
	if err := s.w.Close(); err != nil {
		return fmt.Errorf("end Arrow stream: %w", err)
	}
	return nil
}

// poison makes every reader fail.
func (s *arrowSink) poison() { table.Poison(s.raw) }
