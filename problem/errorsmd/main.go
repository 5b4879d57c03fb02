// Command errorsmd writes docs/errors.md from the catalogue of errors.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"strings"

	"icecore/problem"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: errorsmd FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(page()), 0o644); err != nil { //nolint:gosec // a page that everybody may read
		fmt.Fprintln(os.Stderr, "write errors page:", err)
		os.Exit(1)
	}
}

//go:embed head.md
var head string

// sections are the headings of the page and what stands below each.
var sections = map[problem.Section]string{
	problem.Items: `## Items

Faults of one item. They stand in ` + "`items[].code`" + ` of an answer, or, where a request is one item (` +
		"`PUT /v1/rollouts/…`, `…/finish`" + `), in a 422 or 409 problem. A refused item changed nothing; the others of the request are not touched by it.`,
	problem.Requests: `## Requests

Faults of a whole request: none of its items was looked at, nothing was stored.`,
	problem.Statements: `## SQL

Faults of a statement. They are all 422: the request was read, and its statement is at fault, so the same one will fail again.`,
	problem.Busy: `## Busy

Send again after ` + "`Retry-After`" + ` seconds.`,
	problem.Own: `## The server's own fault`,
}

// page is docs/errors.md.
func page() string {
	var out strings.Builder
	out.WriteString(head)
	last := problem.Section(-1)
	for i := range problem.Catalogue {
		e := &problem.Catalogue[i]
		if e.Section != last {
			fmt.Fprintf(&out, "\n%s\n", sections[e.Section])
			last = e.Section
		}
		fmt.Fprintf(&out, "\n### %s\n\n%s\n", e.Code, entry(e))
	}
	return out.String()
}

// entry is what stands below a code. Items have their status from the section.
func entry(e *problem.Entry) string {
	parts := []string{e.Meaning}
	if e.Section != problem.Items && e.Section != problem.Statements {
		parts = []string{fmt.Sprintf("%d.", e.Status), e.Meaning}
	}
	if e.Do != "" {
		parts = append(parts, e.Do)
	}
	return strings.Join(parts, " ")
}
