package problem

import "net/http"

//go:generate go run ./errorsmd ../docs/errors.md

// Code is the stable name of a fault. Every code that the server answers with is
// an entry of Catalogue.
type Code string

// Section says what a code is about, and where docs/errors.md lists it.
type Section int

// The sections, in the order in which they are shown.
const (
	// Items: faults of one item.
	Items Section = iota
	// Requests: faults of a whole request.
	Requests
	// Statements: faults of a statement of SQL.
	Statements
	// Busy: the same request may pass later.
	Busy
	// Own: faults of the server itself.
	Own
)

// Entry says everything about one code.
type Entry struct {
	Code    Code
	Section Section
	// Status is the HTTP status of an answer with this code. For an item's code
	// it counts where the request is that one item.
	Status int
	// Item: the code can stand in items[].code of an answer.
	Item bool
	// RetryAfter is after how many seconds the same request may be sent again;
	// 0: it would fail again.
	RetryAfter int
	// Meaning says what happened, Do what to do about it; either is Markdown,
	// and Do may be empty.
	Meaning string
	Do      string
}

// Retry says whether the same request may be sent again.
func (e *Entry) Retry() bool { return e.RetryAfter > 0 }

// Title is the status in words.
func (e *Entry) Title() string { return http.StatusText(e.Status) }

var byCode = func() map[Code]*Entry {
	m := make(map[Code]*Entry, len(Catalogue))
	for i := range Catalogue {
		m[Catalogue[i].Code] = &Catalogue[i]
	}
	return m
}()

// Find gives the entry of a code, or nil.
func Find(code Code) *Entry { return byCode[code] }
