package table

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// nestedCells writes lists, structs, maps and unions as JSON, also where plain
// text is asked for.
func nestedCells(a arrow.Array) (cells, bool) {
	switch a := a.(type) {
	case *array.Map: // before the lists, of which it is one
		return mapCells(a), true
	case array.ListLike:
		values := cellsOf(a.ListValues())
		return both(func(b []byte, i int) []byte {
			start, end := a.ValueOffsets(i)
			b = append(b, '[')
			for j := start; j < end; j++ {
				b = values.json(comma(b, j > start), int(j))
			}
			return append(b, ']')
		}), true
	case *array.Struct:
		return structCells(a), true
	case array.Union:
		return unionCells(a), true
	}
	return cells{}, false
}

func comma(b []byte, needed bool) []byte {
	if needed {
		b = append(b, ',')
	}
	return b
}

// structCells writes an object; a struct without names, as row(1, 2) makes one,
// is an array, since an object would keep one value only.
func structCells(a *array.Struct) cells {
	t := a.DataType().(*arrow.StructType)
	fields := make([]put, a.NumField())
	names := make([][]byte, a.NumField())
	for i := range fields {
		fields[i] = cellsOf(a.Field(i)).json
		names[i] = append(appendQuoted(nil, t.Field(i).Name), ':')
	}
	opening, closing := byte('{'), byte('}')
	if !distinct(t) {
		opening, closing, names = '[', ']', make([][]byte, len(fields))
	}
	return both(func(b []byte, i int) []byte {
		b = append(b, opening)
		for j, field := range fields {
			b = field(append(comma(b, j > 0), names[j]...), i)
		}
		return append(b, closing)
	})
}

// distinct says whether all fields have names, each another one.
func distinct(t *arrow.StructType) bool {
	seen := map[string]bool{"": true}
	for _, f := range t.Fields() {
		if seen[f.Name] {
			return false
		}
		seen[f.Name] = true
	}
	return true
}

// mapCells writes an object when the keys are text, else a list of objects with
// key and value.
func mapCells(a *array.Map) cells {
	keys, items := cellsOf(a.Keys()).json, cellsOf(a.Items()).json
	texts := false
	if _, ok := a.Keys().(array.StringLike); ok {
		texts = true
	}
	return both(func(b []byte, i int) []byte {
		start, end := a.ValueOffsets(i)
		if texts {
			b = append(b, '{')
			for j := start; j < end; j++ {
				b = append(keys(comma(b, j > start), int(j)), ':')
				b = items(b, int(j))
			}
			return append(b, '}')
		}
		b = append(b, '[')
		for j := start; j < end; j++ {
			b = keys(append(comma(b, j > start), `{"key":`...), int(j))
			b = append(items(append(b, `,"value":`...), int(j)), '}')
		}
		return append(b, ']')
	})
}

// unionCells writes the value that is there, as its own type would be.
func unionCells(a array.Union) cells {
	members := make([]cells, a.NumFields())
	for i := range members {
		members[i] = cellsOf(a.Field(i))
	}
	at := func(i int) int { return i }
	if dense, ok := a.(*array.DenseUnion); ok {
		at = func(i int) int { return int(dense.ValueOffset(i)) }
	}
	return cells{
		null: func(i int) bool { return members[a.ChildID(i)].null(at(i)) },
		json: func(b []byte, i int) []byte { return members[a.ChildID(i)].json(b, at(i)) },
		text: func(b []byte, i int) []byte { return members[a.ChildID(i)].text(b, at(i)) },
	}
}
