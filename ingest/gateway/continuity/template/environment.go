package template

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"
	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// settings are those of transformers.
func settings() *config.Config {
	c := config.New()
	c.TrimBlocks = true
	c.LeftStripBlocks = true
	return c
}

// environment is the library's, with what transformers adds and what keeps the order
// of keys. It reads no files: templates include nothing.
func environment() *exec.Environment {
	filters := exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters).
		Update(exec.NewFilterSet(map[string]exec.FilterFunction{"tojson": toJSON, "items": items, "string": toText}))
	globals := exec.EmptyContext().Update(builtins.GlobalFunctions).Update(builtins.GlobalVariables)
	globals.Set("raise_exception", func(_ *exec.Evaluator, p *exec.VarArgs) *exec.Value {
		return exec.AsValue(fmt.Errorf("the template refuses: %s", p.First().String()))
	})
	methods := builtins.Methods
	methods.Str = exec.NewMethodSet(stringMethods())
	methods.Dict = exec.NewMethodSet(map[string]exec.Method[map[string]any]{
		"items":  dictMethod(func(p *exec.Pair) any { return list{p.Key.Interface(), p.Value.Interface()} }),
		"keys":   dictMethod(func(p *exec.Pair) any { return p.Key.Interface() }),
		"values": dictMethod(func(p *exec.Pair) any { return p.Value.Interface() }),
		"get": func(_ map[string]any, self *exec.Value, p *exec.VarArgs) (any, error) {
			pairs, err := pairsOf(self)
			if err != nil || len(p.Args) < 1 || len(p.Args) > 2 {
				return nil, errors.Join(err, errors.New("get takes a key and a default"))
			}
			for _, pair := range pairs {
				if pair.Key.String() == p.Args[0].String() {
					return pair.Value.Interface(), nil
				}
			}
			if len(p.Args) == 2 {
				return p.Args[1].Interface(), nil
			}
			return nil, nil //nolint:nilnil // Python's None
		},
	})
	return &exec.Environment{
		Context: globals, Filters: filters, Tests: builtins.Tests,
		ControlStructures: builtins.ControlStructures, Methods: methods,
	}
}

func pairsOf(v *exec.Value) ([]*exec.Pair, error) {
	switch d := v.Interface().(type) {
	case *exec.Dict:
		return d.Pairs, nil
	case exec.Dict:
		return d.Pairs, nil
	}
	return nil, fmt.Errorf("a %T has no items", v.Interface())
}

func dictMethod(of func(*exec.Pair) any) exec.Method[map[string]any] {
	return func(_ map[string]any, self *exec.Value, p *exec.VarArgs) (any, error) {
		if len(p.Args)+len(p.KwArgs) > 0 {
			return nil, errors.New("this method takes no arguments")
		}
		pairs, err := pairsOf(self)
		if err != nil {
			return nil, err
		}
		out := make(list, len(pairs))
		for i, pair := range pairs {
			out[i] = of(pair)
		}
		return out, nil
	}
}

func items(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	pairs, err := pairsOf(in)
	if err != nil {
		return exec.AsValue(err)
	}
	out := make(list, len(pairs))
	for i, p := range pairs {
		out[i] = list{p.Key.Interface(), p.Value.Interface()}
	}
	return exec.AsValue(out)
}

func toJSON(_ *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	d := dumper{}
	for name, v := range p.KwArgs {
		switch {
		case name == "ensure_ascii" && !v.IsTrue():
		case name == "indent" && v.IsInteger():
			d.indent = strings.Repeat(" ", v.Integer())
		case name == "indent" && v.IsNil():
		default:
			return exec.AsValue(fmt.Errorf("tojson does not know %s=%s", name, v.String()))
		}
	}
	if len(p.Args) > 0 {
		return exec.AsValue(errors.New("tojson takes its options by name"))
	}
	if err := d.value(in.Interface(), 0); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(string(d.b))
}

// toText prints as Python does. What it would print otherwise than the library is
// better not rendered than rendered wrongly.
func toText(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	switch v := in.Interface().(type) {
	case nil:
		return exec.AsValue("None")
	case string:
		return in
	case bool:
		if v {
			return exec.AsValue("True")
		}
		return exec.AsValue("False")
	case int:
		return exec.AsValue(fmt.Sprint(v))
	case float64:
		return exec.AsValue(pythonFloat(v))
	}
	return exec.AsValue(fmt.Errorf("a %T cannot be printed as Python does", in.Interface()))
}

// clock is strftime_now, in the local time zone as in engines.
func clock(now time.Time) func(*exec.Evaluator, *exec.VarArgs) *exec.Value {
	return func(_ *exec.Evaluator, p *exec.VarArgs) *exec.Value {
		return exec.AsValue(strftime.Format(p.First().String(), now))
	}
}
