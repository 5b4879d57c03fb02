package warehouse

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"

	"github.com/duckdb/duckdb-go/v2/arrowmapping"
	"github.com/duckdb/duckdb-go/v2/mapping"
)

// vectorRows is how many rows a DuckDB data chunk holds.
const vectorRows = 2048

// appendRecords hands record batches to DuckDB's appender as data chunks. The
// driver's own Arrow path (RegisterView) leaves a persistent view over freed
// memory behind.
func appendRecords(dc driver.Conn, a Addition) (err error) {
	if len(a.Records) == 0 {
		return nil
	}
	conn := rawConnection(dc)
	var app mapping.Appender
	if mapping.AppenderCreateExt(conn, "", "ice", a.Table, &app) == mapping.StateError {
		err := appenderError(app)
		mapping.AppenderDestroy(&app)
		return fmt.Errorf("append to ice.%s: %w", a.Table, err)
	}
	defer mapping.AppenderDestroy(&app)
	schema, ed := arrowmapping.SchemaFromArrow(conn, a.Records[0].Schema())
	if err := takeError(ed); err != nil {
		return fmt.Errorf("append to ice.%s: %w", a.Table, err)
	}
	defer arrowmapping.DestroyArrowConvertedSchema(&schema)
	for _, rec := range a.Records {
		for from := int64(0); from < rec.NumRows(); from += vectorRows {
			slice := rec.NewSlice(from, min(from+vectorRows, rec.NumRows()))
			chunk, ed := arrowmapping.DataChunkFromArrow(conn, slice, schema)
			slice.Release()
			if err := takeError(ed); err != nil {
				return fmt.Errorf("append to ice.%s: %w", a.Table, err)
			}
			state := mapping.AppendDataChunk(app, chunk)
			mapping.DestroyDataChunk(&chunk)
			if state == mapping.StateError {
				return fmt.Errorf("append to ice.%s: %w", a.Table, appenderError(app))
			}
		}
	}
	if mapping.AppenderFlush(app) == mapping.StateError {
		return fmt.Errorf("append to ice.%s: %w", a.Table, appenderError(app))
	}
	return nil
}

// rawConnection reads the driver's unexported handle: the driver has no other
// way to append an Arrow batch. The versions are pinned, and a test reads it.
func rawConnection(dc driver.Conn) mapping.Connection {
	ptr := reflect.ValueOf(dc).Elem().FieldByName("conn").FieldByName("Ptr")
	return mapping.Connection{Ptr: ptr.UnsafePointer()}
}

func appenderError(a mapping.Appender) error {
	ed := mapping.AppenderErrorData(a)
	if err := takeError(ed); err != nil {
		return err
	}
	return errors.New("unknown appender error")
}

func takeError(ed mapping.ErrorData) error {
	defer mapping.DestroyErrorData(&ed)
	if ed.Ptr == nil || !mapping.ErrorDataHasError(ed) {
		return nil
	}
	return errors.New(mapping.ErrorDataMessage(ed))
}
