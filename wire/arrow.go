package wire

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"icecore/trace"
)

// TracesArrow reads application/vnd.apache.arrow.stream: one trace per row,
// columns named as the fields of JSON. A column of the wrong type refuses the
// whole request.
func TracesArrow(body []byte, lim Limits) ([]Item[trace.Trace], error) {
	return readArrow(body, lim, func(schema *arrow.Schema, lim Limits) (batchReader[trace.Trace], error) {
		d, err := newRowDecoder(schema, lim)
		if err != nil {
			return nil, err
		}
		return d.batch, nil
	})
}

// batchReader turns a record batch into one item per row. Its errors refuse the
// whole request.
type batchReader[T any] func(arrow.RecordBatch) ([]Item[T], error)

// readArrow reads a stream whose batches the reader that open makes understands.
func readArrow[T any](body []byte, lim Limits, open func(*arrow.Schema, Limits) (batchReader[T], error)) (items []Item[T], err error) {
	lim = lim.WithDefaults()
	frames, err := readFrames(body)
	if err != nil {
		return nil, err
	}
	rows := int64(0)
	for _, f := range frames {
		if f.header != headerBatch {
			continue
		}
		if rows += f.rows; rows > int64(lim.MaxItems) {
			return nil, tooManyItems(lim.MaxItems, int64(f.offset))
		}
	}
	source := &messages{frames: frames, left: lim.MaxBytes, limit: lim.MaxBytes}
	// Everything is checked before it is touched; this is for what was missed.
	defer func() {
		if p := recover(); p != nil {
			items, err = nil, invalidArrow(source.offset(), fmt.Sprintf("is damaged (%v)", p), nil)
		}
	}()
	memory := &cappedAllocator{left: 4 * lim.MaxBytes}
	reader, err := ipc.NewReaderFromMessageReader(source, ipc.WithAllocator(memory))
	if err != nil {
		return nil, source.fault(memory, err)
	}
	defer reader.Release()
	itemsOf, err := open(reader.Schema(), lim)
	if err != nil {
		return nil, err
	}
	for reader.Next() {
		more, err := itemsOf(reader.RecordBatch())
		if err != nil {
			return nil, err
		}
		items = append(items, more...)
	}
	if err := reader.Err(); err != nil || source.next < len(frames) {
		return nil, source.fault(memory, err)
	}
	return items, nil
}

func (m *messages) offset() int { return m.frames[max(0, m.next-1)].offset }

// fault says why arrow-go stopped.
func (m *messages) fault(memory *cappedAllocator, err error) error {
	switch {
	case m.err != nil:
		return m.err
	case memory.over:
		return &EnvelopeError{Code: CodeRequestTooLarge, Offset: int64(m.offset()),
			Message: "Arrow stream: its dictionaries grow beyond the limit"}
	case err == nil:
		return invalidArrow(m.offset(), "is not read to its end", nil)
	}
	return invalidArrow(m.offset(), "cannot be read: "+shown(err.Error()), err)
}

// TracesRecordBatch reads one record batch that another reader made, that of a
// Parquet file for instance. MaxItems bounds its rows.
func TracesRecordBatch(batch arrow.RecordBatch, lim Limits) (items []Item[trace.Trace], err error) {
	defer func() {
		if p := recover(); p != nil {
			items, err = nil, invalidArrow(-1, fmt.Sprintf("is damaged (%v)", p), nil)
		}
	}()
	lim = lim.WithDefaults()
	if batch.NumRows() > int64(lim.MaxItems) {
		return nil, tooManyItems(lim.MaxItems, -1)
	}
	rows, err := newRowDecoder(batch.Schema(), lim)
	if err != nil {
		return nil, err
	}
	return rows.batch(batch)
}

// rowDecoder turns the rows of record batches of one schema into traces.
type rowDecoder struct {
	s       *scanner
	schema  *arrow.Schema
	checker arrayChecker
	// textLeft is how much text may still be copied out: dictionaries and views
	// let a short stream stand for any amount.
	textLeft int64
	// extras are the columns that the contract does not name, of the row at hand.
	extras []member
}

// row reads row i of one column into t. Its errors are a setter's, or an
// *EnvelopeError.
type row func(i int, t *trace.Trace) error

type column struct {
	name  string
	array arrow.Array
	read  row
}

func newRowDecoder(schema *arrow.Schema, lim Limits) (*rowDecoder, error) {
	if err := onceEach(schema); err != nil {
		return nil, err
	}
	if schema.HasField(traceKind.list) {
		return nil, invalidArrow(-1, "a column must not be named "+quoted(traceKind.list), nil)
	}
	return &rowDecoder{s: &scanner{lim: lim}, schema: schema, textLeft: lim.MaxBytes}, nil
}

func onceEach(schema *arrow.Schema) error {
	seen := make(map[string]bool, schema.NumFields())
	for _, f := range schema.Fields() {
		if seen[f.Name] {
			return invalidArrow(-1, "column "+quoted(f.Name)+" is there twice", nil)
		}
		seen[f.Name] = true
	}
	return nil
}

func (d *rowDecoder) batch(batch arrow.RecordBatch) ([]Item[trace.Trace], error) {
	if batch.NumRows() == 0 {
		return nil, nil
	}
	columns := make([]column, 0, d.schema.NumFields())
	for i, f := range d.schema.Fields() {
		c, err := d.column(f.Name, batch.Column(i))
		if err != nil {
			return nil, invalidArrow(-1, "column "+quoted(f.Name)+": "+err.Error(), nil)
		}
		if c.read != nil {
			columns = append(columns, c)
		}
	}
	items := make([]Item[trace.Trace], 0, batch.NumRows())
	for i := range int(batch.NumRows()) {
		item, err := d.row(columns, i)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// column gives a reader for a, which is safe to read. A column of nulls has
// none, whatever its type.
func (d *rowDecoder) column(name string, a arrow.Array) (c column, err error) {
	if ext, ok := a.(array.ExtensionArray); ok {
		a = ext.Storage()
	}
	if a.DataType().ID() == arrow.NULL {
		return c, nil
	}
	c = column{name: name, array: a}
	if maker, ok := arrowColumns[name]; ok {
		c.read, err = maker(d, a)
	} else {
		c.read, err = d.extraColumn(name, a)
	}
	if err == nil {
		err = d.checker.check(a.Data())
	}
	return c, err
}

func (d *rowDecoder) row(columns []column, i int) (Item[trace.Trace], error) {
	d.s.repaired = false
	d.extras = nil
	t := new(trace.Trace)
	var rec record
	for _, c := range columns {
		if c.array.IsNull(i) {
			continue
		}
		err := c.read(i, t)
		if wrong, ok := err.(*trace.Error); ok {
			wrong.Field = shown(c.name) + wrong.Field
			rec.refuse(wrong)
		} else if err != nil {
			return Item[trace.Trace]{}, err
		}
	}
	for _, extra := range d.extras {
		rec.warn(shown(extra.key) + ": is no field of a trace; it is kept as it is")
	}
	rec.extra = d.extras
	return finishItem(d.s, traceKind, t, &rec), nil
}
