package delivery

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"icecore/httpbody"
	"icecore/problem"
	"icecore/trace"
)

// maxFields bounds the fields of a request: there are fewer of them.
const maxFields = 256

// setter reads the value of one field into a T.
type setter[T any] func(to *T, raw json.RawMessage) error

// read reads a JSON object with known fields; no body is an empty object, null
// stands for an absent field. what names the object in errors, at is put before
// the names of its fields. It says which fields were given.
func read[T any](to *T, body []byte, known map[string]setter[T], what, at string) (given map[string]bool, err error) {
	given = map[string]bool{}
	if len(body) == 0 {
		return given, nil
	}
	fields, err := httpbody.Object(body, maxFields)
	switch {
	case errors.Is(err, httpbody.ErrNotObject):
		return nil, problem.New(problem.NotAnObject, what+" is an object")
	case errors.Is(err, httpbody.ErrTooMany):
		return nil, problem.New(problem.InvalidField, what+" has no more than some fields: "+err.Error())
	case err != nil:
		return nil, err
	}
	for _, f := range fields {
		set := known[f.Name]
		if set == nil {
			return nil, invalid(at+fmt.Sprintf("%.64s", f.Name), "is no field of "+what)
		}
		if string(f.Raw) == "null" {
			continue
		}
		if err := set(to, f.Raw); err != nil {
			if p, ok := errors.AsType[*problem.Problem](err); ok {
				return nil, p // a field within the field
			}
			return nil, invalid(at+f.Name, err.Error())
		}
		given[f.Name] = true
	}
	return given, nil
}

func invalid(field, detail string) *problem.Problem {
	return problem.New(problem.InvalidField, field+": "+detail).At(field)
}

func whole(raw json.RawMessage, lo, hi int64) (int64, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("is not a whole number from %d to %d", lo, hi)
	}
	return n, nil
}

// float reads a number; bounds of it are part of what is said when it is none.
func float(raw json.RawMessage, lo, hi float64) (float64, error) {
	v, err := strconv.ParseFloat(string(raw), 64)
	if raw[0] == '"' || err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < lo || v > hi {
		if math.IsInf(lo, -1) {
			return 0, errors.New("is not a number")
		}
		return 0, fmt.Errorf("is not a number from %g to %g", lo, hi)
	}
	return v, nil
}

func text(raw json.RawMessage) (string, error) {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", errors.New("is not a text")
	}
	return *s, nil
}

// maxTexts bounds a list of texts: all of a request go into one statement of SQL.
const maxTexts = 5000

// texts reads a text or a list of texts, at least one; the result is in order,
// each once, so that two requests that mean the same look the same.
func texts(raw json.RawMessage) ([]string, error) {
	var list []*string
	if raw[0] == '"' {
		s, err := text(raw)
		if err != nil {
			return nil, err
		}
		return []string{s}, nil
	}
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 || slices.Contains(list, nil) {
		return nil, errors.New("is neither a text nor a list of texts, at least one")
	}
	if len(list) > maxTexts {
		return nil, fmt.Errorf("has more than %d texts", maxTexts)
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = *s
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func wholeField[T any](at func(*T) *int64, lo, hi int64) setter[T] {
	return func(to *T, raw json.RawMessage) (err error) {
		*at(to), err = whole(raw, lo, hi)
		return err
	}
}

func optWholeField[T any](at func(*T) **int64, lo, hi int64) setter[T] {
	return func(to *T, raw json.RawMessage) error {
		n, err := whole(raw, lo, hi)
		*at(to) = &n
		return err
	}
}

func floatField[T any](at func(*T) *float64, lo, hi float64) setter[T] {
	return func(to *T, raw json.RawMessage) (err error) {
		*at(to), err = float(raw, lo, hi)
		return err
	}
}

func optFloatField[T any](at func(*T) **float64, lo, hi float64) setter[T] {
	return func(to *T, raw json.RawMessage) error {
		v, err := float(raw, lo, hi)
		*at(to) = &v
		return err
	}
}

func flagField[T any](at func(*T) *bool) setter[T] {
	return func(to *T, raw json.RawMessage) error {
		if v := string(raw); v != "true" && v != "false" {
			return errors.New("is not true or false")
		}
		*at(to) = raw[0] == 't'
		return nil
	}
}

func choiceField[T any](at func(*T) *string, choices ...string) setter[T] {
	return func(to *T, raw json.RawMessage) error {
		s, err := text(raw)
		if err != nil || !slices.Contains(choices, s) {
			return errors.New("is not one of " + strings.Join(choices, ", "))
		}
		*at(to) = s
		return nil
	}
}

func idField[T any](at func(*T) *string) setter[T] {
	return func(to *T, raw json.RawMessage) error {
		s, err := text(raw)
		if err != nil {
			return err
		}
		if fault := trace.ValidateID("", s); fault != nil {
			return errors.New(fault.Message)
		}
		*at(to) = s
		return nil
	}
}

func textsField[T any](at func(*T) *[]string, choices ...string) setter[T] {
	return func(to *T, raw json.RawMessage) error {
		list, err := texts(raw)
		if err != nil {
			return err
		}
		for _, s := range list {
			if len(choices) > 0 && !slices.Contains(choices, s) {
				return fmt.Errorf("%.64q is not one of %s", s, strings.Join(choices, ", "))
			}
		}
		*at(to) = list
		return nil
	}
}
