package sqlapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"icecore/problem"
)

// maxParams bounds the parameters of a statement: each takes many times what its
// text does.
const maxParams = 10_000

var errTooMany = fmt.Errorf("has more than %d values", maxParams)

// readParams reads an array, for $1, $2 or ?, or an object, for $name.
func (s *statement) readParams(raw json.RawMessage) error {
	switch raw[0] {
	case 'n': // null: as if absent
		return nil
	case '[':
		return s.readPlaces(raw)
	case '{':
		fields, err := readObject("params", raw)
		if err != nil {
			return err
		}
		s.named = map[string]any{}
		for _, f := range fields {
			name := fmt.Sprintf("params.%.64s", f.Name)
			if f.Name == "" {
				return badParam(name, errors.New("has no name"))
			}
			if s.named[f.Name], err = param(f.Raw); err != nil {
				return badParam(name, err)
			}
		}
		return nil
	}
	return badParam("params", errors.New("is neither an array, for $1 and ?, nor an object, for $name"))
}

// readPlaces reads an array.
func (s *statement) readPlaces(raw json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return problem.Internal(fmt.Errorf("read params: %w", err))
	}
	for d.More() {
		if len(s.params) == maxParams {
			return badParam("params", errTooMany)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return problem.Internal(fmt.Errorf("read params: %w", err))
		}
		p, err := param(v)
		if err != nil {
			return badParam("params["+strconv.Itoa(len(s.params))+"]", err)
		}
		s.params = append(s.params, p)
	}
	return nil
}

func badParam(name string, err error) *problem.Problem {
	return problem.New(problem.InvalidField, name+": "+err.Error()).At(name)
}

// param is null, a boolean, an int64, a float64 or a string.
func param(raw json.RawMessage) (any, error) {
	switch raw[0] {
	case 'n':
		return nil, nil
	case 't', 'f':
		return raw[0] == 't', nil
	case '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, fmt.Errorf("is no string: %w", err)
		}
		return text, nil
	case '[', '{':
		return nil, errors.New("is an array or object; send its JSON as a string, and cast it in the statement")
	}
	text := string(raw)
	if !strings.ContainsAny(text, ".eE") {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, errors.New("is a whole number beyond 64 bits; send it as a string, and cast it in the statement")
		}
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, errors.New("is a number beyond float64")
	}
	return f, nil
}
