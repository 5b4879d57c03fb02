package wire

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"icecore/trace"
)

// objectColumn reads JSON objects: as text, or as a struct of plain fields.
func objectColumn(at func(*trace.Trace) *[]byte) columnMaker {
	return func(d *rowDecoder, a arrow.Array) (row, error) {
		if get := texts(a, false); get != nil {
			return func(i int, t *trace.Trace) error {
				b, ok := get(i)
				if !ok {
					return nil
				}
				if err := d.take(b); err != nil {
					return err
				}
				v, err := d.json(b, (*scanner).canonicalObject)
				if err == nil {
					*at(t) = v
				}
				return err
			}, nil
		}
		s, ok := a.(*array.Struct)
		if !ok || !plainStruct(s.DataType()) {
			return nil, wrongColumn("a JSON object as a string, or a struct of numbers, strings, booleans, lists and structs", a)
		}
		return func(i int, t *trace.Trace) error {
			raw, err := json.Marshal(s.GetOneForMarshal(i))
			if err != nil {
				return trace.Invalid("", "cannot be written as JSON: "+err.Error())
			}
			if err := d.take(raw); err != nil {
				return err
			}
			v, err := d.json(raw, (*scanner).canonicalObject)
			if err == nil {
				*at(t) = v
			}
			return err
		}, nil
	}
}

// plainStruct reports whether arrow-go writes the type as JSON the way that
// anyone would, and whether a row of it cannot stand for more than was sent.
func plainStruct(dt arrow.DataType) bool {
	switch dt := dt.(type) {
	case *arrow.StructType:
		seen := map[string]bool{}
		for _, f := range dt.Fields() {
			if seen[f.Name] || !plainStruct(f.Type) {
				return false
			}
			seen[f.Name] = true
		}
		return true
	case *arrow.ListType:
		return plainStruct(dt.Elem())
	case *arrow.LargeListType:
		return plainStruct(dt.Elem())
	}
	switch dt.ID() {
	case arrow.BOOL, arrow.STRING, arrow.LARGE_STRING, arrow.FLOAT32, arrow.FLOAT64,
		arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.UINT8, arrow.UINT16, arrow.UINT32, arrow.UINT64:
		return true
	}
	return false
}

// extraColumn keeps a column that the contract does not name, if its values are
// single ones.
func (d *rowDecoder) extraColumn(name string, a arrow.Array) (row, error) {
	key, _ := repairText([]byte(name))
	get := scalars(a)
	text := texts(a, false)
	if get == nil && text == nil {
		return nil, errors.New("is no field of a trace, and of a type (" + shown(a.DataType().String()) + ") that cannot be kept beside it")
	}
	return func(i int, _ *trace.Trace) error {
		var value []byte
		if text != nil {
			b, ok := text(i)
			if !ok {
				return nil
			}
			v, err := d.text(b)
			if err != nil {
				return err
			}
			value = appendQuoted(nil, v)
		} else {
			var wrong *trace.Error
			if value, wrong = get(i); wrong != nil {
				return wrong
			}
		}
		d.extras = append(d.extras, member{key: key, value: value})
		return nil
	}, nil
}

// scalars writes numbers, booleans and times as JSON.
func scalars(a arrow.Array) func(i int) ([]byte, *trace.Error) {
	if whole := integers(a); whole != nil {
		return func(i int) ([]byte, *trace.Error) {
			if u, ok := a.(*array.Uint64); ok {
				return strconv.AppendUint(nil, u.Value(i), 10), nil
			}
			v, wrong := whole(i)
			return strconv.AppendInt(nil, v, 10), wrong
		}
	}
	switch a := a.(type) {
	case *array.Boolean:
		return func(i int) ([]byte, *trace.Error) { return strconv.AppendBool(nil, a.Value(i)), nil }
	case *array.Float32:
		return func(i int) ([]byte, *trace.Error) { return AppendLogprob(nil, a.Value(i), true), nil }
	case *array.Float64:
		return func(i int) ([]byte, *trace.Error) {
			if v := a.Value(i); !math.IsNaN(v) && !math.IsInf(v, 0) {
				return strconv.AppendFloat(nil, v, 'g', -1, 64), nil
			}
			return AppendLogprob(nil, float32(a.Value(i)), true), nil
		}
	case *array.Timestamp:
		unit := a.DataType().(*arrow.TimestampType).Unit.Multiplier()
		return func(i int) ([]byte, *trace.Error) {
			micros, wrong := microsOf(int64(a.Value(i)), unit)
			if wrong != nil {
				return nil, wrong
			}
			return appendTime(nil, micros), nil
		}
	}
	return nil
}
