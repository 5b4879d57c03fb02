package warehouse

import (
	"fmt"
	"strconv"
)

// value is one parameter of a statement. JSON alone would not tell 1 from 1.0,
// and has no NaN.
type value struct {
	Int   *int64  `json:"int,omitempty"`
	Float *string `json:"float,omitempty"`
	Text  *string `json:"text,omitempty"`
	Flag  *bool   `json:"flag,omitempty"`
}

func valueOf(v any) (value, error) {
	switch v := v.(type) {
	case nil:
		return value{}, nil
	case int:
		n := int64(v)
		return value{Int: &n}, nil
	case int64:
		return value{Int: &v}, nil
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		return value{Float: &s}, nil
	case string:
		return value{Text: &v}, nil
	case bool:
		return value{Flag: &v}, nil
	}
	return value{}, fmt.Errorf("query warehouse: a parameter is of type %T; it may be nil, bool, int64, float64 or string", v)
}

func (v value) any() (any, error) {
	switch {
	case v.Int != nil:
		return *v.Int, nil
	case v.Float != nil:
		f, err := strconv.ParseFloat(*v.Float, 64)
		if err != nil {
			return nil, fmt.Errorf("query warehouse: read a parameter: %w", err)
		}
		return f, nil
	case v.Text != nil:
		return *v.Text, nil
	case v.Flag != nil:
		return *v.Flag, nil
	}
	return nil, nil
}

func valuesOf(list []any) ([]value, error) {
	out := make([]value, len(list))
	for i, v := range list {
		var err error
		if out[i], err = valueOf(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func anyOf(list []value) ([]any, error) {
	out := make([]any, len(list))
	for i, v := range list {
		var err error
		if out[i], err = v.any(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
