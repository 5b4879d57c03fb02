package wire

import (
	"fmt"
	"slices"

	"icecore/trace"
)

// The setters that most fields share. Each takes where the value goes.

func text[T any, S ~string](at func(*T) *S) setter[T] {
	return func(s *scanner, dst *T) error {
		v, err := s.text()
		*at(dst) = S(v)
		return err
	}
}

// cleanText is text that refuses what text would repair, for values that have
// no flag to say so.
func cleanText(s *scanner) (string, error) {
	before := s.repaired
	s.repaired = false
	v, err := s.text()
	if err == nil && s.repaired {
		err = trace.Invalid("", "holds a lone surrogate or invalid UTF-8")
	}
	s.repaired = before
	return v, err
}

func optionalText[T any](at func(*T) **string) setter[T] {
	return func(s *scanner, dst *T) error {
		v, err := cleanText(s)
		*at(dst) = &v
		return err
	}
}

func integer[T any](at func(*T) *int64) setter[T] {
	return func(s *scanner, dst *T) error {
		v, err := s.int64()
		*at(dst) = v
		return err
	}
}

func optionalInteger[T any](at func(*T) **int64) setter[T] {
	return func(s *scanner, dst *T) error {
		v, err := s.int64()
		if err == nil {
			*at(dst) = &v
		}
		return err
	}
}

func boolean[T any](at func(*T) *bool) setter[T] {
	return func(s *scanner, dst *T) error {
		*at(dst) = s.peek() == 't'
		if s.literal("true") || s.literal("false") {
			return nil
		}
		return s.wrongType("true or false")
	}
}

func moment[T any](at func(*T) **int64) setter[T] {
	return func(s *scanner, dst *T) error {
		if s.peek() != '"' {
			return s.wrongType("an RFC 3339 time with a zone")
		}
		v, err := s.textBytes()
		if err != nil {
			return err
		}
		micros, wrong := parseTime(v)
		if wrong != nil {
			return wrong
		}
		*at(dst) = &micros
		return nil
	}
}

func jsonObject[T any](at func(*T) *[]byte) setter[T] {
	return func(s *scanner, dst *T) (err error) {
		*at(dst), err = s.canonicalObject()
		return err
	}
}

// textOrJSON keeps a string as itself and any other value as canonical JSON.
func textOrJSON[T any](at func(*T) *string) setter[T] {
	return func(s *scanner, dst *T) (err error) {
		if s.peek() == '"' {
			*at(dst), err = s.text()
			return err
		}
		v, err := s.canonical()
		*at(dst) = string(v)
		return err
	}
}

// body keeps any JSON value as the bytes that came.
func body[T any](at func(*T) *[]byte) setter[T] {
	return func(s *scanner, dst *T) error {
		v, err := s.value()
		*at(dst) = slices.Clone(v)
		return err
	}
}

// nested reads an object with fields of its own.
func nested[T any](s *scanner, t *table[T], dst *T) error {
	if s.peek() != '{' {
		return s.wrongType("an object")
	}
	var rec record
	if err := readObject(s, t, dst, &rec); err != nil {
		return err
	}
	for i, f := range t.fields {
		if rec.given>>i&1 == 0 {
			rec.refuse(trace.Missing(f.name))
		}
	}
	if rec.err != nil {
		rec.err.Field = "." + rec.err.Field
		return rec.err
	}
	return nil
}

// list reads an array whose elements one reads.
func list(s *scanner, want string, one func(i int) error) error {
	if s.peek() != '[' {
		return s.wrongType(want)
	}
	s.pos++
	if s.space(); s.peek() == ']' {
		s.pos++
		return nil
	}
	for i := 0; ; i++ {
		s.space()
		if err := one(i); err != nil {
			if wrong, ok := err.(*trace.Error); ok {
				wrong.Field = fmt.Sprintf("[%d]%s", i, wrong.Field)
			}
			return err
		}
		s.space()
		switch s.peek() {
		case ']':
			s.pos++
			return nil
		case ',':
			s.pos++
		default:
			return s.fail(afterValue(false))
		}
	}
}
