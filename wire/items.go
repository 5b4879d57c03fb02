package wire

import (
	"bytes"
	"errors"
	"fmt"

	"icecore/trace"
)

// Item is one decoded item, or the reason why it is refused.
type Item[T any] struct {
	// Value is nil when the item is refused.
	Value *T
	// ID is the item's own id, also of a refused item when it could be read.
	ID string
	// Err is nil when the item is valid.
	Err *trace.Error
	// Warnings tell the sender what was understood otherwise than meant.
	Warnings []string
}

// kind is what one kind of item looks like on the wire.
type kind[T any] struct {
	list string // "traces", the only field of the object that may wrap a list
	// ambiguous: an item has a field of that name too, an array without objects.
	ambiguous bool
	// fields of one item.
	fields *table[T]
	id     func(*T) string
	// finish completes and checks an item whose fields are read.
	finish func(s *scanner, v *T, rec *record)
}

// readItem reads the value at the position as one item. An error is a syntax
// error; the item is then refused with what is known of it.
func readItem[T any](s *scanner, k *kind[T]) (Item[T], error) {
	if s.peek() != '{' {
		wrong := &trace.Error{Code: trace.CodeNotAnObject, Message: "is " + s.kindName() + ", not an object"}
		var rec record
		err := s.settle(wrong, "", s.pos, false, &rec)
		return Item[T]{Err: rec.err}, err
	}
	s.repaired = false
	v := new(T)
	var rec record
	if err := readObject(s, k.fields, v, &rec); err != nil {
		return Item[T]{ID: readableID(k.id(v))}, err
	}
	return finishItem(s, k, v, &rec), nil
}

func finishItem[T any](s *scanner, k *kind[T], v *T, rec *record) Item[T] {
	if rec.err == nil {
		k.finish(s, v, rec)
	}
	item := Item[T]{ID: readableID(k.id(v)), Err: rec.err, Warnings: rec.allWarnings()}
	if rec.err == nil {
		item.Value = v
	}
	return item
}

// readableID is id if it may be repeated in an answer.
func readableID(id string) string {
	if trace.ValidateID("", id) != nil {
		return ""
	}
	return id
}

// readItems reads application/json: one item, an array of them, or an object
// whose only field is the list.
func readItems[T any](body []byte, lim Limits, k *kind[T]) ([]Item[T], error) {
	s := &scanner{buf: body, lim: lim.WithDefaults()}
	items, err := readEnvelope(s, k)
	var syntax *syntaxError
	if errors.As(err, &syntax) {
		err = syntax.envelope()
	}
	if err != nil {
		return nil, err
	}
	return items, nil
}

func readEnvelope[T any](s *scanner, k *kind[T]) (items []Item[T], err error) {
	s.space()
	start := s.pos
	switch {
	case s.peek() == '[':
		items, err = readList(s, k)
	case s.peek() != '{':
		return nil, s.fail("expected an object or an array")
	case s.opensList(k.list) && (!k.ambiguous || s.holdsItems()):
		if s.peek() != '[' {
			return nil, s.fail(k.list + " is not an array")
		}
		if items, err = readList(s, k); err == nil {
			s.space()
			err = s.expect('}', "an object with the field "+k.list+" holds nothing else")
		}
	default:
		s.pos = start
		var item Item[T]
		if item, err = readItem(s, k); err == nil {
			items = []Item[T]{item}
		}
	}
	if err != nil {
		return nil, err
	}
	return items, s.end()
}

// opensList moves behind `{"name":` if that is how the object begins.
func (s *scanner) opensList(name string) bool {
	s.pos++
	s.space()
	if s.peek() != '"' {
		return false
	}
	key, err := s.textBytes()
	if err != nil || string(key) != name {
		return false
	}
	s.space()
	if s.expect(':', "") != nil {
		return false
	}
	s.space()
	return true
}

// holdsItems says whether the array at the position is a list of items: it has an
// object first, or is empty and all that the object around it holds.
func (s *scanner) holdsItems() bool {
	at := *s
	if at.peek() != '[' {
		return false
	}
	at.pos++
	if at.space(); at.peek() != ']' {
		return at.peek() == '{'
	}
	at.pos++
	at.space()
	return at.peek() == '}'
}

func readList[T any](s *scanner, k *kind[T]) ([]Item[T], error) {
	var items []Item[T]
	err := list(s, "an array", func(i int) error {
		if i == s.lim.MaxItems {
			return tooManyItems(s.lim.MaxItems, int64(s.pos))
		}
		item, err := readItem(s, k)
		items = append(items, item)
		return err
	})
	return items, err
}

// readLines reads one item per line that is not blank. A line that is not JSON
// refuses that line only.
func readLines[T any](body []byte, lim Limits, k *kind[T]) ([]Item[T], error) {
	s := &scanner{lim: lim.WithDefaults()}
	var items []Item[T]
	for start, line := 0, 1; start < len(body); line++ {
		end := len(body)
		if n := bytes.IndexByte(body[start:], '\n'); n >= 0 {
			end = start + n
		}
		// Offsets stay those of the body, and nothing is read past the line.
		s.buf, s.pos = body[:end], start
		start = end + 1
		if s.space(); s.pos == end {
			continue
		}
		if len(items) == s.lim.MaxItems {
			return nil, tooManyItems(s.lim.MaxItems, int64(s.pos))
		}
		item, err := readItem(s, k)
		if err == nil {
			err = s.end()
		}
		var syntax *syntaxError
		if errors.As(err, &syntax) {
			item = Item[T]{ID: item.ID, Err: &trace.Error{Code: trace.CodeInvalidJSON,
				Message: fmt.Sprintf("line %d, byte %d of the body: %s", line, syntax.offset, syntax.message)}}
		}
		items = append(items, item)
	}
	return items, nil
}

// TracesJSON reads application/json: a trace, an array of traces, or
// {"traces": […]}.
func TracesJSON(body []byte, lim Limits) ([]Item[trace.Trace], error) {
	return readItems(body, lim, traceKind)
}

// TracesNDJSON reads application/x-ndjson: a trace per line. Blank lines are
// passed over.
func TracesNDJSON(body []byte, lim Limits) ([]Item[trace.Trace], error) {
	return readLines(body, lim, traceKind)
}
