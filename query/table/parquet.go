package table

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/util"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// rowGroupBytes is how many bytes of Arrow columns make a row group: what they
// are encoded into is held until its end.
const rowGroupBytes = 64 << 20

// parquetWriter writes Parquet, compressed with zstd. Columns of types that
// Parquet lacks are written as the text that CSV has for them.
type parquetWriter struct {
	w      *pqarrow.FileWriter
	schema *arrow.Schema
	worded []bool
	// bytes of the row group so far.
	bytes int64
}

func newParquetWriter(w io.Writer, schema *arrow.Schema, info Info) (*parquetWriter, error) {
	p := &parquetWriter{worded: make([]bool, schema.NumFields())}
	names := uniqueNames(schema)
	fields := make([]arrow.Field, schema.NumFields())
	for i, f := range schema.Fields() {
		fields[i] = arrow.Field{Name: names[i], Type: f.Type, Nullable: true}
		if !parquetHas(f.Type) {
			p.worded[i], fields[i].Type = true, arrow.BinaryTypes.String
		}
	}
	p.schema = withInfo(arrow.NewSchema(fields, nil), info)
	var err error
	p.w, err = pqarrow.NewFileWriter(p.schema, w, parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd)),
		pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		return nil, fmt.Errorf("start Parquet result: %w", err)
	}
	return p, nil
}

// parquetHas says whether columns of a type can be written, and read back by
// others.
func parquetHas(t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.MonthDayNanoIntervalType, *arrow.DurationType, arrow.UnionType, arrow.ExtensionType, *arrow.NullType:
		return false
	case *arrow.DictionaryType:
		// At the top only: inside of lists its indexes would be written.
		return t.ValueType.ID() == arrow.STRING
	case *arrow.StructType:
		if !distinct(t) {
			return false
		}
		for _, f := range t.Fields() {
			if !nestedParquetHas(f.Type) {
				return false
			}
		}
	case *arrow.MapType:
		return nestedParquetHas(t.KeyType()) && nestedParquetHas(t.ItemType())
	case arrow.ListLikeType:
		return nestedParquetHas(t.Elem())
	}
	return true
}

func nestedParquetHas(t arrow.DataType) bool {
	return t.ID() != arrow.DICTIONARY && parquetHas(t)
}

// Write implements Writer.
func (p *parquetWriter) Write(rec arrow.RecordBatch) error {
	columns := make([]arrow.Array, rec.NumCols())
	for i, a := range rec.Columns() {
		if p.worded[i] {
			columns[i] = inWords(a)
			continue
		}
		a.Retain()
		columns[i] = a
	}
	out := array.NewRecordBatch(p.schema, columns, rec.NumRows())
	defer out.Release()
	for _, a := range columns {
		a.Release() // the batch keeps it
	}
	if err := p.w.WriteBuffered(out); err != nil {
		return fmt.Errorf("write Parquet result: %w", err)
	}
	if p.bytes += util.TotalRecordSize(out); p.bytes < rowGroupBytes {
		return nil
	}
	p.bytes = 0
	if err := p.w.NewBufferedRowGroupChecked(); err != nil {
		return fmt.Errorf("write Parquet result: %w", err)
	}
	return nil
}

func inWords(a arrow.Array) arrow.Array {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	column := cellsOf(a)
	var text []byte
	for i := range a.Len() {
		if column.null(i) {
			b.AppendNull()
			continue
		}
		text = column.text(text[:0], i)
		b.Append(string(text))
	}
	return b.NewArray()
}

// Close implements Writer.
func (p *parquetWriter) Close() error {
	if err := p.w.Close(); err != nil {
		return fmt.Errorf("end Parquet result: %w", err)
	}
	return nil
}

// Break implements Writer: without its footer nobody reads a Parquet file.
func (p *parquetWriter) Break() {}
