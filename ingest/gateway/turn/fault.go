package turn

import (
	"fmt"
	"time"
)

// Fault is a call that cannot be answered, or not to its end. Providers write it in
// their own shape; Status is the HTTP status where the answer has not begun.
type Fault struct {
	Status int
	// Code is a stable word in our own terms: invalid_request, unknown_model,
	// unsupported, unauthorized, forbidden, too_large, overloaded, rate_limited,
	// engine_error, engine_unreachable, engine_broke, timeout, aborted, storage, ….
	Code string
	// Message says what to do, names the field, and holds no secret.
	Message string
	// Field names the place in the harness's body; may be empty.
	Field string
	// RetryAfter, when not zero, is told in the header of that name.
	RetryAfter time.Duration
	// Cause is logged and never sent.
	Cause error
}

// Error gives code and message.
func (f *Fault) Error() string {
	if f.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", f.Code, f.Message, f.Cause)
	}
	return f.Code + ": " + f.Message
}

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Cause }

// Codes of faults that more than one package makes.
const (
	CodeInvalidRequest    = "invalid_request"
	CodeUnsupported       = "unsupported"
	CodeUnknownModel      = "unknown_model"
	CodeUnauthorized      = "unauthorized"
	CodeForbidden         = "forbidden"
	CodeNotFound          = "not_found"
	CodeTooLarge          = "too_large"
	CodeRateLimited       = "rate_limited"
	CodeOverloaded        = "overloaded"
	CodeEngineError       = "engine_error"
	CodeEngineUnreachable = "engine_unreachable"
	CodeEngineBroke       = "engine_broke"
	CodeAborted           = "aborted"
	CodeTimeout           = "timeout"
	CodeStorage           = "storage_failed"
)

// Invalid is a fault of the harness's body, with status 400.
func Invalid(field, message string) *Fault {
	return &Fault{Status: 400, Code: CodeInvalidRequest, Field: field, Message: message}
}

// Unsupported is a request for something that the gateway does not do, status 400.
func Unsupported(field, message string) *Fault {
	return &Fault{Status: 400, Code: CodeUnsupported, Field: field, Message: message}
}
