package enginebody

import (
	"encoding/json"
	"fmt"

	"icecore/trace"
)

// promptOf finds the prompt's ids in a choice or an answer. total is the
// engine's own count of them, nil where it does not say.
func promptOf(rs *runs, at string, o object, total *int64) {
	for _, name := range []string{"prompt_token_ids", "input_ids"} {
		if ids, ok := idList(o[name]); ok {
			rs.at(at+name).set(ids, nil)
		}
	}
	if list, ok := o["prompt_logprobs"].([]any); ok && len(list) > 0 {
		rs.at(at+"prompt_logprobs").set(promptLogprobs(list), nil)
	}
	if details, ok := o["details"].(object); ok {
		if list, ok := details["prefill"].([]any); ok && len(list) > 0 {
			ids, _ := entries(list)
			rs.at(at+"details.prefill").set(ids, nil)
		}
	}
	if meta, ok := o["meta_info"].(object); ok {
		// Usually the log-probs of the prompt begin at its last token only.
		list, ok := meta["input_token_logprobs"].([]any)
		if ok && total != nil && int64(len(list)) == *total {
			ids, _ := tuples(list)
			rs.at(at+"meta_info.input_token_logprobs").set(ids, nil)
		}
	}
}

// promptLogprobs reads vLLM's list of {"id": {…}} per position. A position with
// several candidates does not say which was in the prompt.
func promptLogprobs(list []any) []int32 {
	ids := make([]int32, len(list))
	for i, v := range list {
		ids[i] = NotTold
		o, ok := v.(object)
		if !ok || len(o) != 1 {
			continue
		}
		for key := range o {
			ids[i], _ = idOf(json.Number(key))
		}
	}
	return ids
}

// responseOf finds sampled ids and their log-probs in a choice or an answer, or
// in a piece of one. total counts what was sampled so far, where the engine says.
func responseOf(rs *runs, at string, o object, total *int64) {
	for _, name := range []string{"token_ids", "response_token_ids", "output_token_ids", "tokens"} {
		if ids, ok := idList(o[name]); ok {
			rs.at(at+name).add(ids, nil)
		}
	}
	if ids, ok := idList(o["output_ids"]); ok {
		rs.at(at+"output_ids").grow(ids, nil, total)
	}
	if meta, ok := o["meta_info"].(object); ok {
		if list, ok := meta["output_token_logprobs"].([]any); ok {
			ids, logprobs := tuples(list)
			rs.at(at+"meta_info.output_token_logprobs").grow(ids, logprobs, count(meta["completion_tokens"]))
		}
	}
	for _, name := range []string{"logprobs", "response_logprobs", "output_logprobs"} {
		logprobsOf(rs, at+name, o[name])
	}
	if list, ok := o["completion_probabilities"].([]any); ok {
		rs.at(at + "completion_probabilities").add(entries(list))
	}
	if token, ok := o["token"].(object); ok {
		rs.at(at + "token").add(entries([]any{token}))
	}
	if details, ok := o["details"].(object); ok {
		if list, ok := details["tokens"].([]any); ok {
			rs.at(at + "details.tokens").add(entries(list))
		}
	}
}

// logprobsOf reads what is called logprobs: {content: […]} of chat completions,
// {tokens, token_logprobs} of text completions, or a bare list.
func logprobsOf(rs *runs, at string, v any) {
	switch v := v.(type) {
	case object:
		if list, ok := v["content"].([]any); ok {
			rs.at(at + ".content").add(entries(list))
		}
		list, ok := v["token_logprobs"].([]any)
		if !ok {
			return
		}
		ids, logprobs := numbers(list)
		if tokens, ok := v["tokens"].([]any); ok && len(tokens) == len(list) {
			for i, t := range tokens {
				ids[i], _ = idInText(t)
			}
		}
		rs.at(at+".token_logprobs").add(ids, logprobs)
	case []any:
		for _, e := range v {
			if _, ok := e.(object); ok {
				rs.at(at).add(entries(v))
				return
			}
		}
		rs.at(at).add(numbers(v))
	}
}

// numbers reads log-probs alone.
func numbers(list []any) ([]int32, *trace.Logprobs) {
	ids, logprobs := make([]int32, len(list)), &trace.Logprobs{}
	for i, v := range list {
		ids[i] = NotTold
		addLogprob(logprobs, v)
	}
	return ids, logprobs
}

// entries reads a list of {token, logprob, id?}. An entry that is no such object
// keeps its place, so that nothing behind it moves.
func entries(list []any) ([]int32, *trace.Logprobs) {
	ids, logprobs := make([]int32, len(list)), &trace.Logprobs{}
	for i, v := range list {
		o, _ := v.(object)
		ids[i] = NotTold
		for _, name := range []string{"id", "token_id", "tokenId"} {
			if id, ok := idOf(o[name]); ok {
				ids[i] = id
				break
			}
		}
		if id, ok := idInText(o["token"]); ok {
			ids[i] = id
		}
		logprob, ok := o["logprob"]
		if !ok {
			logprob = o["logProbability"]
		}
		addLogprob(logprobs, logprob)
	}
	return ids, logprobs
}

// tuples reads SGLang's list of [logprob, id, text].
func tuples(list []any) ([]int32, *trace.Logprobs) {
	ids, logprobs := make([]int32, len(list)), &trace.Logprobs{}
	for i, v := range list {
		t, _ := v.([]any)
		ids[i] = NotTold
		if len(t) < 2 {
			logprobs.AppendUnknown()
			continue
		}
		addLogprob(logprobs, t[0])
		ids[i], _ = idOf(t[1])
	}
	return ids, logprobs
}

// responses takes the output of the Responses API. Its log-probs are those of
// the visible text; calls and reasoning have none.
func responses(p *parts, output []any) {
	for i, item := range output {
		o, _ := item.(object)
		content, _ := o["content"].([]any)
		for j, part := range content {
			text, _ := part.(object)
			list, ok := text["logprobs"].([]any)
			if !ok || len(list) == 0 {
				continue
			}
			r := p.response.at(fmt.Sprintf("output[%d].content[%d].logprobs", i, j))
			r.TextOnly = true
			r.set(entries(list))
		}
	}
}

// gemini takes a candidate of generateContent.
func gemini(p *parts, o object, index int64) {
	result, ok := o["logprobsResult"].(object)
	if !ok {
		return
	}
	if list, ok := result["chosenCandidates"].([]any); ok {
		p.response.at(fmt.Sprintf("candidates[%d].logprobsResult.chosenCandidates", index)).add(entries(list))
	}
}
