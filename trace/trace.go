package trace

import "math"

// Trace is one model call as it crossed the model boundary. It is immutable
// once stored. Field meanings follow the HTTP contract (docs/api.md); a nil
// pointer, nil slice or empty string means that the capturer did not say.
type Trace struct {
	TraceID   string
	RolloutID string
	// Seq is the order of the call in its rollout as the capturer saw it, ≥ 0.
	Seq *int64

	// PromptIDs are the ids the engine received; nil: not known.
	PromptIDs Tokens
	// PromptPrefix, when set, says that PromptIDs holds only what follows the
	// first Length ids of another trace. Ingest resolves it before storing.
	PromptPrefix *PromptPrefix
	// PromptHash is SHA-256 of the whole prompt as little-endian int32, when
	// the client sent one.
	PromptHash []byte
	// ResponseIDs are the sampled ids; nil: not known.
	ResponseIDs []int32
	// ResponseLogprobs are behaviour log-probabilities (natural log), one per
	// response id; nil: none were given.
	ResponseLogprobs *Logprobs
	// IDsIncomplete: the engine counted more tokens than it gave ids for.
	IDsIncomplete bool

	// PolicyVersion is the version of the weights at dispatch.
	PolicyVersion *int64
	// PolicyVersionSpans is set when the response spans several versions.
	PolicyVersionSpans []VersionSpan

	Status       Status
	FinishReason string
	// ChoiceGroup and ChoiceIndex declare n > 1 sampling.
	ChoiceGroup string
	ChoiceIndex *int64
	Kind        Kind

	Attributes      Attributes
	Tokenizer       string
	API             string
	ParentRolloutID string

	ChatTemplateHash string
	ToolsHash        string
	// Sampling, Usage and Metadata are JSON texts in canonical form (keys
	// sorted, no white space), or nil.
	Sampling []byte
	Usage    []byte
	Metadata []byte
	// Extra holds, as one canonical JSON object, fields that the contract does
	// not name. They are kept, and part of the content, but not interpreted.
	Extra []byte
	Error string

	// Times are microseconds since the Unix epoch, UTC.
	StartedAt    *int64
	FirstTokenAt *int64
	FinishedAt   *int64

	// RequestBody and ResponseBody are the bytes that crossed the wire.
	RequestBody  []byte
	ResponseBody []byte

	// TextRepaired: some text held invalid UTF-8 or a lone surrogate, which
	// was replaced by U+FFFD.
	TextRepaired bool
}

// Attributes describe a rollout. A trace may carry them; values set on the
// rollout itself win.
type Attributes struct {
	TaskID         string
	GroupID        string
	SampleIndex    *int64
	Harness        string
	HarnessVersion string
	Model          string
}

// PromptPrefix says that a prompt begins with the first Length ids of the
// prompt and response of trace TraceID.
type PromptPrefix struct {
	TraceID string
	Length  int64
}

// VersionSpan says that from position Start of the response on, Version of the
// weights sampled, until the next span.
type VersionSpan struct {
	Start   int64
	Version int64
}

// Logprobs is a sequence of float32 log-probabilities in which single positions
// may be unknown. Unknown is not NaN: NaN is a value that an engine reported.
type Logprobs struct {
	Values []float32
	// Known has one entry per value; nil means that all are known.
	Known []bool
}

// Len is the number of positions.
func (l *Logprobs) Len() int { return len(l.Values) }

// At gives the value at position i and whether it is known.
func (l *Logprobs) At(i int) (float32, bool) {
	return l.Values[i], l.Known == nil || l.Known[i]
}

// Rounding is how far above 0 a log-probability may be, by the arithmetic of engines.
const Rounding = 1e-3

// Impossible gives the first position whose value is a number above 0 by more than
// rounding, and how many there are. Values that are not finite say by themselves that
// they are no numbers.
func (l *Logprobs) Impossible() (first, count int) {
	for i, v := range l.Values {
		if v > Rounding && v <= math.MaxFloat32 {
			if count == 0 {
				first = i
			}
			count++
		}
	}
	return first, count
}

// Append adds a known value.
func (l *Logprobs) Append(v float32) {
	l.Values = append(l.Values, v)
	if l.Known != nil {
		l.Known = append(l.Known, true)
	}
}

// AppendUnknown adds a position whose value is not known.
func (l *Logprobs) AppendUnknown() {
	if l.Known == nil {
		l.Known = make([]bool, len(l.Values), cap(l.Values))
		for i := range l.Known {
			l.Known[i] = true
		}
	}
	l.Values = append(l.Values, 0)
	l.Known = append(l.Known, false)
}

// Status says how a call ended.
type Status string

// The four ways a call ends.
const (
	StatusOK            Status = "ok"
	StatusAborted       Status = "aborted"
	StatusClientGone    Status = "client_gone"
	StatusUpstreamError Status = "upstream_error"
)

// Statuses lists the values of Status.
var Statuses = []Status{StatusOK, StatusAborted, StatusClientGone, StatusUpstreamError}

// FinishReasons lists the values of Trace.FinishReason.
var FinishReasons = []string{"stop", "length", "tool_calls", "content_filter", "abort"}

// Kind separates the agent's own calls from those beside it (titles,
// compaction). Both are merged alike.
type Kind string

// The two kinds of call.
const (
	KindAgent     Kind = "agent"
	KindAuxiliary Kind = "auxiliary"
)

// Kinds lists the values of Kind.
var Kinds = []Kind{KindAgent, KindAuxiliary}

// HasIDs reports whether both id sequences are known and not both are empty.
func (t *Trace) HasIDs() bool {
	return t.PromptIDs != nil && t.ResponseIDs != nil && t.PromptIDs.Len()+len(t.ResponseIDs) > 0
}
