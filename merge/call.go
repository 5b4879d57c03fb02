package merge

import "icecore/trace"

// Call is what the policies may know of a trace.
type Call struct {
	TraceID string
	// Seq is the capturer's order; nil comes after every number.
	Seq *int64
	// Prompt and Response are token ids; nil means that they are not known.
	Prompt, Response trace.Tokens
	// IDsIncomplete: the engine sampled more tokens than it gave ids for.
	IDsIncomplete bool
	// Status is how the call ended; empty means ok.
	Status trace.Status
	// FinishReason is read by polar_compat alone.
	FinishReason string
	// ChoiceGroup names n > 1 sampling, empty: none. ChoiceIndex may be nil.
	ChoiceGroup string
	ChoiceIndex *int64
}

// CallOf takes from a trace what the policies may know, sharing its ids.
func CallOf(t *trace.Trace) Call {
	return Call{
		TraceID: t.TraceID, Seq: t.Seq,
		Prompt: t.PromptIDs, Response: trace.TokensOf(t.ResponseIDs), IDsIncomplete: t.IDsIncomplete,
		Status: t.Status, FinishReason: t.FinishReason,
		ChoiceGroup: t.ChoiceGroup, ChoiceIndex: t.ChoiceIndex,
	}
}

func (c *Call) ok() bool { return c.Status == "" || c.Status == trace.StatusOK }

// sequence is prompt and response in one, sharing both.
func (c *Call) sequence() trace.Tokens { return c.Prompt.Concat(c.Response) }
