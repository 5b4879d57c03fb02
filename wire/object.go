package wire

import (
	"fmt"

	"icecore/trace"
)

// setter reads the value at the scanner's position into one field of dst. The
// Field of a *trace.Error that it returns is what follows the field's name:
// "" or "[3]" or ".length".
type setter[T any] func(s *scanner, dst *T) error

type field[T any] struct {
	name string
	set  setter[T]
	// words: NaN and Infinity, which are no JSON, do not make the text
	// unreadable inside this field.
	words bool
}

// unknownPolicy says what becomes of a field that the table does not name.
type unknownPolicy int

const (
	refuseUnknown unknownPolicy = iota // there is nowhere to keep it
	ignoreUnknown                      // nothing is lost with it: warn
	keepUnknown                        // keep it in record.extra: warn
)

// table is what one kind of object may hold.
type table[T any] struct {
	fields  []field[T]
	index   map[string]int
	unknown unknownPolicy
}

func newTable[T any](unknown unknownPolicy, fields ...field[T]) *table[T] {
	if len(fields) > 64 {
		panic("wire: a record's set of fields has 64 bits")
	}
	t := &table[T]{fields: fields, index: make(map[string]int, len(fields)), unknown: unknown}
	for i, f := range fields {
		t.index[f.name] = i
	}
	return t
}

// record is what is learnt about an object beside its values.
type record struct {
	// seen and given have one bit per field of the table; given leaves out null.
	seen, given uint64
	err         *trace.Error
	extra       []member
	extraBytes  int
	warnings    []string
	unwarned    int
}

// refuse keeps the first error.
func (r *record) refuse(err *trace.Error) {
	if r.err == nil {
		r.err = err
	}
}

const maxWarnings = 16

func (r *record) warn(message string) {
	if len(r.warnings) == maxWarnings {
		r.unwarned++
		return
	}
	r.warnings = append(r.warnings, message)
}

func (r *record) allWarnings() []string {
	if r.unwarned > 0 {
		return append(r.warnings, fmt.Sprintf("%d further warnings are left out", r.unwarned))
	}
	return r.warnings
}

// readObject reads the object at the position into dst. It returns syntax
// errors only; a field that is wrong goes into rec, and reading goes on, so that
// what follows is still checked and the item's id is still found.
func readObject[T any](s *scanner, t *table[T], dst *T, rec *record) error {
	s.pos++
	if s.space(); s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.fail("expected a key in double quotes")
		}
		key, err := s.textBytes()
		if err != nil {
			return err
		}
		i, known := t.index[string(key)]
		name := ""
		if !known {
			name = string(key)
		}
		s.space()
		if err := s.expect(':', "expected ':' after a key"); err != nil {
			return err
		}
		s.space()
		if known {
			err = readField(s, t, i, dst, rec)
		} else {
			err = readUnknown(s, t.unknown, name, rec)
		}
		if err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case '}':
			s.pos++
			return nil
		case ',':
			s.pos++
			s.space()
		default:
			return s.fail(afterValue(true))
		}
	}
}

func readField[T any](s *scanner, t *table[T], i int, dst *T, rec *record) error {
	f, bit, start := &t.fields[i], uint64(1)<<i, s.pos
	var err error
	switch {
	case rec.seen&bit != 0:
		err = &trace.Error{Code: trace.CodeDuplicateField, Message: "is given twice"}
	case s.literal("null"):
		rec.seen |= bit
		return nil
	default:
		rec.seen |= bit
		rec.given |= bit
		err = f.set(s, dst)
	}
	return s.settle(err, f.name, start, f.words, rec)
}

// settle turns a setter's error into the record's, and passes over the value
// that was wrong. A syntax error goes through.
func (s *scanner) settle(err error, name string, start int, words bool, rec *record) error {
	wrong, ok := err.(*trace.Error)
	if !ok {
		return err
	}
	s.pos = start
	deepest, err := s.skip(words)
	if err != nil {
		return err
	}
	if deepest+1 > s.lim.MaxJSONDepth {
		wrong = s.tooDeep()
	}
	wrong.Field = name + wrong.Field
	rec.refuse(wrong)
	return nil
}

func (s *scanner) tooDeep() *trace.Error {
	return &trace.Error{Code: trace.CodeJSONTooDeep,
		Message: fmt.Sprintf("is nested deeper than the limit of %d", s.lim.MaxJSONDepth)}
}

func readUnknown(s *scanner, policy unknownPolicy, name string, rec *record) error {
	start := s.pos
	var err error
	switch policy {
	case keepUnknown:
		err = s.keep(name, rec)
	case ignoreUnknown:
		rec.warn(shown(name) + ": is no field here, and is not kept")
		_, err = s.value()
	default:
		err = trace.Invalid("", "is no field here")
	}
	return s.settle(err, shown(name), start, false, rec)
}

// keep adds an unknown field to the record's extra.
func (s *scanner) keep(name string, rec *record) error {
	// A list of traces is an envelope only when it is all that the object
	// holds; anything else must not lose traces silently.
	if name == traceKind.list {
		return trace.Invalid("", "an object with this field holds nothing else")
	}
	rec.warn(shown(name) + ": is no field of a trace; it is kept as it is")
	value, err := s.canonical()
	if err != nil {
		return err
	}
	if rec.extraBytes += len(value) + len(name); rec.extraBytes > s.lim.MaxBodyBytes {
		return tooLarge(s.lim.MaxBodyBytes)
	}
	rec.extra = append(rec.extra, member{key: name, value: value})
	return nil
}

// value passes over one value that is kept as it is, and gives its bytes.
func (s *scanner) value() ([]byte, error) {
	start := s.pos
	deepest, err := s.skip(false)
	if err != nil {
		return nil, err
	}
	// The item itself is the first level.
	if deepest+1 > s.lim.MaxJSONDepth {
		return nil, s.tooDeep()
	}
	if s.pos-start > s.lim.MaxBodyBytes {
		return nil, tooLarge(s.lim.MaxBodyBytes)
	}
	return s.buf[start:s.pos], nil
}

func tooLarge(limit int) error {
	return &trace.Error{Code: trace.CodeBodyTooLarge,
		Message: fmt.Sprintf("holds more than the limit of %d bytes", limit)}
}
