package sandbox

import (
	"slices"
	"strings"
)

// scope is the names of CTEs that a place knows, innermost first. nil: none.
type scope struct {
	outer *scope
	name  string
	// recurring: it is the CTE that the place is a step of.
	recurring bool
}

// knows reports whether a table of that name is a CTE here. Wrong by one place,
// and DuckDB would look for the name in the catalog, or for a file.
func (s *scope) knows(name string, recurring bool) bool {
	for ; s != nil; s = s.outer {
		if lower(s.name) == lower(name) && (s.recurring || !recurring) {
			return true
		}
	}
	return false
}

// shapeOf finds the shape of a node, and looks at what names something. It gives
// the scope that holds inside the node.
func (c *checker) shapeOf(k part, s *scope, n node, depth int) (shape, *scope, error) {
	if k == statement && n["node"] == nil {
		return nil, nil, c.refuse("there is no query where one belongs")
	}
	if sh, ok := fixed[k]; ok {
		return sh, s, nil
	}
	var sh shape
	var err error
	var known bool
	kind := text(n, "type")
	switch k {
	case modifier:
		sh, known = modifiers[kind]
	case query:
		if c.queries++; c.queries > maxQueries {
			return nil, nil, c.refuse("the statement has too many queries (more than %d)", maxQueries)
		}
		if sh, known = queries[kind]; known {
			s, err = c.ctes(s, n, depth)
		}
	case table:
		if sh, known = tables[kind]; known {
			err = c.table(kind, s, n, depth)
		}
	case expression:
		kind = text(n, "class")
		if sh, known = expressions[kind]; known {
			err = c.expression(kind, n)
		}
	case dataType:
		kind = text(n, "id")
		sh, known = shape{"id": plain, "type_info": dataTypeInfo}, dataTypes[kind]
	case dataTypeInfo:
		sh, known = dataTypeInfos[kind]
	}
	if !known {
		return nil, nil, c.refuse("%q may not be used in a statement", kind)
	}
	return sh, s, err
}

// ctes checks a query's CTEs, each of which knows those before it, and what of a
// recursive one knows the CTE itself.
func (c *checker) ctes(s *scope, n node, depth int) (*scope, error) {
	all, _ := n["cte_map"].(node)
	for name := range all {
		if name != "map" {
			return nil, c.refuse("a part of WITH is not known here: %s", name)
		}
	}
	list, _ := all["map"].([]any)
	for _, e := range list {
		entry, _ := e.(node)
		name := text(entry, "key")
		if err := c.cteName(name); err != nil {
			return nil, err
		}
		body, _ := entry["value"].(node)
		err := c.fields(shape{"aliases": plain, "materialized": plain, "query": statement, "key_targets": expression}, s, body, depth+1)
		if err != nil {
			return nil, err
		}
		s = &scope{outer: s, name: name}
	}
	if right, ok := n["right"]; ok && text(n, "type") == "RECURSIVE_CTE_NODE" {
		name := text(n, "cte_name")
		if err := c.cteName(name); err != nil {
			return nil, err
		}
		if err := c.part(query, &scope{outer: s, name: name, recurring: true}, right, depth+1); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// cteName refuses names that could be a file's or a pattern of files: should a
// scope ever be reckoned wrong, nothing is read by it.
func (c *checker) cteName(name string) error {
	if name == "" || strings.ContainsAny(name, `./\:*?[{`) {
		return c.refuse("WITH cannot make a table named %q: use letters, digits and _", name)
	}
	return nil
}

func (c *checker) table(kind string, s *scope, n node, depth int) error {
	if kind != "EMPTY" && kind != "JOIN" {
		if c.tables++; c.tables > maxTables {
			return c.refuse("the statement reads too many tables (more than %d)", maxTables)
		}
	}
	switch kind {
	case "BASE_TABLE":
		return c.tableName(s, text(n, "catalog_name"), text(n, "schema_name"), text(n, "table_name"))
	case "SHOW_REF":
		if show := text(n, "show_type"); show != "DESCRIBE" && show != "SUMMARY" || n["query"] == nil {
			return c.refuse("SHOW may not be used in a statement; DESCRIBE one of: %s", c.tableList())
		}
	case "JOIN":
		if t := text(n, "ref_type"); !joins[t] {
			return c.refuse("a %s join may not be used in a statement", t)
		}
	case "TABLE_FUNCTION":
		return c.tableFunction(s, n["function"], depth)
	}
	return nil
}

// joins are the ways to join that a person may ask for. Absent is the first.
var joins = set("", "REGULAR", "NATURAL", "CROSS", "POSITIONAL", "ASOF")

func (c *checker) tableName(s *scope, catalog, schema, name string) error {
	full := name
	for _, q := range []string{schema, catalog} {
		if q != "" {
			full = q + "." + full
		}
	}
	known := slices.ContainsFunc(c.face.Tables, func(t string) bool { return lower(t) == lower(name) })
	switch {
	case catalog != "":
		return c.refuse("table %q: databases cannot be named; there are: %s", full, c.tableList())
	case schema == "" && (known || s.knows(name, false)),
		known && slices.ContainsFunc(c.face.Schemas, func(f string) bool { return lower(f) == lower(schema) }),
		lower(schema) == "recurring" && s.knows(name, true):
		return nil
	case schema == "" && strings.ContainsAny(name, `./\:*?`):
		return c.refuse("table %q: files cannot be read; there are: %s", full, c.tableList())
	case schema == "":
		return &Error{Kind: Unknown, Message: "there is no table " + name + "; there are: " + c.tableList(), Position: c.position}
	}
	return c.refuse("table %q may not be read; there are: %s", full, c.tableList())
}

func (c *checker) tableList() string { return strings.Join(c.face.Tables, ", ") }

// tableFunction checks what stands in FROM with parentheses.
func (c *checker) tableFunction(s *scope, v any, depth int) error {
	f, _ := v.(node)
	if text(f, "class") != "FUNCTION" {
		return c.refuse("%q may not stand in FROM", label(f))
	}
	if err := c.functionName("table function", allowed.tables, refused.tables, f); err != nil {
		return err
	}
	return c.fields(expressions["FUNCTION"], s, f, depth+1)
}

func (c *checker) expression(class string, n node) error {
	if t := text(n, "type"); !expressionTypes[t] {
		return c.refuse("%q may not be used in a statement", t)
	}
	switch class {
	case "FUNCTION", "WINDOW":
		if err := c.functionName("function", allowed.functions, refused.functions, n); err != nil {
			return err
		}
		return c.arguments(n)
	case "COLUMN_REF":
		return c.columnName(n)
	case "TYPE":
		if name := text(n, "type_name"); !typeNames[lower(name)] {
			return &Error{Kind: Unknown, Message: "there is no type " + name, Position: c.position}
		}
	}
	return nil
}

// functionName looks a function up in the lists of those that may stand here. What
// is before its name does not matter: x.upper() looks as if x were a schema, and
// there are no functions in our own.
func (c *checker) functionName(what string, allowed, refused map[string]bool, n node) error {
	name := text(n, "function_name")
	switch key := lower(name); {
	case allowed[key]:
		return nil
	case refused[key]:
		return c.refuse("%s %s may not be called in a statement", what, name)
	}
	return &Error{Kind: Unknown, Message: "there is no " + what + " " + name, Position: c.position}
}
