package warehouse

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/duckdb/duckdb-go/v2/mapping"
)

// fatalError is a fault of the database, not of the statement: DuckDB has given
// the database up.
type fatalError struct{ message string }

func (e *fatalError) Error() string { return e.message }

// failed makes an error of what DuckDB says of a statement. kind is
// mapping.ErrorTypeInvalid where DuckDB does not say it apart.
func failed(ctx context.Context, text, message string, kind mapping.ErrorType) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return faultOf(text, message, kind)
}

func faultOf(text, message string, kind mapping.ErrorType) error {
	head, rest, _ := strings.Cut(message, ": ")
	if known, ok := errorTypes[head]; ok {
		// The name of the type comes first, before anything that a user can write.
		message = rest
		if kind == mapping.ErrorTypeInvalid {
			kind = known
		}
	}
	if kind == mapping.ErrorTypeFatal {
		return &fatalError{head + ": " + message}
	}
	code, ok := faultCodes[kind]
	if !ok {
		code = FaultFailed
	}
	message, position := locate(text, message)
	return &Fault{Code: code, Message: tidy(message), Position: position}
}

var faultCodes = map[mapping.ErrorType]string{
	mapping.ErrorTypeParser: FaultSyntax, mapping.ErrorTypeSyntax: FaultSyntax,
	mapping.ErrorTypeBinder: FaultBinding, mapping.ErrorTypeCatalog: FaultBinding,
	mapping.ErrorTypeNotImplemented: FaultBinding, mapping.ErrorTypeParameterNotResolved: FaultBinding,
	mapping.ErrorTypeParameterNotAllowed: FaultBinding, mapping.ErrorTypeMismatchType: FaultBinding,
	mapping.ErrorTypeOutOfMemory: FaultMemory,
	mapping.ErrorTypeInterrupt:   FaultInterrupted,
	mapping.ErrorTypePermission:  FaultRefused,
}

// errorTypes are the names that DuckDB begins a message with.
var errorTypes = map[string]mapping.ErrorType{
	"Parser Error": mapping.ErrorTypeParser, "Syntax Error": mapping.ErrorTypeSyntax,
	"Binder Error": mapping.ErrorTypeBinder, "Catalog Error": mapping.ErrorTypeCatalog,
	"Not implemented Error":        mapping.ErrorTypeNotImplemented,
	"Parameter Not Resolved Error": mapping.ErrorTypeParameterNotResolved,
	"Parameter Not Allowed Error":  mapping.ErrorTypeParameterNotAllowed,
	"Mismatch Type Error":          mapping.ErrorTypeMismatchType,
	"Out of Memory Error":          mapping.ErrorTypeOutOfMemory,
	"INTERRUPT Error":              mapping.ErrorTypeInterrupt,
	"Permission Error":             mapping.ErrorTypePermission,
	"FATAL Error":                  mapping.ErrorTypeFatal,
	"INTERNAL Error":               mapping.ErrorTypeInternal,
	"Invalid Input Error":          mapping.ErrorTypeInvalidInput,
	"Conversion Error":             mapping.ErrorTypeConversion,
	"Out of Range Error":           mapping.ErrorTypeOutOfRange,
}

// pointer is how DuckDB shows a place: the line, and a caret below it.
var pointer = regexp.MustCompile(`(?s)\n\nLINE (\d+): ([^\n]*)\n( *)\^.*$`)

// locate cuts the place that DuckDB shows off the message and gives it as a byte
// of the text; -1 if it cannot be told for sure.
func locate(text, message string) (rest string, position int) {
	m := pointer.FindStringSubmatchIndex(message)
	if m == nil {
		return message, -1
	}
	number, shown := message[m[2]:m[3]], message[m[4]:m[5]]
	column := (m[7] - m[6]) - len("LINE : ") - len(number)
	rest = message[:m[0]]
	start, line := lineOf(text, number)
	// A long line is shown in part, and what is wide may shift the caret.
	if tail, cut := strings.CutPrefix(shown, "..."); cut {
		shown, column = tail, column-len("...")
	}
	shown = strings.TrimSuffix(shown, "...")
	at := strings.Index(line, shown)
	if at < 0 || strings.Count(line, shown) > 1 || column < 0 || column > len(shown) || !ascii(shown[:column]) {
		return rest, -1
	}
	return rest, start + at + column
}

// lineOf finds a line of the text by its number, and where it begins.
func lineOf(text, number string) (start int, line string) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0, ""
	}
	for ; n > 1; n-- {
		i := strings.IndexByte(text[start:], '\n')
		if i < 0 {
			return 0, ""
		}
		start += i + 1
	}
	line, _, _ = strings.Cut(text[start:], "\n")
	return start, line
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// tidy leaves out DuckDB's advice: to change settings, which users cannot, and
// to try tables, which are not the users'.
func tidy(message string) string {
	message, _, _ = strings.Cut(message, "\n\nPossible solutions")
	message, _, _ = strings.Cut(message, "\nThis limit was set by the 'max_temp_directory_size' setting")
	var lines []string
	for line := range strings.Lines(message) {
		if !strings.HasPrefix(line, "Did you mean") {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, ""))
}
