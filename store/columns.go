package store

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"icecore/trace"
)

// columnsOf reads the columns of one row of a query's result, in order.
type columnsOf struct {
	rec arrow.RecordBatch
	row int
	col int
}

func (c *columnsOf) next() arrow.Array {
	c.col++
	return c.rec.Column(c.col - 1)
}

func (c *columnsOf) i64() int64   { return c.next().(*array.Int64).Value(c.row) }
func (c *columnsOf) i32() int     { return int(c.next().(*array.Int32).Value(c.row)) }
func (c *columnsOf) f64() float64 { return c.next().(*array.Float64).Value(c.row) }
func (c *columnsOf) flag() bool   { return c.next().(*array.Boolean).Value(c.row) }

func (c *columnsOf) optI64() *int64 {
	a := c.next().(*array.Int64)
	if a.IsNull(c.row) {
		return nil
	}
	v := a.Value(c.row)
	return &v
}

func (c *columnsOf) optI32() (int, bool) {
	a := c.next().(*array.Int32)
	if a.IsNull(c.row) {
		return 0, false
	}
	return int(a.Value(c.row)), true
}

// str gives a copy: Arrow's memory is DuckDB's. NULL gives "".
func (c *columnsOf) str() string {
	a := c.next().(*array.String)
	if a.IsNull(c.row) {
		return ""
	}
	return strings.Clone(a.Value(c.row))
}

// optStr is str with NULL as nil.
func (c *columnsOf) optStr() *string {
	a := c.next().(*array.String)
	if a.IsNull(c.row) {
		return nil
	}
	v := strings.Clone(a.Value(c.row))
	return &v
}

func (c *columnsOf) json() []byte {
	if s := c.str(); s != "" {
		return []byte(s)
	}
	return nil
}

func (c *columnsOf) blob() []byte {
	a := c.next().(*array.Binary)
	if a.IsNull(c.row) {
		return nil
	}
	return append([]byte(nil), a.Value(c.row)...)
}

func (c *columnsOf) time() int64 { return int64(c.next().(*array.Timestamp).Value(c.row)) }

func (c *columnsOf) optTime() *int64 {
	a := c.next().(*array.Timestamp)
	if a.IsNull(c.row) {
		return nil
	}
	v := int64(a.Value(c.row))
	return &v
}

// ids gives a view of DuckDB's memory.
func (c *columnsOf) ids() []int32 {
	a := c.next().(*array.List)
	from, to := a.ValueOffsets(c.row)
	return a.ListValues().(*array.Int32).Int32Values()[from:to]
}

// appendFloats appends a chunk of log-probs to l, NULL being one that is not known.
func appendFloats(l *trace.Logprobs, values *array.Float32, from, to int) {
	if values.NullN() == 0 && l.Known == nil {
		l.Values = append(l.Values, values.Float32Values()[from:to]...)
		return
	}
	for i := from; i < to; i++ {
		if values.IsNull(i) {
			l.AppendUnknown()
		} else {
			l.Append(values.Value(i))
		}
	}
}

func (c *columnsOf) versions() []trace.VersionSpan {
	a := c.next().(*array.List)
	if a.IsNull(c.row) {
		return nil
	}
	from, to := a.ValueOffsets(c.row)
	s := a.ListValues().(*array.Struct)
	start, version := s.Field(0).(*array.Int64), s.Field(1).(*array.Int64)
	var out []trace.VersionSpan
	for i := int(from); i < int(to); i++ {
		out = append(out, trace.VersionSpan{Start: start.Value(i), Version: version.Value(i)})
	}
	return out
}

// eachRow turns a function of rows into one of record batches.
func eachRow(do func(*columnsOf) error) func(arrow.RecordBatch) error {
	return func(rec arrow.RecordBatch) error {
		for i := range int(rec.NumRows()) {
			if err := do(&columnsOf{rec: rec, row: i}); err != nil {
				return err
			}
		}
		return nil
	}
}

// heldRecords are records whose lists are read after their query has ended, until they
// are released.
type heldRecords []arrow.RecordBatch

// eachRow is eachRow over records that are held.
func (h *heldRecords) eachRow(do func(*columnsOf) error) func(arrow.RecordBatch) error {
	rows := eachRow(do)
	return func(rec arrow.RecordBatch) error {
		rec.Retain()
		*h = append(*h, rec)
		return rows(rec)
	}
}

func (h *heldRecords) release() {
	for _, rec := range *h {
		rec.Release()
	}
}

// inList writes keys as an SQL list.
func inList(keys []int64) string {
	var b strings.Builder
	b.WriteByte('(')
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d", k)
	}
	b.WriteByte(')')
	return b.String()
}

// floats gives a list of log-probs as a range of a view of DuckDB's memory.
func (c *columnsOf) floats() (values *array.Float32, from, to int) {
	a := c.next().(*array.List)
	first, last := a.ValueOffsets(c.row)
	return a.ListValues().(*array.Float32), int(first), int(last)
}
