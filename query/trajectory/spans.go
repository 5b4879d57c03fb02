package trajectory

import (
	"github.com/apache/arrow-go/v18/arrow/array"

	"icecore/trace"
)

func (s *Arrow) spans(r *Row) {
	l := s.next().(*array.ListBuilder)
	l.Append(true)
	st := l.ValueBuilder().(*array.StructBuilder)
	for i, span := range r.spans {
		c := r.Call(i)
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
