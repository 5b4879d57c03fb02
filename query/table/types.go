package table

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// Column names one column of a result and its type.
type Column struct {
	Name string `json:"name"`
	// Type is the type in DuckDB's words, as far as Arrow can tell it: UUID and
	// JSON are VARCHAR, HUGEINT is DECIMAL(38,0).
	Type string `json:"type"`
}

// Columns gives the columns of a schema in their order; names may repeat.
func Columns(schema *arrow.Schema) []Column {
	out := make([]Column, schema.NumFields())
	for i, f := range schema.Fields() {
		out[i] = Column{Name: f.Name, Type: typeName(f.Type)}
	}
	return out
}

var simpleNames = map[arrow.Type]string{
	arrow.NULL: "NULL", arrow.BOOL: "BOOLEAN",
	arrow.INT8: "TINYINT", arrow.INT16: "SMALLINT", arrow.INT32: "INTEGER", arrow.INT64: "BIGINT",
	arrow.UINT8: "UTINYINT", arrow.UINT16: "USMALLINT", arrow.UINT32: "UINTEGER", arrow.UINT64: "UBIGINT",
	arrow.FLOAT16: "FLOAT", arrow.FLOAT32: "FLOAT", arrow.FLOAT64: "DOUBLE",
	arrow.STRING: "VARCHAR", arrow.LARGE_STRING: "VARCHAR", arrow.STRING_VIEW: "VARCHAR",
	arrow.BINARY: "BLOB", arrow.LARGE_BINARY: "BLOB", arrow.BINARY_VIEW: "BLOB", arrow.FIXED_SIZE_BINARY: "BLOB",
	arrow.DATE32: "DATE", arrow.DATE64: "DATE", arrow.TIME32: "TIME", arrow.TIME64: "TIME",
	arrow.INTERVAL_MONTHS: "INTERVAL", arrow.INTERVAL_DAY_TIME: "INTERVAL", arrow.INTERVAL_MONTH_DAY_NANO: "INTERVAL", arrow.DURATION: "INTERVAL",
	arrow.DICTIONARY: "ENUM",
}

func typeName(t arrow.DataType) string {
	if name, ok := simpleNames[t.ID()]; ok {
		return name
	}
	switch t := t.(type) {
	case *arrow.TimestampType:
		return timestampName(t)
	case arrow.DecimalType:
		return fmt.Sprintf("DECIMAL(%d,%d)", t.GetPrecision(), t.GetScale())
	case *arrow.MapType:
		return "MAP(" + typeName(t.KeyType()) + ", " + typeName(t.ItemType()) + ")"
	case *arrow.FixedSizeListType:
		return typeName(t.Elem()) + "[" + strconv.Itoa(int(t.Len())) + "]"
	case arrow.ListLikeType:
		return typeName(t.Elem()) + "[]"
	case *arrow.StructType:
		return "STRUCT" + fieldNames(t.Fields())
	case arrow.UnionType:
		return "UNION" + fieldNames(t.Fields())
	case arrow.ExtensionType:
		return typeName(t.StorageType())
	}
	return strings.ToUpper(t.String())
}

func timestampName(t *arrow.TimestampType) string {
	switch {
	case t.TimeZone != "":
		return "TIMESTAMP WITH TIME ZONE"
	case t.Unit == arrow.Second:
		return "TIMESTAMP_S"
	case t.Unit == arrow.Millisecond:
		return "TIMESTAMP_MS"
	case t.Unit == arrow.Nanosecond:
		return "TIMESTAMP_NS"
	}
	return "TIMESTAMP"
}

func fieldNames(fields []arrow.Field) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = strings.TrimSpace(identifier(f.Name) + " " + typeName(f.Type))
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// identifier quotes a name that SQL would not read as one.
func identifier(name string) string {
	plain := func(r rune) bool {
		return r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	if strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 && (name == "" || name[0] > '9') {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// uniqueNames gives each column a name of its own, for formats that find columns
// by name: a repeated one gets _1, _2, …
func uniqueNames(schema *arrow.Schema) []string {
	taken := map[string]bool{}
	for _, f := range schema.Fields() {
		taken[f.Name] = true
	}
	// next is the suffix to go on with, so that many columns of one name do not
	// each count from 1; 0: none had the name yet.
	next := map[string]int{}
	out := make([]string, schema.NumFields())
	for i, f := range schema.Fields() {
		name, n := f.Name, next[f.Name]
		for n > 0 && taken[name] {
			name = f.Name + "_" + strconv.Itoa(n)
			n++
		}
		taken[name], next[f.Name], out[i] = true, max(n, 1), name
	}
	return out
}
