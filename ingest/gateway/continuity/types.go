package continuity

import (
	"context"
	"errors"
	"sync"

	"icecore/ingest/gateway/turn"
)

// Why a prompt was not spliced. Stable words; the gateway itself finds
// WhyNoTokenIn and WhyDisagrees.
const (
	WhyFirst       = "first"            // nothing is held for the thread
	WhyNoMatch     = "no_match"         // the messages or what surrounds them changed
	WhyTextDiffers = "text_differs"     // the held text is no prefix of the rendered text
	WhyNotBoundary = "not_a_boundary"   // nothing follows, or not from a token's beginning
	WhyReplacement = "replacement_char" // the held ids cannot be decoded without doubt
	WhyNoRender    = "no_render"        // the engine cannot render, detokenize or tokenize
	WhyNoTokenIn   = "no_token_in"      // the engine takes no ids
	WhyDisagrees   = "disagrees"        // a rendering was not what the engine made: see Trust
	WhyError       = "error"            // a token tool failed
)

// ErrNone is for Tokens that lack a tool: it is not a failure.
var ErrNone = errors.New("the engine has no such token tool")

// Tokens are an engine's token tools, for one request.
type Tokens interface {
	// Render gives the ids of the request's messages and tools under the engine's
	// template, as if it was called now.
	Render(ctx context.Context) ([]int32, error)
	// Detokenize gives the text, specials included.
	Detokenize(ctx context.Context, ids []int32) (string, error)
	// Tokenize adds no specials; marks in the text become their special ids.
	Tokenize(ctx context.Context, text string) ([]int32, error)
}

// Held is one finished call as later calls of the thread may go on from it. It and
// its slices must not be changed once it was given to a Memory.
type Held struct {
	TraceID string
	// Messages are those of the request and our answer. A Memory keeps only their
	// hashes: in a Match they are nil.
	Messages []turn.Message
	// ToolsHash, ParamsHash and Model must be equal for a splice. Params are the
	// template's.
	ToolsHash, ParamsHash, Model string
	// Tokens are the prompt's ids as the engine received them, then those it sampled.
	Tokens []int32
	// PromptLen is how many of Tokens are the prompt's.
	PromptLen int
	// Rendered is set for a call whose prompt was spliced: the rendering (Plan.Rendered)
	// that has the same text as Tokens[:PromptLen]. Later comparisons start behind it
	// instead of at the first id at which the two tokenisations part. nil: the prompt
	// was not spliced.
	Rendered []int32
	// Ended: finish stop or tool_calls, and Tokens end with the id that ended the turn.
	Ended bool

	mu       sync.Mutex
	tail     string // the text of Tokens[tailFrom:], once it was asked for
	tailFrom int
	tailOf   string // whose text it is
	hasTail  bool
}

// Match is a held call of the thread, set against a request.
type Match struct {
	Held *Held
	// MessagesEqual: the request begins with all of the held messages.
	MessagesEqual bool
	// SettingsEqual: model, tools and parameters are the same.
	SettingsEqual bool
	// Through is how many messages are equal from the start.
	Through int

	// of is how many messages are held.
	of int
	// met: a message further on is equal to the one in the same place, so it is the
	// same conversation although its start was changed.
	met bool
	// within: the request holds no message beyond the held ones (a retry, a rewind).
	within bool
}

// Plan is a prompt in ids, or why there is none.
type Plan struct {
	// PromptIDs is the prompt; nil: do not splice.
	PromptIDs []int32
	// From is the trace whose ids it begins with, Kept how many they are.
	From string
	Kept int
	// Why is a stable word when PromptIDs is nil.
	Why string
	// Rendered is the rendering, where it came to that. When PromptIDs is set, both have
	// the same text, and the call's Held should carry it.
	Rendered []int32
}

// Kinds of a Label.
const (
	// Extends: the prompt begins with all held ids.
	Extends = "extends"
	// TemplateGap: it parts from them only at the end of the turn, by what the template
	// writes there.
	TemplateGap = "template_gap"
	// Retokenised: it begins with the held text, in other ids.
	Retokenised = "retokenised"
	// Rewritten: its text is another one.
	Rewritten = "rewritten"
	// Unknown: ids differ, and the text cannot be compared.
	Unknown = "unknown"
	// First: it goes on from nothing that is held.
	First = "first"
)

// Label says how a prompt relates to what is held.
type Label struct {
	Kind string
	// From is the trace it was set against.
	From string
	// Shared is how many ids are equal from the start, Of how many are held.
	Shared, Of int
}
