package sandbox

import (
	"encoding/json"
	"strconv"
)

// maxOffset bounds how far lead and lag may look: as far as whole numbers are
// exact everywhere.
const maxOffset = 1 << 53

// maxTypeText bounds the bytes of a text that is a type: it can nest as deep as it
// is long, and DuckDB walks it on its stack.
const maxTypeText = 1000

// typed are the functions whose last argument is the text of a type.
var typed = set("from_json", "from_json_strict", "json_transform", "json_transform_strict")

// arguments looks at those functions that only some arguments make crash the
// process, or run without end and without listening.
func (c *checker) arguments(n node) error {
	name := lower(text(n, "function_name"))
	switch {
	case name == "lead", name == "lag":
		// Whatever DuckDB can reckon beforehand counts as a constant for it: a sum, a
		// parameter, a column that is the same everywhere. So only a number passes,
		// which can be seen here.
		if offset := n["offset_expr"]; offset != nil && !isOffset(offset) {
			return c.refuse("the offset of %s is a whole number from -2^53 to 2^53 written as such", name)
		}
	case typed[name]:
		// One argument is for x.json_transform('…'), where x is before the name.
		args, _ := n["children"].([]any)
		if len(args) > 0 && !isTypeText(args[len(args)-1]) {
			return c.refuse("the type that %s takes is a text of less than %d bytes written as such", name, maxTypeText)
		}
	}
	return nil
}

func isOffset(v any) bool {
	number, _ := constantOf(v).(json.Number) // a HUGEINT is no number, but its halves
	n, err := strconv.ParseInt(number.String(), 10, 64)
	return err == nil && -maxOffset <= n && n <= maxOffset
}

func isTypeText(v any) bool {
	s, ok := constantOf(v).(string)
	return ok && len(s) < maxTypeText
}

// constantOf gives the value of an expression that is a constant, or nil.
func constantOf(v any) any {
	n, _ := v.(node)
	if text(n, "class") != "CONSTANT" {
		return nil
	}
	value, _ := n["value"].(node)
	return value["value"]
}

// sessionWords are the functions that may be called without parentheses, as far
// as they are refused. They look like columns: where there is none of that name,
// DuckDB calls the function.
var sessionWords = set("current_catalog", "current_role", "current_schema", "current_user", "session_user", "user")

// columnName refuses what could be a function, and is no column of ours. One that
// the statement makes itself can still be had with its table before it.
func (c *checker) columnName(n node) error {
	parts, _ := n["column_names"].([]any)
	if len(parts) != 1 {
		return nil
	}
	if name, _ := parts[0].(string); sessionWords[lower(name)] {
		return c.refuse("function %s may not be called in a statement; for a column of that name write t.%s", name, name)
	}
	return nil
}
