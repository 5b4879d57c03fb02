package warehouse

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/duckdb/duckdb-go/v2/mapping"
)

// bind gives the statement's parameters their values. Every parameter must have
// one, and every value must be used: either mistake would otherwise show as a
// strange result. The error is a *Fault.
func bind(stmt mapping.PreparedStatement, a Ask) error {
	if len(a.Params) > 0 && len(a.Named) > 0 {
		return misbound("parameters are given by place and by name; give them one way")
	}
	given := make(map[string]any, len(a.Params)+len(a.Named))
	for i, v := range a.Params {
		given[strconv.Itoa(i+1)] = v
	}
	for name, v := range a.Named {
		key := strings.ToLower(strings.TrimPrefix(name, "$"))
		if _, twice := given[key]; twice {
			return misbound("parameter $%s is given twice", key)
		}
		given[key] = v
	}
	var missing []string
	for i := mapping.IdxT(1); i <= mapping.NParams(stmt); i++ {
		name := mapping.ParameterName(stmt, i)
		if name == "" {
			return misbound("the parameters have to be $1, $2, … without a gap")
		}
		v, ok := given[strings.ToLower(name)]
		if !ok {
			missing = append(missing, name)
			continue
		}
		delete(given, strings.ToLower(name))
		if err := bindOne(stmt, i, name, v); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return misbound("no value is given for %s", someNames(missing))
	}
	if len(given) > 0 {
		return misbound("the statement does not use %s", someNames(slices.Collect(maps.Keys(given))))
	}
	return nil
}

// someNames lists the first of many parameters, by number, or by length and name.
func someNames(names []string) string {
	slices.SortFunc(names, func(a, b string) int { // $2 before $10
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	const most = 5
	var shown []string
	for _, name := range names[:min(most, len(names))] {
		shown = append(shown, fmt.Sprintf("$%.64s", name))
	}
	out := strings.Join(shown, ", ")
	if more := len(names) - most; more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

func bindOne(stmt mapping.PreparedStatement, i mapping.IdxT, name string, v any) error {
	var state mapping.State
	switch v := v.(type) {
	case nil:
		state = mapping.BindNull(stmt, i)
	case bool:
		state = mapping.BindBoolean(stmt, i, v)
	case int64:
		state = mapping.BindInt64(stmt, i, v)
	case float64:
		state = mapping.BindDouble(stmt, i, v)
	case string:
		if !utf8.ValidString(v) {
			return misbound("the value of $%s is not UTF-8", name)
		}
		state = mapping.BindVarchar(stmt, i, v)
	default:
		return misbound("the value of $%s is no number, text, boolean or null", name)
	}
	if state == mapping.StateError {
		return misbound("the value of $%s cannot be bound: %s", name, mapping.PrepareError(stmt))
	}
	return nil
}

func misbound(format string, args ...any) error {
	return &Fault{Code: FaultBinding, Message: fmt.Sprintf(format, args...), Position: -1}
}
