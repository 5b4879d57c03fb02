package table

import (
	"io"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// jsonWriter writes {"columns": …, "rows": …, "row_count": …, "truncated": …}.
type jsonWriter struct {
	lines
	rows int64
	info Info
}

func newJSONWriter(w io.Writer, schema *arrow.Schema, info Info) *jsonWriter {
	j := &jsonWriter{lines: lines{w: w}, info: info}
	j.buf = append(j.buf, `{"columns":[`...)
	for i, c := range Columns(schema) {
		j.buf = appendQuoted(append(comma(j.buf, i > 0), `{"name":`...), c.Name)
		j.buf = append(appendQuoted(append(j.buf, `,"type":`...), c.Type), '}')
	}
	j.buf = append(j.buf, `],"rows":[`...)
	return j
}

// Write implements Writer.
func (j *jsonWriter) Write(rec arrow.RecordBatch) error {
	columns := cellsOfAll(rec)
	for i := range int(rec.NumRows()) {
		j.buf = append(comma(j.buf, j.rows > 0), "\n["...)
		for k, c := range columns {
			j.buf = c.json(comma(j.buf, k > 0), i)
		}
		j.buf = append(j.buf, ']')
		j.rows++
		if err := j.spill(flushBytes); err != nil {
			return err
		}
	}
	return nil
}

// Close implements Writer.
func (j *jsonWriter) Close() error {
	j.buf = strconv.AppendInt(append(j.buf, `],"row_count":`...), j.rows, 10)
	j.buf = strconv.AppendBool(append(j.buf, `,"truncated":`...), j.info.Truncated)
	j.buf = append(j.buf, "}\n"...)
	return j.spill(0)
}

// Break implements Writer: what was written is half an object as it is.
func (j *jsonWriter) Break() { j.breakOff("") }

// ndjsonWriter writes one object per row.
type ndjsonWriter struct {
	lines
	names [][]byte
}

func newNDJSONWriter(w io.Writer, schema *arrow.Schema) *ndjsonWriter {
	n := &ndjsonWriter{lines: lines{w: w}}
	for _, name := range uniqueNames(schema) {
		n.names = append(n.names, append(appendQuoted(nil, name), ':'))
	}
	return n
}

// Write implements Writer.
func (n *ndjsonWriter) Write(rec arrow.RecordBatch) error {
	columns := cellsOfAll(rec)
	for i := range int(rec.NumRows()) {
		n.buf = append(n.buf, '{')
		for k, c := range columns {
			n.buf = c.json(append(comma(n.buf, k > 0), n.names[k]...), i)
		}
		n.buf = append(n.buf, "}\n"...)
		if err := n.spill(flushBytes); err != nil {
			return err
		}
	}
	return nil
}

// Close implements Writer.
func (n *ndjsonWriter) Close() error { return n.spill(0) }

// Break implements Writer.
func (n *ndjsonWriter) Break() { n.breakOff(`{"broken":`) }

// csvWriter writes RFC 4180 with a header. NULL is empty, an empty text is "".
type csvWriter struct {
	lines
	cell []byte
}

func newCSVWriter(w io.Writer, schema *arrow.Schema) *csvWriter {
	c := &csvWriter{lines: lines{w: w}}
	for i, f := range schema.Fields() {
		c.field(i, []byte(f.Name))
	}
	c.buf = append(c.buf, "\r\n"...)
	return c
}

func (c *csvWriter) field(i int, text []byte) {
	c.buf = comma(c.buf, i > 0)
	if len(text) > 0 && !strings.ContainsAny(string(text), ",\"\r\n") {
		c.buf = append(c.buf, text...)
		return
	}
	c.buf = append(c.buf, '"')
	for _, b := range text {
		if b == '"' {
			c.buf = append(c.buf, '"')
		}
		c.buf = append(c.buf, b)
	}
	c.buf = append(c.buf, '"')
}

// Write implements Writer.
func (c *csvWriter) Write(rec arrow.RecordBatch) error {
	columns := cellsOfAll(rec)
	for i := range int(rec.NumRows()) {
		for k, col := range columns {
			if col.null(i) {
				c.buf = comma(c.buf, k > 0)
				continue
			}
			c.cell = col.text(c.cell[:0], i)
			c.field(k, c.cell)
		}
		c.buf = append(c.buf, "\r\n"...)
		if err := c.spill(flushBytes); err != nil {
			return err
		}
	}
	return nil
}

// Close implements Writer.
func (c *csvWriter) Close() error { return c.spill(0) }

// Break implements Writer: a quote that is never closed.
func (c *csvWriter) Break() { c.breakOff(`"broken`) }

func cellsOfAll(rec arrow.RecordBatch) []cells {
	out := make([]cells, rec.NumCols())
	for i, a := range rec.Columns() {
		out[i] = cellsOf(a)
	}
	return out
}
