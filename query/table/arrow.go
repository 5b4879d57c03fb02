package table

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// arrowWriter writes an IPC stream whose schema tells what Info tells.
type arrowWriter struct {
	raw    io.Writer
	w      *ipc.Writer
	schema *arrow.Schema
}

func newArrowWriter(w io.Writer, codec string, schema *arrow.Schema, info Info) *arrowWriter {
	schema = withInfo(schema, info)
	opts := append(CodecOptions(codec), ipc.WithSchema(schema))
	return &arrowWriter{raw: w, w: ipc.NewWriter(w, opts...), schema: schema}
}

// withInfo gives a schema whose metadata is the Info.
func withInfo(schema *arrow.Schema, info Info) *arrow.Schema {
	meta := arrow.NewMetadata([]string{"icecore.row_count", "icecore.truncated"},
		[]string{strconv.FormatInt(info.Rows, 10), strconv.FormatBool(info.Truncated)})
	return arrow.NewSchema(schema.Fields(), &meta)
}

// Write implements Writer.
func (a *arrowWriter) Write(rec arrow.RecordBatch) error {
	told := array.NewRecordBatch(a.schema, rec.Columns(), rec.NumRows())
	defer told.Release()
	if err := a.w.Write(told); err != nil {
		return fmt.Errorf("write Arrow result: %w", err)
	}
	return nil
}

// Close implements Writer.
func (a *arrowWriter) Close() error {
	if err := a.w.Close(); err != nil {
		return fmt.Errorf("end Arrow result: %w", err)
	}
	return nil
}

// Break implements Writer.
func (a *arrowWriter) Break() { Poison(a.raw) }

// CodecOptions makes a writer compress buffers with zstd or lz4; none: not at all.
func CodecOptions(codec string) []ipc.Option {
	switch codec {
	case "zstd":
		return []ipc.Option{ipc.WithZstd()}
	case "lz4":
		return []ipc.Option{ipc.WithLZ4()}
	}
	return nil
}

// Poison writes, behind an Arrow stream that cannot be finished, the beginning of
// a message of which most is missing. Some readers take a stream without its end
// marker for a whole one, and apache-arrow for JavaScript takes a negative length
// for an end; a description that breaks off is refused by all, and so is its
// content, which is no flatbuffer.
func Poison(w io.Writer) {
	bad := binary.LittleEndian.AppendUint32(nil, 0xffffffff)
	bad = binary.LittleEndian.AppendUint32(bad, 1<<16)
	bad = append(bad, bytes.Repeat([]byte{0xff}, 8)...)
	_, _ = w.Write(bad) // the connection is broken next, whatever comes of this
}
