package openai

import (
	"encoding/json"
	"slices"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// sampling are the parameters that engines know under these names and that leave ids,
// log-probs and finish reasons of an answer as capture needs them.
var sampling = map[string]body.Kind{
	"temperature": body.KindNumber, "top_p": body.KindNumber, "top_k": body.KindNumber, "min_p": body.KindNumber,
	"presence_penalty": body.KindNumber, "frequency_penalty": body.KindNumber, "repetition_penalty": body.KindNumber,
	"length_penalty": body.KindNumber, "seed": body.KindNumber, "min_tokens": body.KindNumber,
	"logit_bias": body.KindObject, "stop_token_ids": body.KindArray, "bad_words": body.KindArray,
	"ignore_eos": body.KindBool, "include_stop_str_in_output": body.KindBool, "no_stop_trim": body.KindBool,
	"skip_special_tokens": body.KindBool, "spaces_between_special_tokens": body.KindBool,
	"response_format": body.KindObject, "structured_outputs": body.KindObject,
	"guided_regex": body.KindString, "guided_choice": body.KindArray, "guided_grammar": body.KindString,
	"guided_json": "", "regex": body.KindString, "ebnf": body.KindString,
	"chat_template_kwargs": body.KindObject, "mm_processor_kwargs": body.KindObject,
}

// harmless members change nothing of an answer: they are left out without a word.
var harmless = []string{
	"store", "metadata", "service_tier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
	"user", "safety_identifier", "cache_control",
}

// capture are members by which a harness could switch off, or repeat, what the gateway
// itself asks of engines.
var capture = []string{
	"return_token_ids", "return_tokens_as_token_ids", "return_prompt_text", "return_prompt_token_ids",
	"return_meta_info", "return_input_ids_in_sglext", "return_output_ids_in_sglext", "return_hidden_states",
	"prompt_logprobs", "echo", "separate_reasoning", "stream_reasoning", "request_id", "rid",
	"best_of", "use_beam_search", "prompt_token_ids", "input_ids",
}

// Sampling takes the parameters of sampling out of a body. Members that it does not
// know, and that are not among the caller's own, are listed as rewrites.
func Sampling(r *turn.Request, f body.Fields, own ...string) error {
	for _, m := range f.All() {
		if m.Value.Absent() || slices.Contains(own, m.Name) || slices.Contains(harmless, m.Name) {
			continue
		}
		kind, known := sampling[m.Name]
		switch {
		case known && kind != "" && m.Value.Kind() != kind:
			return m.Value.Invalid("must be " + string(kind) + ", not " + string(m.Value.Kind()))
		case known:
			set(r, m.Name, m.Value.Raw())
		case m.Name == "stop":
			if err := stop(r, m.Value); err != nil {
				return err
			}
		case slices.Contains(capture, m.Name):
			r.Rewrite("dropped_field", m.Value.Path(), "the gateway decides what the engine is asked to return")
		default:
			r.Rewrite("dropped_field", m.Value.Path(), "not a parameter that engines know")
		}
	}
	return nil
}

func set(r *turn.Request, name string, raw json.RawMessage) {
	if r.Sampling == nil {
		r.Sampling = map[string]json.RawMessage{}
	}
	r.Sampling[name] = raw
}

// stop is a text or an array of texts; engines get an array.
func stop(r *turn.Request, v body.Value) error {
	if v.Kind() == body.KindString {
		text, err := v.String()
		if err != nil || text == "" {
			return err
		}
		set(r, "stop", json.RawMessage("["+string(v.Raw())+"]"))
		return nil
	}
	all, err := v.Array()
	if err != nil {
		return v.Invalid("must be a string or an array of strings, not " + string(v.Kind()))
	}
	for _, one := range all {
		if _, err := one.NeedString(); err != nil {
			return err
		}
	}
	if len(all) > 0 {
		set(r, "stop", v.Raw())
	}
	return nil
}

// MaxTokens reads a bound of the answer; nil: absent.
func MaxTokens(v body.Value) (*int64, error) {
	n, err := v.Int()
	if err == nil && n != nil && *n < 1 {
		return nil, v.Invalid("must be at least 1")
	}
	return n, err
}

// Total counts prompt and answer; what was not said counts as 0.
func Total(u turn.Usage) int64 { return turn.Count(u.Prompt) + turn.Count(u.Completion) }

// Repaired lists the halves of surrogate pairs that a body escapes: they are read as
// U+FFFD.
func Repaired(r *turn.Request, text []byte) {
	if body.LoneSurrogate(text) {
		r.Rewrite("replaced_surrogate", "", "half a surrogate pair is no character and was read as U+FFFD")
	}
}
