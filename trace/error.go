package trace

// Error says what is wrong with one item that a client sent. Code is stable and
// listed in docs/errors.md; Field names the offending field as a JSON path
// ("response_logprobs[3]"), or is empty when the whole item is meant.
type Error struct {
	Code    Code
	Field   string
	Message string
}

// Error gives "field: message".
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// Code is a stable, machine-readable name of a fault.
type Code string

// Codes of faults in one item.
const (
	CodeInvalidJSON        Code = "invalid_json"         // the item's JSON cannot be read
	CodeNotAnObject        Code = "not_an_object"        // the item is not a JSON object
	CodeJSONTooDeep        Code = "json_too_deep"        // nested deeper than the limit
	CodeDuplicateField     Code = "duplicate_field"      // a field is given twice
	CodeMissingField       Code = "missing_field"        // a required field is absent
	CodeInvalidField       Code = "invalid_field"        // a field has the wrong type or value
	CodeInvalidTokenID     Code = "invalid_token_id"     // a token id is not an int32 ≥ 0
	CodeLengthMismatch     Code = "length_mismatch"      // two fields that go together differ in length
	CodeTooManyTokens      Code = "too_many_tokens"      // prompt and response exceed the token limit
	CodeBodyTooLarge       Code = "body_too_large"       // request or response exceeds the body limit
	CodeUnknownPrefix      Code = "unknown_prefix"       // prompt_prefix cannot be resolved
	CodeUnknownTrajectory  Code = "unknown_trajectory"   // no merge made a row of that trajectory_id
	CodePromptHashMismatch Code = "prompt_hash_mismatch" // prompt_hash is not that of the prompt
	CodeConflict           Code = "conflict"             // the same id is stored with other content
)

// Errorf-like constructors keep call sites short.

// Invalid is an Error with CodeInvalidField.
func Invalid(field, message string) *Error {
	return &Error{Code: CodeInvalidField, Field: field, Message: message}
}

// Missing is an Error with CodeMissingField.
func Missing(field string) *Error {
	return &Error{Code: CodeMissingField, Field: field, Message: "is required"}
}
