// Package sandbox decides which SQL of users may run. It is an allow-list over
// the tree that DuckDB's parser makes of a statement: what it does not know, it
// refuses.
package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Limits of a statement, far beyond what a person writes. DuckDB bounds nesting
// too; but it takes a minute to plan 900 nested calls or to order 150 joins.
const (
	MaxStatementBytes = 1 << 20
	MaxTreeBytes      = 8 << 20
	maxDepth          = 1000
	maxTables         = 50
	maxQueries        = 1000
)

// TreeSetting has to hold for the whole database before TreeSQL: by default
// DuckDB makes a tree that old versions of it can read, and leaves out of it what
// they do not know. The sandbox would not see that; DuckDB would run it.
const TreeSetting = `SET storage_compatibility_version = 'latest'`

// TreeSQL makes the tree that Check takes of the statement $1: one row with one
// text. Defaults are left out, which makes it a third as large.
const TreeSQL = `SELECT json_serialize_sql($1::VARCHAR, skip_null := true, skip_empty := true, skip_default := true)::VARCHAR`

// Face is what a statement may read.
type Face struct {
	// Schemas are those that may be written before a table.
	Schemas []string
	// Tables are the names of tables and views, alike in every schema.
	Tables []string
}

// Kinds of an Error.
const (
	Syntax  Kind = iota // DuckDB cannot read the statement
	Unknown             // it names a table or function that does not exist
	Refused             // it asks for something that is not allowed
)

// Kind is a kind of Error.
type Kind int

// Error says why a statement may not run.
type Error struct {
	Kind    Kind
	Message string
	// Position is the byte of the statement that it is about; -1: not known.
	Position int
}

func (e *Error) Error() string { return e.Message }

// Check says whether the statement whose tree TreeSQL made may run: nil, or an
// *Error.
func Check(tree []byte, face Face) error {
	if len(tree) > MaxTreeBytes {
		return refuse(-1, "the statement is too complex: its tree has %d bytes, at most %d are allowed", len(tree), MaxTreeBytes)
	}
	var answer struct {
		Error      bool   `json:"error"`
		Type       string `json:"error_type"`
		Message    string `json:"error_message"`
		Position   string `json:"position"`
		Statements []node `json:"statements"`
	}
	d := json.NewDecoder(bytes.NewReader(tree))
	d.UseNumber()
	if err := d.Decode(&answer); err != nil {
		return refuse(-1, "the statement's tree cannot be read: %v", err)
	}
	if answer.Error {
		return unserialized(answer.Type, answer.Message, answer.Position)
	}
	switch n := len(answer.Statements); {
	case n == 0:
		return &Error{Kind: Syntax, Message: "there is no statement", Position: -1}
	case n > 1:
		return refuse(-1, "there are %d statements; one at a time", n)
	}
	c := &checker{face: face, position: -1}
	return c.part(statement, nil, answer.Statements[0], 0)
}

// unserialized words why DuckDB made no tree.
func unserialized(kind, message, position string) error {
	at, err := strconv.Atoi(position)
	if err != nil {
		at = -1
	}
	switch {
	case strings.HasPrefix(message, "memory exhausted"), strings.HasPrefix(message, "Max expression depth"):
		return refuse(at, "the statement is nested too deep")
	case kind == "parser" || kind == "syntax":
		return &Error{Kind: Syntax, Message: message, Position: at}
	case strings.HasPrefix(message, "Only SELECT statements"):
		return refuse(at, "only one SELECT may run (also WITH, FROM, VALUES, TABLE, DESCRIBE, SUMMARIZE, "+
			"UNPIVOT, and PIVOT if it lists its values: ON column IN ('a', 'b')): nothing that writes, sets, loads, "+
			"attaches, explains or reads files")
	}
	return &Error{Kind: Unknown, Message: message, Position: at}
}

func refuse(at int, format string, args ...any) error {
	return &Error{Kind: Refused, Message: fmt.Sprintf(format, args...), Position: at}
}

// node is an object of the tree.
type node = map[string]any

// checker walks one tree.
type checker struct {
	face Face
	// tables and queries are how many were met.
	tables, queries int
	// position is where the node begins that was entered last and knows it.
	position int
}

func (c *checker) refuse(format string, args ...any) error {
	return refuse(c.position, format, args...)
}

// part checks a value that stands where the given kind of part belongs: one, or
// a list of such, or nothing.
func (c *checker) part(k part, s *scope, v any, depth int) error {
	if v == nil {
		return nil
	}
	if depth > maxDepth {
		return c.refuse("the statement is nested too deep")
	}
	if list, ok := v.([]any); ok {
		for _, e := range list {
			if err := c.part(k, s, e, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	n, ok := v.(node)
	if !ok && (k == plain || k == payload) {
		return nil
	}
	if !ok || k == plain {
		if ok {
			return c.refuse("a part of the statement is not known here: %s", keys(n))
		}
		return c.refuse("a part of the statement is not known here: %.40v", v)
	}
	if at, ok := n["query_location"].(json.Number); ok {
		if i, err := strconv.Atoi(at.String()); err == nil {
			c.position = i
		}
	}
	sh, inner, err := c.shapeOf(k, s, n, depth)
	if err != nil {
		return err
	}
	return c.fields(sh, inner, n, depth)
}

// fields checks every field of a node by its shape. In order, so that the same
// statement always gets the same answer.
func (c *checker) fields(sh shape, s *scope, n node, depth int) error {
	for _, name := range slices.Sorted(maps.Keys(n)) {
		k, ok := sh[name]
		if !ok {
			return c.refuse("%s may not be used in a statement (%s)", strings.ToUpper(strings.ReplaceAll(name, "_", " ")), label(n))
		}
		if k == done {
			continue
		}
		if err := c.part(k, s, n[name], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// text reads a field that holds a word.
func text(n node, field string) string {
	s, _ := n[field].(string)
	return s
}

// label names a node for a message.
func label(n node) string {
	for _, f := range []string{"class", "type", "show_type"} {
		if s := text(n, f); s != "" {
			return s
		}
	}
	return keys(n)
}

func keys(n node) string { return strings.Join(slices.Sorted(maps.Keys(n)), ", ") }

// lower folds as DuckDB compares names: ASCII letters only. Folding more would
// let a name pass for another.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
