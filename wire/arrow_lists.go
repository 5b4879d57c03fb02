package wire

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"icecore/trace"
)

func bytesView(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// integers gives access to integers of any width. A column of nulls has none.
func integers(a arrow.Array) func(i int) (int64, *trace.Error) {
	switch a := a.(type) {
	case *array.Int8:
		return func(i int) (int64, *trace.Error) { return int64(a.Value(i)), nil }
	case *array.Int16:
		return func(i int) (int64, *trace.Error) { return int64(a.Value(i)), nil }
	case *array.Int32:
		return func(i int) (int64, *trace.Error) { return int64(a.Value(i)), nil }
	case *array.Int64:
		return func(i int) (int64, *trace.Error) { return a.Value(i), nil }
	case *array.Uint8:
		return func(i int) (int64, *trace.Error) { return int64(a.Value(i)), nil }
	case *array.Uint16:
		return func(i int) (int64, *trace.Error) { return int64(a.Value(i)), nil }
	case *array.Uint32:
		return func(i int) (int64, *trace.Error) { return int64(a.Value(i)), nil }
	case *array.Uint64:
		return func(i int) (int64, *trace.Error) {
			if v := a.Value(i); v > math.MaxInt64 {
				return math.MaxInt64, trace.Invalid("", fmt.Sprintf("%d does not fit into 64 bits with a sign", v))
			}
			return int64(a.Value(i)), nil
		}
	case *array.Null:
		return func(int) (int64, *trace.Error) { return 0, trace.Invalid("", "is null") }
	}
	return nil
}

func integerColumn(at func(*trace.Trace) **int64) columnMaker {
	return func(_ *rowDecoder, a arrow.Array) (row, error) {
		get := integers(a)
		if get == nil {
			return nil, wrongColumn("an integer", a)
		}
		return func(i int, t *trace.Trace) error {
			v, wrong := get(i)
			if wrong != nil {
				return wrong
			}
			*at(t) = &v
			return nil
		}, nil
	}
}

// lists gives access to lists of any layout but list views.
func lists(a arrow.Array) array.ListLike {
	switch a.DataType().ID() {
	case arrow.LIST, arrow.LARGE_LIST, arrow.FIXED_SIZE_LIST:
		return a.(array.ListLike)
	}
	return nil
}

func idsColumn(set func(*trace.Trace, []int32)) columnMaker {
	return func(d *rowDecoder, a arrow.Array) (row, error) {
		ids := lists(a)
		if ids == nil || integers(ids.ListValues()) == nil {
			return nil, wrongColumn("a list of integers", a)
		}
		values := ids.ListValues()
		get := integers(values)
		plain, _ := values.(*array.Int32)
		if values.NullN() > 0 {
			plain = nil
		}
		return func(i int, t *trace.Trace) error {
			start, end := ids.ValueOffsets(i)
			if end-start > int64(d.s.lim.MaxTokens) {
				return tooManyTokens(d.s.lim.MaxTokens)
			}
			out := make([]int32, end-start)
			set(t, out)
			if plain != nil {
				// Validate finds negative ids.
				copy(out, plain.Int32Values()[start:end])
				return nil
			}
			for k := range out {
				at := int(start) + k
				if values.IsNull(at) {
					return notToken(k, "null")
				}
				v, _ := get(at)
				if v < 0 || v > math.MaxInt32 {
					return notToken(k, values.ValueStr(at))
				}
				out[k] = int32(v)
			}
			return nil
		}, nil
	}
}

func notToken(index int, value string) error {
	return &trace.Error{Code: trace.CodeInvalidTokenID, Field: fmt.Sprintf("[%d]", index),
		Message: value + " is not a token id (int32 ≥ 0)"}
}

func logprobsColumn(d *rowDecoder, a arrow.Array) (row, error) {
	get := d.logprobLists(a)
	if get == nil {
		return nil, wrongColumn(logprobsType, a)
	}
	return func(i int, t *trace.Trace) (err error) {
		t.ResponseLogprobs, err = get(i)
		return err
	}, nil
}

const logprobsType = "a list of float32 or float64"

// logprobLists gives access to lists of log-probs; nil: it is another type. With
// an error comes what was read before it.
func (d *rowDecoder) logprobLists(a arrow.Array) func(i int) (*trace.Logprobs, error) {
	list := lists(a)
	if list == nil {
		return nil
	}
	values := list.ListValues()
	var get func(i int) float64
	free := false // nulls that take no bytes, so that a short stream may hold any number
	switch v := values.(type) {
	case *array.Float32:
		get = func(i int) float64 { return float64(v.Value(i)) }
	case *array.Float64:
		get = v.Value
	case *array.Null:
		free = true
	default:
		return nil
	}
	return func(i int) (*trace.Logprobs, error) {
		start, end := list.ValueOffsets(i)
		if end-start > int64(d.s.lim.MaxTokens) {
			return nil, tooManyTokens(d.s.lim.MaxTokens)
		}
		if free {
			if err := d.spend(4 * (end - start)); err != nil {
				return nil, err
			}
		}
		out := &trace.Logprobs{Values: make([]float32, 0, end-start)}
		for at := int(start); at < int(end); at++ {
			if free || values.IsNull(at) {
				out.AppendUnknown()
				continue
			}
			f := get(at)
			v := float32(f)
			if math.IsInf(float64(v), 0) && !math.IsInf(f, 0) {
				return out, trace.Invalid(fmt.Sprintf("[%d]", at-int(start)), fmt.Sprintf("%g is beyond the range of float32", f))
			}
			if v != v {
				v = nan32()
			}
			out.Append(v)
		}
		return out, nil
	}
}

func prefixColumn(d *rowDecoder, a arrow.Array) (row, error) {
	ids, lengths, ok := twoFields(a, "trace_id", "length")
	if !ok || texts(ids, false) == nil || integers(lengths) == nil {
		return nil, wrongColumn("struct<trace_id: string, length: integer>", a)
	}
	text, length := texts(ids, false), integers(lengths)
	return func(i int, t *trace.Trace) error {
		if ids.IsNull(i) {
			return trace.Missing(".trace_id")
		}
		if lengths.IsNull(i) {
			return trace.Missing(".length")
		}
		b, _ := text(i)
		id, err := d.text(b)
		if err != nil {
			return err
		}
		n, wrong := length(i)
		t.PromptPrefix = &trace.PromptPrefix{TraceID: id, Length: n}
		if wrong != nil {
			wrong.Field = ".length"
			return wrong
		}
		return nil
	}, nil
}

func spansColumn(d *rowDecoder, a arrow.Array) (row, error) {
	const want = "a list of struct<start: integer, version: integer>"
	list := lists(a)
	if list == nil {
		return nil, wrongColumn(want, a)
	}
	if list.ListValues().DataType().ID() == arrow.NULL {
		return func(int, *trace.Trace) error { return nil }, nil
	}
	starts, versions, ok := twoFields(list.ListValues(), "start", "version")
	if !ok || integers(starts) == nil || integers(versions) == nil {
		return nil, wrongColumn(want, a)
	}
	start, version := integers(starts), integers(versions)
	return func(i int, t *trace.Trace) error {
		from, to := list.ValueOffsets(i)
		if to-from > int64(d.s.lim.MaxTokens) {
			return tooManyTokens(d.s.lim.MaxTokens)
		}
		for at := int(from); at < int(to); at++ {
			field := fmt.Sprintf("[%d]", at-int(from))
			if list.ListValues().IsNull(at) || starts.IsNull(at) || versions.IsNull(at) {
				return trace.Invalid(field, "is not {start, version}: something is null")
			}
			s, wrong := start(at)
			v, alsoWrong := version(at)
			if wrong != nil || alsoWrong != nil {
				return trace.Invalid(field, "does not fit into 64 bits with a sign")
			}
			t.PolicyVersionSpans = append(t.PolicyVersionSpans, trace.VersionSpan{Start: s, Version: v})
		}
		return nil
	}, nil
}

// twoFields gives the fields of a struct that has just these two.
func twoFields(a arrow.Array, one, two string) (first, second arrow.Array, ok bool) {
	s, ok := a.(*array.Struct)
	if !ok || s.NumField() != 2 {
		return nil, nil, false
	}
	dt := s.DataType().(*arrow.StructType)
	i, ok1 := dt.FieldIdx(one)
	j, ok2 := dt.FieldIdx(two)
	if !ok1 || !ok2 {
		return nil, nil, false
	}
	return s.Field(i), s.Field(j), true
}
