package table

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
)

// Format is how a result is written.
type Format struct {
	// Media is one of the types of Formats.
	Media string
	// Codec compresses the buffers of an Arrow stream: "zstd", "lz4", or "".
	Codec string
}

// The media types of results.
const (
	Arrow   = "application/vnd.apache.arrow.stream"
	JSON    = "application/json"
	NDJSON  = "application/x-ndjson"
	CSV     = "text/csv"
	Parquet = "application/vnd.apache.parquet"
)

// Formats are all of them, the one that is preferred first.
var Formats = []string{JSON, Arrow, NDJSON, CSV, Parquet}

// ContentType is the header for it.
func (f Format) ContentType() string {
	if f.Media == CSV {
		return CSV + "; charset=utf-8; header=present"
	}
	return f.Media
}

// Info is what is known of a result before it is written.
type Info struct {
	// Rows of the result.
	Rows int64
	// Truncated: there were more, beyond a limit.
	Truncated bool
}

// Writer writes one result.
type Writer interface {
	// Write adds the rows of a batch, which it does not keep.
	Write(rec arrow.RecordBatch) error
	// Close writes what ends the result.
	Close() error
	// Break writes what no reader takes for the end of a result: it is for a
	// result that cannot be written to its end.
	Break()
}

// New begins a result of the given columns.
func New(w io.Writer, f Format, schema *arrow.Schema, info Info) (Writer, error) {
	switch f.Media {
	case Arrow:
		return newArrowWriter(w, f.Codec, schema, info), nil
	case JSON:
		return newJSONWriter(w, schema, info), nil
	case NDJSON:
		return newNDJSONWriter(w, schema), nil
	case CSV:
		return newCSVWriter(w, schema), nil
	case Parquet:
		return newParquetWriter(w, schema, info)
	}
	return nil, fmt.Errorf("write result: there is no format %s", f.Media)
}

// flushBytes is how much text is gathered before it is written.
const flushBytes = 64 << 10

// lines gathers text and writes it in pieces.
type lines struct {
	w   io.Writer
	buf []byte
}

// spill writes what was gathered, if it is enough.
func (l *lines) spill(atLeast int) error {
	if len(l.buf) < atLeast || len(l.buf) == 0 {
		return nil
	}
	if _, err := l.w.Write(l.buf); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	l.buf = l.buf[:0]
	return nil
}

// breakOff writes bytes behind which nothing else comes. The connection is
// broken next, so that it does not matter whether they arrive.
func (l *lines) breakOff(bytes string) {
	l.buf = append(l.buf, bytes...)
	_ = l.spill(0)
}
