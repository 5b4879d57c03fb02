// Package generate is Google's generateContent API as a provider, with
// streamGenerateContent and countTokens. Names are read in camelCase and snake_case,
// and a single object where a list is meant, as Google's servers do.
//
// What a harness sends becomes chat messages so:
//   - the system instruction is one leading system message, its texts joined by an
//     empty line
//   - a model's texts are one text, joined by nothing
//   - function responses of a turn go first, as tool messages in the order of their
//     calls and with the response's JSON as text, then one user message with the rest
//   - calls without an id get one from their place, so that the same history has the
//     same ids; a response is matched by its id, else by its name, in order
//   - schemas in Google's dialect (type OBJECT, nullable, "minItems": "1") become JSON
//     schemas; those of parametersJsonSchema are sent as they are
//   - thinking is what thought parts say. Harnesses drop those: then it is what our
//     thoughtSignature holds. A missing signature or another's says nothing
//
// Answers: a harness may take a cut answer that held a call for a whole one, so calls,
// and whatever was sampled after the first, are sent with the end. Arguments that are
// no JSON object go out as {} with the flag invalid_arguments.
//
// Google's own clients (Go, Python, older JavaScript) fail on comments in a stream, and
// know an error in it by its being no event but bare JSON. So a heartbeat is an event
// with an empty answer, and a fault is written bare.
package generate
