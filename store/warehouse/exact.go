package warehouse

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/duckdb/duckdb-go/v2/mapping"
)

// No value may lose a bit on its way to Arrow without anybody noticing. Types
// whose values would are refused here, with what to cast them to; a HUGEINT,
// which sum() gives, becomes a decimal of 38 digits if it fits, and an INTERVAL's
// microseconds become nanoseconds.

// crossing are the types that DuckDB makes Arrow of without loss.
var crossing = map[mapping.Type]bool{
	mapping.TypeBoolean: true, mapping.TypeTinyInt: true, mapping.TypeSmallInt: true, mapping.TypeInteger: true,
	mapping.TypeBigInt: true, mapping.TypeUTinyInt: true, mapping.TypeUSmallInt: true, mapping.TypeUInteger: true,
	mapping.TypeUBigInt: true, mapping.TypeFloat: true, mapping.TypeDouble: true, mapping.TypeDecimal: true,
	mapping.TypeVarchar: true, mapping.TypeBlob: true, mapping.TypeUUID: true, mapping.TypeEnum: true,
	mapping.TypeDate: true, mapping.TypeTime: true, mapping.TypeTimeNS: true, mapping.TypeTimestamp: true,
	mapping.TypeTimestampS: true, mapping.TypeTimestampMS: true, mapping.TypeTimestampNS: true,
	mapping.TypeTimestampTZ: true, mapping.TypeSQLNull: true,
}

// instead says, for the others, why not and what else.
var instead = map[mapping.Type]string{
	mapping.TypeUHugeInt: "UHUGEINT has no type in Arrow; cast it to HUGEINT or VARCHAR",
	mapping.TypeTimeTZ:   "TIME WITH TIME ZONE would lose its zone in Arrow; cast it to TIME or VARCHAR",
	mapping.TypeBit:      "BIT has no type in Arrow; cast it to VARCHAR",
	mapping.TypeBigNum:   "BIGNUM has no type in Arrow; cast it to VARCHAR",
	mapping.TypeGeometry: "GEOMETRY has no type in Arrow; cast it to VARCHAR",
	mapping.TypeVariant:  "VARIANT has no type in Arrow; cast it to JSON or VARCHAR",
}

// maxNesting bounds the levels of a type, the innermost counted too: readers of
// Arrow stop at 64 of them, with the row around.
const maxNesting = 60

// crosses reports whether the values of a type come through, and whether they have
// to be looked at one by one. level is that of the type in its column, from 1.
func crosses(t mapping.LogicalType, level int) (watch bool, err error) {
	if level > maxNesting {
		return false, fmt.Errorf("its type is nested deeper than %d levels; cast it to JSON or VARCHAR", maxNesting)
	}
	id := mapping.GetTypeId(t)
	if id == mapping.TypeHugeInt || id == mapping.TypeInterval {
		return true, nil
	}
	if crossing[id] {
		return false, nil
	}
	inside := level + 1
	if id == mapping.TypeMap {
		inside++ // for Arrow it is a list of pairs
	}
	for _, part := range partsOf(id, t) {
		w, partErr := partCrosses(part, inside)
		watch, err = watch || w, errors.Join(err, partErr)
	}
	if err != nil {
		return false, err
	}
	switch id {
	case mapping.TypeList, mapping.TypeArray, mapping.TypeMap, mapping.TypeStruct, mapping.TypeUnion:
		return watch, nil
	}
	if why := instead[id]; why != "" {
		return false, errors.New(why)
	}
	return false, fmt.Errorf("its type (number %d of DuckDB's) has no type in Arrow; cast it to VARCHAR", id)
}

func partCrosses(part mapping.LogicalType, level int) (watch bool, err error) {
	defer mapping.DestroyLogicalType(&part)
	return crosses(part, level)
}

// partsOf are the types inside a type, to be destroyed by the caller.
func partsOf(id mapping.Type, t mapping.LogicalType) (parts []mapping.LogicalType) {
	switch id {
	case mapping.TypeList:
		parts = append(parts, mapping.ListTypeChildType(t))
	case mapping.TypeArray:
		parts = append(parts, mapping.ArrayTypeChildType(t))
	case mapping.TypeMap:
		parts = append(parts, mapping.MapTypeKeyType(t), mapping.MapTypeValueType(t))
	case mapping.TypeStruct:
		for i := range mapping.StructTypeChildCount(t) {
			parts = append(parts, mapping.StructTypeChildType(t, i))
		}
	case mapping.TypeUnion:
		for i := range mapping.UnionTypeMemberCount(t) {
			parts = append(parts, mapping.UnionTypeMemberType(t, i))
		}
	}
	return parts
}

// whole refuses a batch with a value that does not fit: a 128-bit integer that is
// no decimal of 38 digits, which readers would take for another number, or an
// interval that ran over.
func whole(rec arrow.RecordBatch, watch []bool) error {
	for i, col := range rec.Columns() {
		if !watch[i] {
			continue
		}
		if why := misfit(col); why != "" {
			return &Fault{Code: FaultFailed, Position: -1,
				Message: fmt.Sprintf("column %q: %s; cast it to VARCHAR", rec.ColumnName(i), why)}
		}
	}
	return nil
}

func misfit(a arrow.Array) string {
	switch a := a.(type) {
	case *array.Decimal128:
		precision := a.DataType().(*arrow.Decimal128Type).Precision
		for i := range a.Len() {
			if a.IsValid(i) && !a.Value(i).FitsInPrecision(precision) {
				return "a HUGEINT has more than 38 digits"
			}
		}
	case *array.MonthDayNanoInterval:
		// What ran over is no multiple of 1,000, but for times of 73,000 years and
		// more. Columns of intervals are looked at before; this is for those inside
		// lists and structs.
		for i := range a.Len() {
			if a.IsValid(i) && a.Value(i).Nanoseconds%1000 != 0 {
				return tooLong
			}
		}
	case array.ListLike: // maps and arrays too
		return misfit(a.ListValues())
	case *array.Struct:
		for i := range a.NumField() {
			if why := misfit(a.Field(i)); why != "" {
				return why
			}
		}
	case array.Union:
		for i := range a.NumFields() {
			if why := misfit(a.Field(i)); why != "" {
				return why
			}
		}
	}
	return ""
}

const tooLong = "the time of an INTERVAL is longer than 292 years"

// shortIntervals refuses rows with an interval that would run over: DuckDB
// multiplies its microseconds by 1,000 without looking.
func shortIntervals(chunk mapping.DataChunk, schema *arrow.Schema) error {
	rows := mapping.DataChunkGetSize(chunk)
	for i, f := range schema.Fields() {
		if f.Type.ID() != arrow.INTERVAL_MONTH_DAY_NANO {
			continue
		}
		vec := mapping.DataChunkGetVector(chunk, mapping.IdxT(i))
		valid := mapping.VectorGetValidity(vec)
		type interval struct { // DuckDB's duckdb_interval
			months, days int32
			micros       int64
		}
		for row, v := range unsafe.Slice((*interval)(mapping.VectorGetData(vec)), rows) {
			if valid != nil && !mapping.ValidityRowIsValid(valid, mapping.IdxT(row)) {
				continue
			}
			if v.micros > math.MaxInt64/1000 || v.micros < math.MinInt64/1000 {
				return &Fault{Code: FaultFailed, Position: -1,
					Message: fmt.Sprintf("column %q: %s; cast it to VARCHAR", f.Name, tooLong)}
			}
		}
	}
	return nil
}
