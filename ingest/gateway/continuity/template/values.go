package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// decode gives JSON as the template library takes it: objects as Dict, which keeps the
// order of keys (Go's maps do not, and templates print schemas).
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := value(d)
	if err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read JSON: something follows the value")
	}
	return v, nil
}

func value(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err //nolint:wrapcheck // decode says what it does
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			return array(d)
		}
		return object(d)
	case json.Number:
		return number(t)
	}
	return token, nil
}

func array(d *json.Decoder) (any, error) {
	out := list{}
	for d.More() {
		v, err := value(d)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := d.Token()
	return out, err //nolint:wrapcheck // decode says what it does
}

func object(d *json.Decoder) (any, error) {
	dict := exec.NewDict()
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err //nolint:wrapcheck // decode says what it does
		}
		v, err := value(d)
		if err != nil {
			return nil, err
		}
		text, _ := name.(string)
		put(dict, text, v) // of equal keys the last counts, as in Python
	}
	_, err := d.Token()
	return dict, err //nolint:wrapcheck // decode says what it does
}

func number(n json.Number) (any, error) {
	if strings.ContainsAny(n.String(), ".eE") {
		f, err := n.Float64()
		if err != nil {
			return nil, fmt.Errorf("the number %s is too large", n)
		}
		return f, nil
	}
	i, err := n.Int64()
	if err != nil {
		return nil, fmt.Errorf("the number %s is too large", n)
	}
	return int(i), nil
}

func get(d *exec.Dict, name string) any {
	if d == nil {
		return nil
	}
	for _, p := range d.Pairs {
		if p.Key.String() == name {
			return p.Value.Interface()
		}
	}
	return nil
}

func put(d *exec.Dict, name string, v any) {
	for _, p := range d.Pairs {
		if p.Key.String() == name {
			p.Value = exec.AsValue(v)
			return
		}
	}
	d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(name), Value: exec.AsValue(v)})
}

// list is an array. The library's own do not reach their first element from the end:
// [-1] of one element is nothing there.
type list []any

// GetItem is how the library reads an element.
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if !ok {
		return exec.AsValue(nil), false
	}
	if i < 0 {
		i += len(l)
	}
	if i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.AsValue(l[i]), true
}
