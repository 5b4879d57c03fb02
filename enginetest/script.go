package enginetest

// Script says what is answered and how. The zero value is the agent "coder" on an
// engine that does everything right. In JSON (PUT /_scripts/{name}) the names are
// those of the tags; times are in milliseconds.
type Script struct {
	// Turns are the answers, chosen by the number of assistant messages in the
	// request; the last repeats.
	Turns []Turn `json:"turns,omitempty"`
	// Agent, when set, answers instead. It must be safe for concurrent use.
	Agent func(*Seen) Turn `json:"-"`
	// Builtin names an agent that answers when neither is set: "coder" (the default)
	// or "echo", which says the last message again.
	Builtin string `json:"agent,omitempty"`
	// Commands and Answer replace what the coder runs and what it says in the end;
	// Think lets it think before each answer.
	Commands []string `json:"commands,omitempty"`
	Answer   string   `json:"answer,omitempty"`
	Think    string   `json:"think,omitempty"`

	Template Template `json:"template,omitzero"`
	Sampling Sampling `json:"sampling,omitzero"`
	IDs      IDs      `json:"ids,omitzero"`
	Logprobs Logs     `json:"logprobs,omitzero"`
	Chunks   Chunks   `json:"chunks,omitzero"`
	Time     Time     `json:"time,omitzero"`
	Faults   []Fault  `json:"faults,omitempty"`
	Weights  Weights  `json:"weights,omitzero"`
	Server   Server   `json:"server,omitzero"`
}

// Turn is one answer. An empty Turn is an empty answer: an end token and nothing else.
type Turn struct {
	Reasoning string `json:"reasoning,omitempty"`
	Text      string `json:"text,omitempty"`
	Calls     []Call `json:"calls,omitempty"`
	// Raw is all that the model writes, instead of the above. With Spelled its marks
	// are spelled byte by byte and are no special tokens.
	Raw     string `json:"raw,omitempty"`
	Spelled bool   `json:"spelled,omitempty"`
	// Length is how many ids are sampled in all; words fill the text up. 0: as many as
	// the text has.
	Length int `json:"length,omitempty"`
	// Finish replaces the reason that the engine tells.
	Finish string `json:"finish,omitempty"`
	// Choices are the answers of choices 1, 2, … of n; a choice without one gives the
	// turn's text with its number behind.
	Choices []Turn `json:"choices,omitempty"`
}

// Sampling switches how a text becomes ids.
type Sampling struct {
	// Drift samples another than the canonical tokenisation.
	Drift bool `json:"drift,omitempty"`
	// ByAttempt lets the same request be sampled otherwise when it comes again (it
	// matters with Drift).
	ByAttempt bool `json:"by_attempt,omitempty"`
	// End is how an answer ends that was not cut: "" <|im_end|>, "none" nothing,
	// "second" <|endoftext|>.
	End string `json:"end,omitempty"`
	// PastStop is how many ids remain behind a stop sequence.
	PastStop int `json:"past_stop,omitempty"`
}

// IDs switches how ids are told. Counts are always of what was sampled.
type IDs struct {
	// Answer: "" all; "none"; "tail" only the last Tail; "first_missing" without the
	// first chunk's; "held_missing" without the chunks of a stream whose text a parser
	// holds back, as old servers; "misplaced" inside delta and message; "in_logprobs" no token_ids,
	// so only token_id:N tells.
	Answer string `json:"answer,omitempty"`
	Tail   int    `json:"tail,omitempty"`
	// Prompt: "" told; "absent"; "in_choice" inside each choice; "wrong" with one id
	// changed; "short" without the last.
	Prompt string `json:"prompt,omitempty"`
}

// Logs switches how log-probs are told.
type Logs struct {
	// Fault: "" none; "missing", "short" and "long" by one, "shifted" by one; at the
	// positions of At "nan", "-inf", "floor" (-9999) or "null".
	Fault string `json:"fault,omitempty"`
	// At are the positions in the answer; empty: 0.
	At []int `json:"at,omitempty"`
	// NoTokenIDs ignores return_tokens_as_token_ids.
	NoTokenIDs bool `json:"no_token_ids,omitempty"`
	// Uniform gives -ln(vocabulary) from position From on, in the ledger too, as a row
	// of NaN made sane does.
	Uniform bool `json:"uniform,omitempty"`
	From    int  `json:"from,omitempty"`
}

// Chunks switches how a streamed answer is cut.
type Chunks struct {
	// Sizes are the numbers of ids of the chunks, over and over; empty: 1.
	Sizes []int `json:"sizes,omitempty"`
	// EmptyEvery sends a chunk with an empty delta after every so many; 0: never.
	EmptyEvery int `json:"empty_every,omitempty"`
	// EmptyCalls adds "tool_calls":[] to deltas of text.
	EmptyCalls bool `json:"empty_calls,omitempty"`
	// RepeatRole names the role in every chunk; NoRole sends no chunk for the role
	// alone: the first text comes with it.
	RepeatRole bool `json:"repeat_role,omitempty"`
	NoRole     bool `json:"no_role,omitempty"`
	// ArgumentsAtEnd keeps a call's arguments back until they are whole.
	ArgumentsAtEnd bool `json:"arguments_at_end,omitempty"`
	// FinishApart sends the reason in a chunk without ids.
	FinishApart bool `json:"finish_apart,omitempty"`
	// Usage: "" where it is asked for; "absent"; "wrong" (7 ids too many); "continuous"
	// in each chunk.
	Usage string `json:"usage,omitempty"`
	// Lines: "" LF; "crlf". Comments sends an SSE comment before each chunk.
	Lines    string `json:"lines,omitempty"`
	Comments bool   `json:"comments,omitempty"`
	// Bytes cuts what goes to the connection into pieces of so many bytes; 0: events.
	Bytes int `json:"bytes,omitempty"`
	// NoCallIDs names tool calls without ids, streamed or not.
	NoCallIDs bool `json:"no_call_ids,omitempty"`
	// OldReasoning names thinking reasoning_content on vLLM, as older ones did.
	OldReasoning bool `json:"old_reasoning,omitempty"`
}

// Time switches when things happen. A Gate lets a test say so step by step.
type Time struct {
	HeadersMS   int `json:"headers_ms,omitempty"`    // before the answer's headers
	FirstByteMS int `json:"first_byte_ms,omitempty"` // between headers and the first id
	TokenMS     int `json:"token_ms,omitempty"`      // before each chunk of ids
	// StallMS is a pause once before id StallAt is sent.
	StallAt int `json:"stall_at,omitempty"`
	StallMS int `json:"stall_ms,omitempty"`
	// NeverEnds: the last id does not come until the client leaves or aborts.
	NeverEnds bool `json:"never_ends,omitempty"`
	// Gate is passed before each chunk that carries ids, by every request of the script.
	Gate *Gate `json:"-"`
	// Headers is passed before the headers are answered.
	Headers *Gate `json:"-"`
}

// Weights switches what happens to the weights while answers are sampled.
type Weights struct {
	// BumpAt, when not 0, makes the engine's version BumpTo before id BumpAt is sampled
	// (once per script).
	BumpAt int    `json:"bump_at,omitempty"`
	BumpTo string `json:"bump_to,omitempty"`
	// Spans: SGLang's faces tell metadata.weight_versions.
	Spans bool `json:"spans,omitempty"`
	// Header is a header of every answer that tells the version at its begin.
	Header string `json:"header,omitempty"`
}

// Server switches what the server can do.
type Server struct {
	// MaxLen is the longest prompt and answer together; 0: 1,048,576.
	MaxLen int `json:"max_len,omitempty"`
	// NoToolParser: marks of calls stay text; tools with tool_choice auto are refused.
	// NoReasoningParser: so do those of thinking.
	NoToolParser      bool `json:"no_tool_parser,omitempty"`
	NoReasoningParser bool `json:"no_reasoning_parser,omitempty"`
	// RefuseUnknown answers 400 to members that OpenAI does not know (on /plain).
	RefuseUnknown bool `json:"refuse_unknown,omitempty"`
	// TokenizeMessages lets /tokenize of SGLang's faces take messages.
	TokenizeMessages bool `json:"tokenize_messages,omitempty"`
	// NoTokenize, NoDev and NoTokenIn: no /tokenize and /detokenize; no routes of
	// vLLM's dev mode (weights, pause, abort); no input_ids, no ids in prompts.
	NoTokenize bool `json:"no_tokenize,omitempty"`
	NoDev      bool `json:"no_dev,omitempty"`
	NoTokenIn  bool `json:"no_token_in,omitempty"`
	// Incremental: SGLang's /generate streams what is new, not all so far.
	Incremental bool `json:"incremental,omitempty"`
	// SglextAlways tells sglext unasked; StreamIDs puts token_ids into SGLang's chunks.
	SglextAlways bool `json:"sglext_always,omitempty"`
	StreamIDs    bool `json:"stream_ids,omitempty"`
}

// Fault is something that goes wrong. Without After and First it does so always.
type Fault struct {
	// Kind: before the answer "status", "html", "drop" (the connection); at id At
	// "cut_clean", "cut_broken", "error_event", "abort"; at the end "no_finish",
	// "done_twice", "no_done". "deaf" samples on when the client leaves, "deaf_abort"
	// ignores aborts, "repeat_last" repeats the last id in the chunk of an abort.
	Kind string `json:"kind"`
	// After passes over so many requests, First bounds how many are hit after those.
	After int `json:"after,omitempty"`
	First int `json:"first,omitempty"`
	// At is the position in the answer's ids.
	At int `json:"at,omitempty"`
	// Status is of "status" and "html" (500), and of an error event's body.
	Status int `json:"status,omitempty"`
	// RetryAfter is that header's value.
	RetryAfter string `json:"retry_after,omitempty"`
	Message    string `json:"message,omitempty"`
	// Only: "stream" or "whole": hits only such requests.
	Only string `json:"only,omitempty"`
}

func (f *Fault) hits(attempt int, stream bool) bool {
	if f.Only == "stream" && !stream || f.Only == "whole" && stream {
		return false
	}
	return attempt >= f.After && (f.First == 0 || attempt < f.After+f.First)
}

// fault gives the first fault of one of the kinds that hits.
func (s *Script) fault(attempt int, stream bool, kinds ...string) *Fault {
	for i := range s.Faults {
		f := &s.Faults[i]
		for _, k := range kinds {
			if f.Kind == k && f.hits(attempt, stream) {
				return f
			}
		}
	}
	return nil
}
