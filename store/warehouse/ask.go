package warehouse

import (
	"fmt"
)

// Ask is one statement of a user's, and what it may cost.
type Ask struct {
	// SQL is exactly one statement that reads.
	SQL string `json:"sql"`
	// Params are the values of $1, $2, … or of ?, in order: nil, bool, int64,
	// float64 or string.
	Params []any `json:"params,omitempty"`
	// Named are the values of $name. Not together with Params.
	Named map[string]any `json:"named,omitempty"`
	// MaxRows and MaxBytes cut the answer: after so many rows, or after the
	// piece of a few MiB at most, or the one row, with which its columns pass so
	// many bytes. 0: no limit.
	MaxRows  int64 `json:"max_rows,omitempty"`
	MaxBytes int64 `json:"max_bytes,omitempty"`
}

// Reply tells how an answer ended.
type Reply struct {
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
	// Truncated: there were more rows than a limit let through.
	Truncated bool `json:"truncated"`
}

// Codes of a Fault.
const (
	FaultSyntax      = "sql_syntax"        // the statement cannot be read
	FaultRefused     = "sql_refused"       // it asks for something that is not allowed
	FaultBinding     = "sql_binding"       // a table, column, function or parameter does not exist or fit
	FaultFailed      = "sql_failed"        // it ran into an error, such as a value out of range
	FaultMemory      = "sql_out_of_memory" // it needed more memory than it may have
	FaultCrashed     = "sql_crashed"       // the warehouse died of it
	FaultInterrupted = "sql_interrupted"   // the warehouse was restarted because of another statement
)

// Fault says why a statement of a user's gave no answer.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Position is the byte in the statement at which it was noticed; -1: none.
	Position int `json:"position"`
}

func (f *Fault) Error() string { return fmt.Sprintf("%s: %s", f.Code, f.Message) }
