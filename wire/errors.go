package wire

import (
	"fmt"
	"net/http"
	"strings"

	"icecore/trace"
)

// Codes of faults in a whole request (trace.CodeInvalidJSON is another).
const (
	CodeInvalidArrow        trace.Code = "invalid_arrow"        // the Arrow stream cannot be read
	CodeCorruptEncoding     trace.Code = "corrupt_encoding"     // the content coding is damaged or cut
	CodeUnsupportedEncoding trace.Code = "unsupported_encoding" // the content coding is not known
	CodeRequestTooLarge     trace.Code = "request_too_large"    // the inflated request exceeds the limit
	CodeTooManyItems        trace.Code = "too_many_items"       // the request holds too many items
)

// EnvelopeError says why a whole request cannot be read: none of its items is
// looked at.
type EnvelopeError struct {
	Code trace.Code
	// Offset is the byte of the inflated body at which reading stopped, or -1
	// when no place can be named.
	Offset  int64
	Message string
	// Err is the cause, when another library found it.
	Err error
}

// Error gives the message and the byte offset.
func (e *EnvelopeError) Error() string {
	if e.Offset < 0 {
		return e.Message
	}
	return fmt.Sprintf("byte %d: %s", e.Offset, e.Message)
}

// Unwrap gives the cause.
func (e *EnvelopeError) Unwrap() error { return e.Err }

// Status is the HTTP status that the code stands for: 413, 415 or 400.
func (e *EnvelopeError) Status() int {
	switch e.Code {
	case CodeRequestTooLarge, CodeTooManyItems:
		return http.StatusRequestEntityTooLarge
	case CodeUnsupportedEncoding:
		return http.StatusUnsupportedMediaType
	}
	return http.StatusBadRequest
}

func tooManyItems(limit int, offset int64) error {
	return &EnvelopeError{Code: CodeTooManyItems, Offset: offset,
		Message: fmt.Sprintf("the request holds more than %d items", limit)}
}

// syntaxError is where JSON ends to be JSON.
type syntaxError struct {
	offset  int
	message string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.offset, e.message) }

func (e *syntaxError) envelope() *EnvelopeError {
	return &EnvelopeError{Code: trace.CodeInvalidJSON, Offset: int64(e.offset), Message: e.message}
}

// shownBytes bounds what an error repeats of what a client sent.
const shownBytes = 64

// shown cuts raw to what an error message may repeat of it.
func shown[B []byte | string](raw B) string {
	if len(raw) > shownBytes {
		return strings.ToValidUTF8(string(raw[:shownBytes]), "\uFFFD") + "…"
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
}
