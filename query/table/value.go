package table

import (
	"encoding/base64"
	"math"
	"math/big"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// put appends the value of row i.
type put func(b []byte, i int) []byte

// cells writes the values of one array: as JSON, null where it is NULL; and as
// plain text, where the caller looks for NULL itself.
type cells struct {
	null       func(i int) bool
	json, text put
}

// maxExact is the greatest whole number up to which every one survives in a
// reader that knows only float64.
const maxExact = 1 << 53

func cellsOf(a arrow.Array) cells {
	c := bareCells(a)
	if c.null == nil {
		c.null = a.IsNull
	}
	null, json := c.null, c.json
	c.json = func(b []byte, i int) []byte {
		if null(i) {
			return append(b, "null"...)
		}
		return json(b, i)
	}
	return c
}

// both is for values whose text is JSON as it stands.
func both(p put) cells { return cells{json: p, text: p} }

// worded is for values that are strings in JSON, whose text needs no escapes.
func worded(text put) cells {
	return cells{text: text, json: func(b []byte, i int) []byte { return append(text(append(b, '"'), i), '"') }}
}

func bareCells(a arrow.Array) cells {
	switch a := a.(type) {
	case *array.Null:
		always := func(int) bool { return true }
		return cells{null: always, json: nothing, text: nothing}
	case *array.Boolean:
		return both(func(b []byte, i int) []byte { return strconv.AppendBool(b, a.Value(i)) })
	case *array.Int8:
		return integers(a.Value)
	case *array.Int16:
		return integers(a.Value)
	case *array.Int32:
		return integers(a.Value)
	case *array.Int64:
		return integers(a.Value)
	case *array.Uint8:
		return integers(a.Value)
	case *array.Uint16:
		return integers(a.Value)
	case *array.Uint32:
		return integers(a.Value)
	case *array.Uint64:
		return exactUpTo(func(b []byte, i int) []byte { return strconv.AppendUint(b, a.Value(i), 10) },
			func(i int) bool { return a.Value(i) <= maxExact })
	case *array.Float16:
		return floats(func(i int) float64 { return float64(a.Value(i).Float32()) }, 32)
	case *array.Float32:
		return floats(func(i int) float64 { return float64(a.Value(i)) }, 32)
	case *array.Float64:
		return floats(a.Value, 64)
	case *array.Decimal128:
		scale := a.DataType().(*arrow.Decimal128Type).Scale
		return decimals(func(i int) *big.Int { return a.Value(i).BigInt() }, scale)
	case *array.Decimal256:
		scale := a.DataType().(*arrow.Decimal256Type).Scale
		return decimals(func(i int) *big.Int { return a.Value(i).BigInt() }, scale)
	case array.StringLike:
		return cells{text: func(b []byte, i int) []byte { return append(b, a.Value(i)...) },
			json: func(b []byte, i int) []byte { return appendQuoted(b, a.Value(i)) }}
	case *array.FixedSizeBinary:
		return blobs(a.Value)
	case *array.Binary:
		return blobs(a.Value)
	case *array.LargeBinary:
		return blobs(a.Value)
	case *array.BinaryView:
		return blobs(a.Value)
	case array.ExtensionArray:
		return bareCells(a.Storage())
	case *array.Dictionary:
		return dictionary(a)
	}
	if c, ok := timeCells(a); ok {
		return c
	}
	if c, ok := nestedCells(a); ok {
		return c
	}
	// A type that DuckDB does not give out today: what Arrow says it is.
	return cells{text: func(b []byte, i int) []byte { return append(b, a.ValueStr(i)...) },
		json: func(b []byte, i int) []byte { return appendQuoted(b, a.ValueStr(i)) }}
}

// nothing is what a value that is NULL leaves: the caller writes it.
func nothing(b []byte, _ int) []byte { return b }

// exactUpTo quotes, in JSON, the numbers that are not exact.
func exactUpTo(number put, exact func(i int) bool) cells {
	return cells{text: number, json: func(b []byte, i int) []byte {
		if exact(i) {
			return number(b, i)
		}
		return append(number(append(b, '"'), i), '"')
	}}
}

func integers[N int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](at func(int) N) cells {
	return exactUpTo(func(b []byte, i int) []byte { return strconv.AppendInt(b, int64(at(i)), 10) },
		func(i int) bool { n := int64(at(i)); return -maxExact <= n && n <= maxExact })
}

func floats(at func(int) float64, bits int) cells {
	return exactUpTo(func(b []byte, i int) []byte {
		switch v := at(i); {
		case math.IsNaN(v):
			return append(b, "NaN"...)
		case math.IsInf(v, 1):
			return append(b, "Infinity"...)
		case math.IsInf(v, -1):
			return append(b, "-Infinity"...)
		case v == 0 && math.Signbit(v):
			return append(b, "-0.0"...) // -0 is read as a whole number, which loses the sign
		default:
			return strconv.AppendFloat(b, v, 'g', -1, bits)
		}
	}, func(i int) bool { return !math.IsNaN(at(i)) && !math.IsInf(at(i), 0) })
}

var maxExactBig = big.NewInt(maxExact)

// decimals are exact while their digits, the point left out, are.
func decimals(at func(int) *big.Int, scale int32) cells {
	return exactUpTo(func(b []byte, i int) []byte { return appendDecimal(b, at(i), int(scale)) },
		func(i int) bool { return at(i).CmpAbs(maxExactBig) <= 0 })
}

func appendDecimal(b []byte, v *big.Int, scale int) []byte {
	if v.Sign() < 0 {
		b = append(b, '-')
	}
	digits := new(big.Int).Abs(v).String()
	for len(digits) <= scale {
		digits = "0" + digits
	}
	b = append(b, digits[:len(digits)-scale]...)
	if scale > 0 {
		b = append(append(b, '.'), digits[len(digits)-scale:]...)
	}
	return b
}

func blobs(at func(int) []byte) cells {
	return worded(func(b []byte, i int) []byte { return base64.StdEncoding.AppendEncode(b, at(i)) })
}

func dictionary(a *array.Dictionary) cells {
	values := cellsOf(a.Dictionary())
	return cells{
		null: func(i int) bool { return a.IsNull(i) || values.null(a.GetValueIndex(i)) },
		json: func(b []byte, i int) []byte { return values.json(b, a.GetValueIndex(i)) },
		text: func(b []byte, i int) []byte { return values.text(b, a.GetValueIndex(i)) },
	}
}
