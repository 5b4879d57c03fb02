// Package continuity keeps, per agent thread, the token ids that an engine has
// received and sampled, and says how the next prompt relates to them.
//
// A harness sends text. Rendered and tokenised anew, text that a model sampled may
// come out as other ids than it sampled, and then the next call does not continue the
// sequence that is trained on. Splice puts the held ids back, but only where the
// result is another tokenisation of exactly the text that was asked for. Where the
// text differs in a single byte it does nothing, and Classify says what happened.
//
// What makes a splice safe, in the order in which it is looked at:
//
//  1. the same thread (the memory's key), model, tools and template parameters;
//  2. the request begins with the held messages, our answer included, unchanged;
//  3. the held ids decode to a prefix of the rendered text, byte by byte, and can be
//     decoded without doubt (no U+FFFD where the ids differ);
//  4. something follows, and it is tokenised in the rendering just as it is on its
//     own: the held part ends where one of the rendering's tokens ends.
//
// The prompt is then the held ids and those that the rendering ends with. When the
// answer lacked its closing token, that comes with the rendering's part: it is
// context and never trained.
package continuity
