package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"
)

// Statuses with which the process ends when all is not well. They are documented
// in docs/operations.md.
const (
	exitFailed = 1
	// exitDiffers: icecore trace found a difference.
	exitDiffers = 2
	// exitCut: icecore query wrote a part of its answer.
	exitCut = 3
	// exitUsage: the command line is not understood. The number is EX_USAGE of
	// sysexits.h, far from those that a command gives a meaning.
	exitUsage = 64
)

// errDiffers says that a boundary check found a difference.
var errDiffers = errors.New("trace: something differs; see above")

// cutError says that an answer is not all that there is, where nobody might look.
type cutError struct {
	// file is where the answer went; "": standard output.
	file string
	rows int64
}

func (e *cutError) Error() string {
	where := e.file
	if where == "" {
		where = "standard output"
	}
	return where + " is not the whole answer: " + rowsLine(e.rows, true, moreRows)
}

// exitStatus is the status with which the process ends after err.
func exitStatus(err error) int {
	var cut *cutError
	switch {
	case errors.Is(err, errDiffers):
		return exitDiffers
	case errors.As(err, &cut):
		return exitCut
	}
	return exitFailed
}

// usageFault tells what is wrong with a command line, in one line, and where its
// help is.
func usageFault(w io.Writer, err error) {
	command := "icecore"
	var p *kong.ParseError
	if errors.As(err, &p) && p.Context.Selected() != nil {
		command = p.Context.Selected().FullPath()
	}
	fmt.Fprintf(w, "icecore: %v; see %s --help\n", err, command) //nolint:errcheck // there is nowhere else to tell it
}
