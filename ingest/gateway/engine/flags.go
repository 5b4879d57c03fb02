package engine

// Flags of Sampled: what was odd in an answer that is recorded all the same.
const (
	// flagIncomplete: the engine counted more sampled tokens than it gave ids for.
	flagIncomplete = "ids_incomplete"
	// flagMissing: it gave no sampled ids, flagPromptMissing: none of the prompt.
	flagMissing       = "ids_missing"
	flagPromptMissing = "prompt_ids_missing"
	// flagPromptDiffer: it says that its prompt was another than the ids it was sent.
	flagPromptDiffer = "prompt_ids_differ"
	// flagDisagree: it gave ids in two places, and they are not the same.
	flagDisagree = "ids_disagree"
	// flagLogsMissing: there are ids without log-probs. flagLogsDropped: there were
	// log-probs, and they are not those of the ids.
	flagLogsMissing = "logprobs_missing"
	flagLogsDropped = "logprobs_dropped"
	// flagLogsOdd: some are no log-probabilities: NaN, or above 0.
	flagLogsOdd = "logprobs_odd"
	// flagUniform: the log-probs at the end are all one low value.
	flagUniform = "uniform_tail"
	// flagPastStop: a stop text ended the answer, so the ids go on past the text.
	flagPastStop = "past_stop"
	// Usage that is missing, or does not agree with the ids.
	flagUsageMissing    = "usage_missing"
	flagUsagePrompt     = "usage_mismatch_prompt"
	flagUsageCompletion = "usage_mismatch_completion"
	// flagFinishUnknown: the finish reason is a word that nobody knows.
	flagFinishUnknown = "finish_unknown"
	// flagCallsMissing: the answer ended for its tool calls, and has none.
	// flagCallUnnamed: a call has no name.
	flagCallsMissing = "calls_missing"
	flagCallUnnamed  = "call_unnamed"
	// flagVersionsOdd: the spans of versions do not cover the ids.
	flagVersionsOdd = "versions_odd"

	// Of the call rather than of a choice: the engine took no ids for a prompt and got
	// the messages; it ended without [DONE]; it answered choices that nobody asked for;
	// it told several prompts; a parser's name is not known.
	flagTokenInRefused  = "token_in_refused"
	flagDoneMissing     = "done_missing"
	flagChoiceUnknown   = "choice_unknown"
	flagPromptsDisagree = "prompt_ids_disagree"
	flagParserUnknown   = "parser_unknown"
)
