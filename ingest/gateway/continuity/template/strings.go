package template

import (
	"errors"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// stringMethods are those that templates use and the library has, but for split and
// replace, whose defaults differ there from Python's.
func stringMethods() map[string]exec.Method[string] {
	out := map[string]exec.Method[string]{"split": split, "replace": replace}
	for _, name := range []string{
		"capitalize", "count", "endswith", "find", "format", "join", "lower", "lstrip", "partition", "removeprefix",
		"removesuffix", "rfind", "rstrip", "splitlines", "startswith", "strip", "title", "upper",
	} {
		if method, ok := builtins.Methods.Str.Get(name); ok {
			out[name] = method
		}
	}
	return out
}

func split(self string, _ *exec.Value, p *exec.VarArgs) (any, error) {
	most := -1
	switch {
	case len(p.KwArgs) > 0 || len(p.Args) > 2:
		return nil, errors.New("split takes a separator and a number")
	case len(p.Args) == 2:
		most = p.Args[1].Integer() + 1
	case len(p.Args) == 0 || p.Args[0].IsNil():
		return texts(strings.Fields(self)), nil
	}
	return texts(strings.SplitN(self, p.Args[0].String(), most)), nil
}

func replace(self string, _ *exec.Value, p *exec.VarArgs) (any, error) {
	most := -1
	switch {
	case len(p.KwArgs) > 0 || len(p.Args) < 2 || len(p.Args) > 3:
		return nil, errors.New("replace takes what is there, what comes instead, and a number")
	case len(p.Args) == 3:
		most = p.Args[2].Integer()
	}
	return strings.Replace(self, p.Args[0].String(), p.Args[1].String(), most), nil
}

func texts(from []string) list {
	out := make(list, len(from))
	for i, s := range from {
		out[i] = s
	}
	return out
}
