package warehouse

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/duckdb/duckdb-go/v2/mapping"
)

// Out is a vector of DuckDB's that a Function fills, one place per row.
type Out struct {
	vec  mapping.Vector
	Rows int
}

// listEntry is DuckDB's duckdb_list_entry.
type listEntry struct{ offset, length uint64 }

// values is the vector's memory, to be written in place.
func values[T any](o Out) []T {
	if o.Rows == 0 {
		return nil
	}
	return unsafe.Slice((*T)(mapping.VectorGetData(o.vec)), o.Rows)
}

// Int32s is the memory of a vector of INTEGER.
func (o Out) Int32s() []int32 { return values[int32](o) }

// Int64s is the memory of a vector of BIGINT.
func (o Out) Int64s() []int64 { return values[int64](o) }

// Floats is the memory of a vector of FLOAT.
func (o Out) Floats() []float32 { return values[float32](o) }

// Bytes is the memory of a vector of TINYINT.
func (o Out) Bytes() []int8 { return values[int8](o) }

// Flags is the memory of a vector of BOOLEAN.
func (o Out) Flags() []bool { return values[bool](o) }

// Text puts a text or blob, which is copied.
func (o Out) Text(row int, text []byte) {
	mapping.VectorAssignStringElementLen(o.vec, mapping.IdxT(row), text)
}

// Null makes a place NULL.
func (o Out) Null(row int) {
	mapping.VectorEnsureValidityWritable(o.vec)
	mapping.ValiditySetRowInvalid(mapping.VectorGetValidity(o.vec), mapping.IdxT(row))
}

// Lists lays out a vector of lists by their lengths, a negative one being NULL,
// and gives the vector of all their elements, row after row.
func (o Out) Lists(lengths []int) (Out, error) {
	entries := values[listEntry](o)
	at := uint64(0)
	for row, n := range lengths {
		if n < 0 {
			o.Null(row)
			n = 0
		}
		entries[row] = listEntry{at, uint64(n)}
		at += uint64(n)
	}
	if mapping.ListVectorReserve(o.vec, mapping.IdxT(at)) == mapping.StateError ||
		mapping.ListVectorSetSize(o.vec, mapping.IdxT(at)) == mapping.StateError {
		return Out{}, errors.New("DuckDB gave no room for the elements of lists")
	}
	return Out{vec: mapping.ListVectorGetChild(o.vec), Rows: int(at)}, nil
}

// Field is the vector of a struct's field.
func (o Out) Field(i int) Out {
	return Out{vec: mapping.StructVectorGetChild(o.vec, mapping.IdxT(i)), Rows: o.Rows}
}

// logicalType is DuckDB's type for t; destroy it after use.
func logicalType(t arrow.DataType) (mapping.LogicalType, error) {
	simple := map[arrow.Type]mapping.Type{
		arrow.BOOL: mapping.TypeBoolean, arrow.INT8: mapping.TypeTinyInt, arrow.INT32: mapping.TypeInteger,
		arrow.INT64: mapping.TypeBigInt, arrow.FLOAT32: mapping.TypeFloat, arrow.FLOAT64: mapping.TypeDouble,
		arrow.STRING: mapping.TypeVarchar, arrow.BINARY: mapping.TypeBlob,
	}
	if known, ok := simple[t.ID()]; ok {
		return mapping.CreateLogicalType(known), nil
	}
	switch t := t.(type) {
	case *arrow.ListType:
		elem, err := logicalType(t.Elem())
		if err != nil {
			return elem, err
		}
		defer mapping.DestroyLogicalType(&elem)
		return mapping.CreateListType(elem), nil
	case *arrow.StructType:
		var types []mapping.LogicalType
		var names []string
		defer func() {
			for i := range types {
				mapping.DestroyLogicalType(&types[i])
			}
		}()
		for _, f := range t.Fields() {
			field, err := logicalType(f.Type)
			if err != nil {
				return field, err
			}
			types, names = append(types, field), append(names, f.Name)
		}
		return mapping.CreateStructType(types, names), nil
	}
	return mapping.LogicalType{}, fmt.Errorf("no type of DuckDB for %s", t)
}

// Known says which places of a vector are not NULL; see AllNull.
type Known []uint64

// Set makes a place hold its value.
func (k Known) Set(i int) { k[i/64] |= 1 << (i % 64) }

// AllNull makes every place NULL, to be set one by one.
func (o Out) AllNull() Known {
	if o.Rows == 0 {
		return nil
	}
	mapping.VectorEnsureValidityWritable(o.vec)
	known := unsafe.Slice((*uint64)(mapping.VectorGetValidity(o.vec)), (o.Rows+63)/64)
	clear(known)
	return known
}
