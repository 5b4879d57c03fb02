package verify

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// A row of the journal (Arrow) and a row of the warehouse (database/sql) are
// compared by a hash over one common form of their values. The seed is this
// process's own; nothing of it is stored.
var seed = maphash.MakeSeed()

// fingerprint hashes a row of plain values: nil, int64, float64, bool, string,
// []byte, []any, and map[string]any.
func fingerprint(row []any) uint64 {
	var buf []byte
	for _, v := range row {
		buf = appendPlain(buf, v)
	}
	return maphash.Bytes(seed, buf)
}

func appendPlain(buf []byte, v any) []byte {
	sized := func(tag byte, n int) []byte {
		return binary.LittleEndian.AppendUint64(append(buf, tag), uint64(n))
	}
	switch v := v.(type) {
	case nil:
		return append(buf, 'n')
	case int32:
		return sized('i', int(v))
	case int64:
		return sized('i', int(v))
	case time.Time:
		return sized('i', int(v.UnixMicro()))
	case float32:
		return appendPlain(buf, float64(v))
	case float64:
		b := math.Float64bits(v)
		if v != v {
			b = math.Float64bits(math.NaN()) // which NaN it is means nothing
		}
		return sized('f', int(b))
	case bool:
		if v {
			return append(buf, 't')
		}
		return append(buf, 'F')
	case string:
		return append(sized('s', len(v)), v...)
	case []byte:
		return append(sized('s', len(v)), v...)
	case []any:
		buf = sized('l', len(v))
		for _, e := range v {
			buf = appendPlain(buf, e)
		}
		return buf
	case map[string]any:
		buf = sized('m', len(v))
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			buf = appendPlain(appendPlain(buf, name), v[name])
		}
		return buf
	}
	// A type that no column has: it must differ from everything.
	s := fmt.Sprintf("%T %v", v, v)
	return append(sized('?', len(s)), s...)
}

// plain takes a value out of an Arrow array.
func plain(a arrow.Array, i int) (any, error) {
	if a.IsNull(i) {
		return nil, nil
	}
	switch a := a.(type) {
	case *array.Int32:
		return int64(a.Value(i)), nil
	case *array.Int64:
		return a.Value(i), nil
	case *array.Timestamp:
		return int64(a.Value(i)), nil
	case *array.Float32:
		return float64(a.Value(i)), nil
	case *array.Float64:
		return a.Value(i), nil
	case *array.Boolean:
		return a.Value(i), nil
	case *array.String:
		return a.Value(i), nil
	case *array.Binary:
		return a.Value(i), nil
	case *array.List:
		from, to := a.ValueOffsets(i)
		out := make([]any, 0, to-from)
		for j := from; j < to; j++ {
			v, err := plain(a.ListValues(), int(j))
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case *array.Struct:
		out := map[string]any{}
		for j, f := range a.DataType().(*arrow.StructType).Fields() {
			v, err := plain(a.Field(j), i)
			if err != nil {
				return nil, err
			}
			out[f.Name] = v
		}
		return out, nil
	}
	return nil, fmt.Errorf("read a value: %s is no type of the journal", a.DataType())
}
