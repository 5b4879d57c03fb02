package warehouse

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
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
	for first := true; ; first = false {
		rec, err := nextBatch(ctx, a.SQL, opts, schema, res)
		if err != nil {
			return err
		}
		if rec == nil {
			if !first {
				return nil
			}
			rec = emptyBatch(schema)
		}
		err = a.handOver(rec, watch, each, reply)
		last := rec.NumRows() == 0
		rec.Release()
		if err != nil || last || reply.Truncated {
			return err
		}
	}
}

// pieceBytes is about how much of a result goes to a consumer at once: whoever
// reads it has to hold that. A single row may be more.
const pieceBytes = 4 << 20

// handOver hands over as much of rec as the limits let through, in pieces.
func (a Ask) handOver(rec arrow.RecordBatch, watch []bool, each func(arrow.RecordBatch) error, reply *Reply) error {
	if a.full(reply) {
		reply.Truncated = true
		return nil
	}
	rows := rec.NumRows()
	if left := a.MaxRows - reply.Rows; a.MaxRows > 0 && rows > left {
		cut := rec.NewSlice(0, left)
		defer cut.Release()
		err := a.handOver(cut, watch, each, reply)
		reply.Truncated = true
		return err
	}
	size, err := batchBytes(rec)
	if err != nil {
		return err
	}
	// Rows may differ much in size: halves are looked at again.
	if size > pieceBytes && rows > 1 {
		for _, part := range [][2]int64{{0, rows / 2}, {rows / 2, rows}} {
			half := rec.NewSlice(part[0], part[1])
			err := a.handOver(half, watch, each, reply)
			half.Release()
			if err != nil || reply.Truncated {
				return err
			}
		}
		return nil
	}
	if err := whole(rec, watch); err != nil {
		return err
	}
	if err := each(rec); err != nil {
		return err
	}
	reply.Rows += rows
	reply.Bytes += size
	return nil
}

// full says that a limit lets nothing more through.
func (a Ask) full(reply *Reply) bool {
	return a.MaxRows > 0 && reply.Rows >= a.MaxRows || a.MaxBytes > 0 && reply.Bytes >= a.MaxBytes
}

// maxColumns bounds the columns of a result: each is held by name and type, in
// every batch, whatever its rows.
const maxColumns = 10_000

// resultSchema makes the Arrow schema of a result; watch tells which columns'
// values have to be looked at.
func resultSchema(opts arrowmapping.ArrowOptions, res *mapping.Result) (schema *arrow.Schema, watch []bool, err error) {
	n := mapping.ColumnCount(res)
	if n > maxColumns {
		return nil, nil, misbound("the result has %d columns; at most %d are allowed", n, maxColumns)
	}
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
		if watch[i], err = crosses(types[i], 1); err != nil {
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

// batchBytes is what a batch's columns take on their way to a reader, a slice's
// its own part only.
func batchBytes(rec arrow.RecordBatch) (int64, error) {
	if rec.NumRows() == 0 {
		return 0, nil // Arrow pads even that
	}
	p, err := ipc.GetRecordBatchPayload(rec)
	if err != nil {
		return 0, fmt.Errorf("measure rows: %w", err)
	}
	defer p.Release()
	var n counter
	if err := p.SerializeBody(&n); err != nil {
		return 0, fmt.Errorf("measure rows: %w", err)
	}
	return int64(n), nil
}

// counter counts what is written.
type counter int64

// Write implements io.Writer.
func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}
