package wire

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"icecore/trace"
)

// LearnerLogprobsArrow reads the same from an Arrow stream, one trajectory per
// row: trajectory_id (string), policy_version (integer), logprobs (list of
// float32 or float64). A null in the list, and NaN, is a position not known.
func LearnerLogprobsArrow(body []byte, lim Limits) ([]Item[trace.LearnerLogprobs], error) {
	return readArrow(body, lim, func(schema *arrow.Schema, lim Limits) (batchReader[trace.LearnerLogprobs], error) {
		if err := onceEach(schema); err != nil {
			return nil, err
		}
		d := &rowDecoder{s: &scanner{lim: lim}, schema: schema, textLeft: lim.MaxBytes}
		return d.learnerBatch, nil
	})
}

// learnerRow reads row i of one column.
type learnerRow func(i int, l *trace.LearnerLogprobs) error

// learnerColumns says how each field travels as a column. Its names are those of
// learnerFields.
var learnerColumns = map[string]func(*rowDecoder, arrow.Array) (learnerRow, error){
	"trajectory_id": func(d *rowDecoder, a arrow.Array) (learnerRow, error) {
		get := texts(a, false)
		if get == nil {
			return nil, wrongColumn("a string", a)
		}
		return func(i int, l *trace.LearnerLogprobs) (err error) {
			if b, ok := get(i); ok {
				l.TrajectoryID, err = d.text(b)
			}
			return err
		}, nil
	},
	"policy_version": func(_ *rowDecoder, a arrow.Array) (learnerRow, error) {
		get := integers(a)
		if get == nil {
			return nil, wrongColumn("an integer", a)
		}
		return func(i int, l *trace.LearnerLogprobs) error {
			v, wrong := get(i)
			if l.PolicyVersion = v; wrong != nil {
				return wrong
			}
			return nil
		}, nil
	},
	"logprobs": func(d *rowDecoder, a arrow.Array) (learnerRow, error) {
		get := d.logprobLists(a)
		if get == nil {
			return nil, wrongColumn(logprobsType, a)
		}
		return func(i int, l *trace.LearnerLogprobs) (err error) {
			l.Logprobs, err = get(i)
			return err
		}, nil
	},
}

// learnerColumn is a column that is safe to read; read is nil when its name is
// no field.
type learnerColumn struct {
	name  string
	array arrow.Array
	read  learnerRow
}

func (d *rowDecoder) learnerBatch(batch arrow.RecordBatch) ([]Item[trace.LearnerLogprobs], error) {
	if batch.NumRows() == 0 {
		return nil, nil
	}
	var columns []learnerColumn
	for i, f := range d.schema.Fields() {
		a := batch.Column(i)
		if ext, ok := a.(array.ExtensionArray); ok {
			a = ext.Storage()
		}
		c := learnerColumn{name: f.Name, array: a}
		if maker := learnerColumns[f.Name]; maker != nil && a.DataType().ID() != arrow.NULL {
			var err error
			if c.read, err = maker(d, a); err == nil {
				err = d.checker.check(a.Data())
			}
			if err != nil {
				return nil, invalidArrow(-1, "column "+quoted(f.Name)+": "+err.Error(), nil)
			}
		}
		columns = append(columns, c)
	}
	items := make([]Item[trace.LearnerLogprobs], batch.NumRows())
	for i := range items {
		item, err := d.learnerItem(columns, i)
		if err != nil {
			return nil, err
		}
		items[i] = item
	}
	return items, nil
}

func (d *rowDecoder) learnerItem(columns []learnerColumn, i int) (Item[trace.LearnerLogprobs], error) {
	l := new(trace.LearnerLogprobs)
	var rec record
	for _, c := range columns {
		place, known := learnerFields.index[c.name]
		switch {
		case !known:
			rec.warn(shown(c.name) + ": is no field here, and is not kept")
			continue
		case c.read == nil || c.array.IsNull(i):
			continue
		}
		rec.given |= 1 << place
		err := c.read(i, l)
		if wrong, ok := err.(*trace.Error); ok {
			wrong.Field = shown(c.name) + wrong.Field
			rec.refuse(wrong)
		} else if err != nil {
			return Item[trace.LearnerLogprobs]{}, err
		}
	}
	return finishItem(d.s, learnerKind, l, &rec), nil
}
