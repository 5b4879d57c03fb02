package engine

import "icecore/trace"

// Sampled is what is known of one choice.
type Sampled struct {
	// PromptIDs are the ids that the engine received; nil: it did not say.
	PromptIDs []int32
	// IDs are the sampled ids; nil: the engine gave none; empty: it gave ids, and
	// there were none.
	IDs []int32
	// Logprobs has one entry per id; nil: none, or they could not be paired.
	Logprobs *trace.Logprobs
	// Incomplete: the engine counted more tokens than it gave ids for.
	Incomplete bool
	// Finish is one of trace.FinishReasons; empty: there was none.
	Finish string
	// StopReason is what the engine stopped at: a text, or an id in digits.
	StopReason string
	// Flags are stable words on what was odd, sorted; flags.go tells of each.
	Flags []string
	// Raw are values worth keeping that have no other place.
	Raw map[string]any
	// Versions of the weights by position, where the engine itself told them.
	Versions []trace.VersionSpan
	// VersionStrings are those of Versions where one of them is no integer.
	VersionStrings []string
	// Told is the one version that the answer as a whole named (SGLang's
	// weight_version at its end, or the version header at its beginning).
	Told string
	// ToldFirst: it was named at the answer's beginning, so it says nothing of its end.
	ToldFirst bool
}
