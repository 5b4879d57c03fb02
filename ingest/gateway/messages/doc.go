// Package messages is Anthropic's Messages API as a provider, with count_tokens.
//
// What a harness sends becomes chat messages so:
//   - system blocks are one leading system message, their texts joined by an empty line;
//     a message of role system or developer stays where it is, joined alike
//   - an assistant's texts are one text, joined by nothing, because that is how the
//     answer was sampled that came out as several blocks
//   - tool results of a user's turn go first, as tool messages in the order of their
//     calls, then one user message with the images that lay in them and the rest of the
//     turn. What changed its place is listed in the rewrites
//   - is_error is not told to the engine, and cache_control means nothing to it
//   - input becomes the call's arguments, less the space between its parts
//   - thinking is what the block says, or, where it was emptied, what our signature
//     holds; another's signature is not looked at
//
// Arguments of a call are streamed as they are sampled. Where they do not begin with an
// opening brace they go out as {}; where they turn out to be broken later, they have
// been sent by then and stay broken, which harnesses answer to their model. Both give
// the flag invalid_arguments. Whole answers have {} for both.
package messages
