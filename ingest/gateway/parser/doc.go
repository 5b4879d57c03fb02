// Package parser reads what a model writes: thinking between marks, and tool calls
// between marks. It is for token-in endpoints, which give ids or text and parse
// nothing, so that a harness gets the message that the engine's own chat endpoint
// would have given.
//
// Nothing that the model wrote is lost. A call that is unfinished or malformed comes
// out as text with its marks. What does not come out is: marks, white space before
// the mark that opens the thinking, and white space after a call.
package parser
