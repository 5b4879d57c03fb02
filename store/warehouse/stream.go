package warehouse

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/util"
	"github.com/duckdb/duckdb-go/v2/arrowmapping"
	"github.com/duckdb/duckdb-go/v2/mapping"
)

// stream hands a result over while DuckDB makes it, until its end or a limit,
// and counts into reply what each has taken.
func stream(ctx context.Context, a Ask, res *mapping.Result, each func(arrow.RecordBatch) error, reply *Reply) error {
	opts := arrowmapping.ResultGetArrowOptions(res)
	defer arrowmapping.DestroyArrowOptions(&opts)
	schema, watch, err := resultSchema(opts, res)
	if err != nil {
		return err
	}
	for batches := 0; ; {
		rec, err := nextBatch(ctx, a.SQL, opts, schema, res)
		if err != nil {
			return err
		}
		if rec == nil {
			if batches > 0 {
				return nil
			}
			rec = emptyBatch(schema)
		}
		if a.MaxRows > 0 && reply.Rows >= a.MaxRows || a.MaxBytes > 0 && reply.Bytes >= a.MaxBytes {
			rec.Release()
			reply.Truncated = batches > 0
			return nil
		}
		if a.MaxRows > 0 && rec.NumRows() > a.MaxRows-reply.Rows {
			cut := rec.NewSlice(0, a.MaxRows-reply.Rows)
			rec.Release()
			rec, reply.Truncated = cut, true
		}
		if err = whole(rec, watch); err == nil {
			err = each(rec)
		}
		rows, size := rec.NumRows(), batchBytes(rec)
		rec.Release()
		if err != nil {
			return err
		}
		if rows == 0 {
			return nil
		}
		batches++
		reply.Rows += rows
		reply.Bytes += size
		if reply.Truncated {
			return nil
		}
	}
}

// resultSchema makes the Arrow schema of a result; watch tells which columns'
// values have to be looked at.
func resultSchema(opts arrowmapping.ArrowOptions, res *mapping.Result) (schema *arrow.Schema, watch []bool, err error) {
	n := mapping.ColumnCount(res)
	names := make([]string, n)
	types := make([]mapping.LogicalType, n)
	for i := range n {
		names[i], types[i] = mapping.ColumnName(res, i), mapping.ColumnLogicalType(res, i)
	}
	defer func() {
		for i := range types {
			mapping.DestroyLogicalType(&types[i])
		}
	}()
	watch = make([]bool, n)
	for i := range types {
		if watch[i], err = crosses(types[i]); err != nil {
			return nil, nil, misbound("column %q: %s", names[i], err)
		}
	}
	schema, ed := arrowmapping.NewArrowSchema(opts, types, names)
	if err := takeError(ed); err != nil {
		return nil, nil, misbound("the result does not fit Arrow: %s", err)
	}
	return schema, watch, nil
}

// nextBatch fetches rows; nil: there are no more.
func nextBatch(ctx context.Context, text string, opts arrowmapping.ArrowOptions, schema *arrow.Schema,
	res *mapping.Result) (arrow.RecordBatch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		chunk := mapping.FetchChunk(*res)
		if chunk.Ptr == nil {
			if message := mapping.ResultError(res); message != "" {
				return nil, failed(ctx, text, message, mapping.ResultErrorType(res))
			}
			return nil, nil
		}
		if mapping.DataChunkGetSize(chunk) == 0 {
			mapping.DestroyDataChunk(&chunk)
			continue
		}
		if err := shortIntervals(chunk, schema); err != nil {
			mapping.DestroyDataChunk(&chunk)
			return nil, err
		}
		rec, ed := arrowmapping.DataChunkToArrowArray(opts, schema, chunk)
		mapping.DestroyDataChunk(&chunk)
		if err := takeError(ed); err != nil {
			return nil, &Fault{Code: FaultFailed, Message: fmt.Sprintf("the result does not fit Arrow: %s", err), Position: -1}
		}
		return rec, nil
	}
}

// emptyBatch is no rows of the schema, so that a reader learns the columns.
func emptyBatch(schema *arrow.Schema) arrow.RecordBatch {
	columns := make([]arrow.Array, schema.NumFields())
	for i, f := range schema.Fields() {
		columns[i] = array.MakeArrayOfNull(memory.DefaultAllocator, f.Type, 0)
	}
	rec := array.NewRecordBatch(schema, columns, 0)
	for _, c := range columns {
		c.Release() // rec holds it
	}
	return rec
}

// batchBytes is what a batch's columns take in memory; a slice counts whole.
func batchBytes(rec arrow.RecordBatch) int64 { return util.TotalRecordSize(rec) }
