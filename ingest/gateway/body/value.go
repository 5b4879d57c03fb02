package body

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// Value is a JSON value and its place in the body. Its zero value is absent.
//
// The getters give the zero of their type where the value is absent or null, and a
// fault that names the place where it is of another type.
type Value struct {
	raw   json.RawMessage
	place *place
}

// Kind is a JSON type.
type Kind string

// The kinds; a missing value and null are both KindAbsent.
const (
	KindAbsent Kind = "null"
	KindString Kind = "a string"
	KindNumber Kind = "a number"
	KindBool   Kind = "a boolean"
	KindObject Kind = "an object"
	KindArray  Kind = "an array"
)

// Kind tells the type.
func (v Value) Kind() Kind {
	if len(v.raw) == 0 {
		return KindAbsent
	}
	switch v.raw[0] {
	case '"':
		return KindString
	case '{':
		return KindObject
	case '[':
		return KindArray
	case 't', 'f':
		return KindBool
	case 'n':
		return KindAbsent
	}
	return KindNumber
}

// Absent says that there is no value, or null.
func (v Value) Absent() bool { return v.Kind() == KindAbsent }

// Given says that the member is there, null or not.
func (v Value) Given() bool { return len(v.raw) > 0 }

// Raw gives the bytes as they came, without the space around them; nil: absent.
func (v Value) Raw() json.RawMessage { return v.raw }

// Path names the value's place in the body.
func (v Value) Path() string { return v.place.String() }

// Invalid is a fault at this place; the path is put before the message.
func (v Value) Invalid(message string) error { return invalid(v.place, "%s", message) }

func (v Value) must(be Kind) error { return invalid(v.place, "must be %s, not %s", be, v.Kind()) }

// String gives the text. A lone surrogate escape becomes U+FFFD.
func (v Value) String() (string, error) {
	switch v.Kind() {
	case KindAbsent:
		return "", nil
	case KindString:
		return unquote(v.raw), nil
	}
	return "", v.must(KindString)
}

// NeedString is String, but the value has to be there and not be empty.
func (v Value) NeedString() (string, error) {
	s, err := v.String()
	if err == nil && s == "" {
		return "", invalid(v.place, "is required")
	}
	return s, err
}

// Bool gives the boolean; nil where absent.
func (v Value) Bool() (*bool, error) {
	switch v.Kind() {
	case KindAbsent:
		return nil, nil
	case KindBool:
		is := v.raw[0] == 't'
		return &is, nil
	}
	return nil, v.must(KindBool)
}

// True says that the boolean is there and true.
func (v Value) True() (bool, error) {
	is, err := v.Bool()
	return is != nil && *is, err
}

// Int gives the integer; nil where absent. 8000.0 and 8e3 count as integers.
func (v Value) Int() (*int64, error) {
	switch v.Kind() {
	case KindAbsent:
		return nil, nil
	case KindNumber:
	default:
		return nil, v.must(KindNumber)
	}
	n, err := strconv.ParseInt(string(v.raw), 10, 64)
	if err == nil {
		return &n, nil
	}
	f, ferr := strconv.ParseFloat(string(v.raw), 64)
	if ferr != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return nil, invalid(v.place, "must be an integer of 64 bits, not %s", clip(v.raw))
	}
	n = int64(f)
	return &n, nil
}

// Float gives the number; nil where absent.
func (v Value) Float() (*float64, error) {
	switch v.Kind() {
	case KindAbsent:
		return nil, nil
	case KindNumber:
	default:
		return nil, v.must(KindNumber)
	}
	f, err := strconv.ParseFloat(string(v.raw), 64)
	if err != nil {
		return nil, invalid(v.place, "must be a number of 64 bits, not %s", clip(v.raw))
	}
	return &f, nil
}

// Fields gives the members of an object, which has to be there.
func (v Value) Fields() (Fields, error) {
	if v.Kind() != KindObject {
		return Fields{}, v.must(KindObject)
	}
	f := Fields{place: v.place}
	split(v.raw, func(name, value []byte) {
		m := Member{Name: unquote(name)}
		m.Value = Value{raw: value, place: &place{up: v.place, name: m.Name}}
		f.members = append(f.members, m)
	})
	return f, nil
}

// Array gives the elements of an array; nil where absent.
func (v Value) Array() ([]Value, error) {
	switch v.Kind() {
	case KindAbsent:
		return nil, nil
	case KindArray:
	default:
		return nil, v.must(KindArray)
	}
	all := []Value{}
	split(v.raw, func(_, value []byte) {
		all = append(all, Value{raw: value, place: &place{up: v.place, index: len(all), array: true}})
	})
	return all, nil
}

// Compact gives the value without space between its parts: strings and numbers stay
// the bytes that came.
func (v Value) Compact() json.RawMessage {
	if v.raw == nil {
		return nil
	}
	var b bytes.Buffer
	if json.Compact(&b, v.raw) != nil {
		return v.raw // cannot be: it was checked
	}
	return b.Bytes()
}

// unquote reads a string that was checked.
func unquote(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var s string
	_ = json.Unmarshal(raw, &s) // cannot fail: it was checked
	return s
}

// clip shortens what a message shows of a body.
func clip(raw []byte) string {
	const most = 64
	if len(raw) <= most {
		return string(raw)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(raw[cut]) {
		cut--
	}
	return string(raw[:cut]) + "…"
}
