package sandbox

import (
	_ "embed"
	"strings"
)

//go:embed allowed.txt
var allowedText string

//go:embed refused.txt
var refusedText string

// Only allowed counts; refused makes a better message, and a test sure that each
// function was thought about.
var allowed, refused = read(allowedText), read(refusedText)

// list is names of functions, in lower case: those of expressions, and those
// that stand in FROM.
type list struct{ functions, tables map[string]bool }

func read(text string) list {
	l := list{functions: map[string]bool{}, tables: map[string]bool{}}
	for line := range strings.Lines(text) {
		line = lower(strings.TrimSpace(line))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, ok := strings.CutPrefix(line, "table "); ok {
			l.tables[name] = true
		} else {
			l.functions[line] = true
		}
	}
	return l
}
