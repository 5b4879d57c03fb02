package warehouse

/*
#include <stdint.h>
#include <stdlib.h>

void icecore_call(void *info, void *chunk, void *out);
void icecore_forget(void *extra);

typedef void (*icecore_call_t)(void *, void *, void *);
typedef void (*icecore_forget_t)(void *);
*/
import "C"

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"runtime/cgo"
	"runtime/debug"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/duckdb/duckdb-go/v2/mapping"
)

// Function is a scalar function that SQL can call; the views are made of them.
// A view's column that is a function costs nothing unless the query selects it,
// and then only for the rows that the query keeps: DuckDB evaluates it after
// filters and limits, which it would not do with a subquery.
type Function struct {
	Name string
	// Params is the number of parameters; each is a BIGINT and may be NULL.
	Params int
	// Result is the type of the result: integers, floats, booleans, texts,
	// blobs, and lists and structs of them.
	Result arrow.DataType
	// Run evaluates one vector, at most 2,048 rows. It is called by several
	// threads at once. What it asks q sees what is committed at that moment, not
	// the snapshot of the calling query: newer rows too, and not those that were
	// deleted since. So rows that a query may still name must not be deleted soon.
	Run func(ctx context.Context, q Querier, args []Column, out Out) error
}

// Querier runs SQL inside the warehouse.
type Querier interface {
	// Query hands the result over batch by batch; a batch is valid during the
	// call only.
	Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error
}

// registered is what DuckDB hands back at each call.
type registered struct {
	Function
	db *sql.DB
}

// register makes functions known to all connections of the database.
func register(ctx context.Context, db *sql.DB, functions []Function) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("register functions: %w", err)
	}
	defer conn.Close() //nolint:errcheck // gives it back to the pool
	err = conn.Raw(func(dc any) error {
		raw := rawConnection(dc.(driver.Conn))
		var errs []error
		for _, f := range functions {
			errs = append(errs, registerOne(raw, &registered{f, db}))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("register functions: %w", err)
	}
	return nil
}

func registerOne(conn mapping.Connection, r *registered) error {
	f := mapping.CreateScalarFunction()
	defer mapping.DestroyScalarFunction(&f)
	mapping.ScalarFunctionSetName(f, r.Name)
	number := mapping.CreateLogicalType(mapping.TypeBigInt)
	defer mapping.DestroyLogicalType(&number)
	for range r.Params {
		mapping.ScalarFunctionAddParameter(f, number)
	}
	result, err := logicalType(r.Result)
	if err != nil {
		return fmt.Errorf("function %s: %w", r.Name, err)
	}
	defer mapping.DestroyLogicalType(&result)
	mapping.ScalarFunctionSetReturnType(f, result)
	mapping.ScalarFunctionSetSpecialHandling(f) // NULL arguments are ours to judge
	// DuckDB keeps a pointer to C memory that holds the handle, and gives it back
	// to icecore_forget.
	extra := C.malloc(C.size_t(unsafe.Sizeof(C.uintptr_t(0))))
	*(*C.uintptr_t)(extra) = C.uintptr_t(cgo.NewHandle(r))
	mapping.ScalarFunctionSetExtraInfo(f, extra, unsafe.Pointer(C.icecore_forget_t(C.icecore_forget)))
	mapping.ScalarFunctionSetFunction(f, unsafe.Pointer(C.icecore_call_t(C.icecore_call)))
	if mapping.RegisterScalarFunction(conn, f) == mapping.StateError {
		return fmt.Errorf("function %s: DuckDB does not take it", r.Name)
	}
	return nil
}

//export icecore_forget
func icecore_forget(extra unsafe.Pointer) {
	cgo.Handle(*(*C.uintptr_t)(extra)).Delete()
	C.free(extra)
}

// icecore_call is called by DuckDB's threads. A panic here would take the
// process down; it becomes an error of the query instead.
//
//export icecore_call
func icecore_call(info, chunk, out unsafe.Pointer) {
	fi := mapping.FunctionInfo{Ptr: info}
	r := cgo.Handle(*(*C.uintptr_t)(mapping.ScalarFunctionGetExtraInfo(fi))).Value().(*registered)
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "%s panicked: %v\n%s", r.Name, p, debug.Stack())
			mapping.ScalarFunctionSetError(fi, r.Name+" failed; the server's log says why")
		}
	}()
	in := mapping.DataChunk{Ptr: chunk}
	rows := int(mapping.DataChunkGetSize(in))
	args := make([]Column, r.Params)
	for i := range args {
		vec := mapping.DataChunkGetVector(in, mapping.IdxT(i))
		args[i] = Column{values: unsafe.Slice((*int64)(mapping.VectorGetData(vec)), rows), mask: mapping.VectorGetValidity(vec)}
	}
	err := r.Run(context.Background(), inside{r.db}, args, Out{vec: mapping.Vector{Ptr: out}, Rows: rows})
	if err != nil {
		mapping.ScalarFunctionSetError(fi, err.Error())
	}
}

// Column is one argument over all rows of a call.
type Column struct {
	values []int64
	mask   unsafe.Pointer
}

// Len is the number of rows.
func (c Column) Len() int { return len(c.values) }

// Get is the argument in row i; false: it is NULL.
func (c Column) Get(i int) (int64, bool) {
	if c.mask != nil && !mapping.ValidityRowIsValid(c.mask, mapping.IdxT(i)) {
		return 0, false
	}
	return c.values[i], true
}

// inside runs queries on connections of their own. It takes no lock of the
// engine's: the query that called holds it.
type inside struct{ db *sql.DB }

// Query implements Querier.
func (q inside) Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error {
	conn, err := q.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("query warehouse: %w", err)
	}
	defer conn.Close() //nolint:errcheck // gives it back to the pool
	return readOn(ctx, conn, each, text, args)
}
