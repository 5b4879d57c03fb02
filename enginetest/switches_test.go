package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// said runs one call of vLLM's chat with a script.
func said(t testing.TB, s Script, others members) (*reply, Entry) {
	e, url := server(t, Options{Default: s})
	r := ask(t, url+"/vllm/v1/chat/completions", hello.with(members{"stream": true, "max_tokens": 20}).with(others))
	require.Equal(t, 200, r.status, r.raw)
	entry := only(t, e)
	require.Equal(t, Logprobs(entry.PromptIDs, entry.Choices[0].IDs), entry.Choices[0].Logprobs, "the ledger tells the truth")
	return r, entry
}

// both runs a check on a streamed and on a whole answer.
func both(t *testing.T, s Script, check func(t *testing.T, r *reply, ids []int32)) {
	for _, stream := range []bool{true, false} {
		r, entry := said(t, s, members{"stream": stream})
		check(t, r, entry.Choices[0].IDs)
	}
}

func TestIDSwitches(t *testing.T) {
	t.Parallel()
	for mode, c := range map[string]struct {
		script IDs
		told   func(ids []int32) []int32
	}{
		"none":          {IDs{}, func([]int32) []int32 { return nil }},
		"in_logprobs":   {IDs{}, func([]int32) []int32 { return nil }},
		"misplaced":     {IDs{}, func([]int32) []int32 { return nil }},
		"tail":          {IDs{Tail: 9}, func(ids []int32) []int32 { return ids[len(ids)-9:] }},
		"first_missing": {IDs{}, func(ids []int32) []int32 { return ids[1:] }},
	} {
		c.script.Answer = mode
		both(t, Script{IDs: c.script}, func(t *testing.T, r *reply, ids []int32) {
			require.Equal(t, c.told(ids), r.choices[0].ids, mode)
			require.Equal(t, len(ids), r.usage.Completion, mode)
			require.Len(t, r.choices[0].logprobs, len(ids), mode)
			if mode == "misplaced" {
				require.Contains(t, r.raw, `"token_ids"`)
			}
			for i, token := range r.choices[0].tokens {
				require.Equal(t, fmt.Sprintf("token_id:%d", ids[i]), token)
			}
		})
	}
}

// Old servers lose the ids of text that a parser holds back; counts tell of them.
func TestHeldBackIDsVanish(t *testing.T) {
	t.Parallel()
	s := Script{Turns: []Turn{{Reasoning: "hm", Calls: []Call{{"bash", `{"command": "ls"}`}}}}, IDs: IDs{Answer: "held_missing"}}
	r, entry := said(t, s, members{"tools": []any{bashTool}, "max_tokens": 500})
	require.Less(t, len(r.choices[0].ids), len(entry.Choices[0].IDs))
	require.Len(t, r.choices[0].logprobs, len(r.choices[0].ids))
	require.Equal(t, len(entry.Choices[0].IDs), r.usage.Completion)
	require.Equal(t, s.Turns[0].Calls, r.choices[0].calls, "nothing of the message is lost")
}

func TestUnknownWordsAreRefused(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Script{
		"faults[1].kind": {Faults: []Fault{{Kind: "drop"}, {Kind: "dropp"}}},
		"faults[0].only": {Faults: []Fault{{Kind: "drop", Only: "x"}}},
		"ids.answer":     {IDs: IDs{Answer: "x"}},
		"ids.prompt":     {IDs: IDs{Prompt: "x"}},
		"logprobs.fault": {Logprobs: Logs{Fault: "x"}},
		"sampling.end":   {Sampling: Sampling{End: "x"}},
		"chunks.usage":   {Chunks: Chunks{Usage: "x"}},
		"chunks.lines":   {Chunks: Chunks{Lines: "x"}},
		"agent":          {Builtin: "x"},
	} {
		require.ErrorContains(t, s.Check(), want)
		require.Panics(t, func() { New(Options{Default: s}) })
	}
}

func TestPromptSwitches(t *testing.T) {
	t.Parallel()
	both(t, Script{IDs: IDs{Prompt: "absent"}}, func(t *testing.T, r *reply, _ []int32) { require.NotContains(t, r.raw, "prompt_token_ids") })
	for _, stream := range []bool{true, false} {
		r, entry := said(t, Script{IDs: IDs{Prompt: "in_choice"}}, members{"stream": stream})
		require.Nil(t, r.prompt)
		require.Equal(t, entry.PromptIDs, r.choices[0].prompt)
		r, entry = said(t, Script{IDs: IDs{Prompt: "short"}}, members{"stream": stream})
		require.Equal(t, entry.PromptIDs[:len(entry.PromptIDs)-1], r.prompt)
		r, entry = said(t, Script{IDs: IDs{Prompt: "wrong"}}, members{"stream": stream})
		require.Len(t, r.prompt, len(entry.PromptIDs))
		require.NotEqual(t, entry.PromptIDs, r.prompt)
		require.Equal(t, len(entry.PromptIDs), r.usage.Prompt)
	}
}

func TestLogprobSwitches(t *testing.T) {
	t.Parallel()
	both(t, Script{Logprobs: Logs{Fault: "missing"}}, func(t *testing.T, r *reply, _ []int32) { require.Empty(t, r.choices[0].logprobs) })
	both(t, Script{Logprobs: Logs{Fault: "short"}}, func(t *testing.T, r *reply, ids []int32) { require.Len(t, r.choices[0].logprobs, len(ids)-1) })
	both(t, Script{Logprobs: Logs{Fault: "long"}}, func(t *testing.T, r *reply, ids []int32) { require.Len(t, r.choices[0].logprobs, len(ids)+1) })
	both(t, Script{Logprobs: Logs{Fault: "shifted"}}, func(t *testing.T, r *reply, ids []int32) {
		require.Len(t, r.choices[0].tokens, len(ids))
		require.Equal(t, fmt.Sprintf("token_id:%d", ids[1]), r.choices[0].tokens[0])
	})
	both(t, Script{Logprobs: Logs{Fault: "null", At: []int{3}}}, func(t *testing.T, r *reply, _ []int32) {
		for i, p := range r.choices[0].logprobs {
			require.Equal(t, i == 3, p == nil)
		}
	})
	both(t, Script{Logprobs: Logs{Fault: "floor", At: []int{0, 2}}}, func(t *testing.T, r *reply, _ []int32) {
		require.Equal(t, float32(-9999), *r.choices[0].logprobs[2])
		require.Equal(t, 2, strings.Count(r.raw, `"logprob":-9999`))
	})
	both(t, Script{Logprobs: Logs{Fault: "nan"}}, func(t *testing.T, r *reply, _ []int32) { require.Equal(t, 1, strings.Count(r.raw, `"logprob":NaN,`)) })
	both(t, Script{Logprobs: Logs{Fault: "-inf", At: []int{1}}}, func(t *testing.T, r *reply, _ []int32) {
		require.Equal(t, 1, strings.Count(r.raw, `"logprob":-Infinity,`))
	})
	both(t, Script{Logprobs: Logs{NoTokenIDs: true}}, func(t *testing.T, r *reply, _ []int32) { require.NotContains(t, r.raw, "token_id:") })
	e, url := server(t, Options{Default: Script{Logprobs: Logs{Uniform: true, From: 4}}})
	ask(t, url+"/vllm/v1/chat/completions", hello)
	lps := only(t, e).Choices[0].Logprobs
	require.NotEqual(t, lps[3], lps[4])
	require.Equal(t, lps[4], lps[len(lps)-1])
}

func TestSamplingSwitches(t *testing.T) {
	t.Parallel()
	end := func(s Script) (int32, *reply) {
		r, entry := said(t, s, members{"max_tokens": 2000})
		ids := entry.Choices[0].IDs
		return ids[len(ids)-1], r
	}
	id, r := end(Script{})
	require.Equal(t, ImEnd, id)
	require.Equal(t, defaultAnswer, r.choices[0].text, "the end token is not shown")
	id, r = end(Script{Sampling: Sampling{End: "second"}})
	require.Equal(t, EndOfText, id)
	require.Contains(t, r.raw, `"stop_reason":256`)
	id, r = end(Script{Sampling: Sampling{End: "none"}})
	require.Equal(t, int32('.'), id)
	require.Equal(t, "stop", r.choices[0].finish)

	_, canonical := said(t, Script{}, nil)
	_, drifting := said(t, Script{Sampling: Sampling{Drift: true}}, nil)
	require.NotEqual(t, canonical.Choices[0].IDs, drifting.Choices[0].IDs)
	require.Equal(t, canonical.PromptIDs, drifting.PromptIDs, "prompts are canonical")
}

func TestStops(t *testing.T) {
	t.Parallel()
	s := Script{Turns: []Turn{{Text: "one two three four"}}}
	r, entry := said(t, s, members{"stop": []string{"wo th", "four"}})
	require.Equal(t, "one t", r.choices[0].text)
	require.Equal(t, "one two th", Decode(entry.Choices[0].IDs))
	require.Contains(t, r.raw, `"finish_reason":"stop","stop_reason":"wo th"`)
	s.Sampling.PastStop = 3
	r, entry = said(t, s, members{"stop": "wo"})
	require.Equal(t, "one t", r.choices[0].text)
	require.Equal(t, "one two thre", Decode(entry.Choices[0].IDs), "ids past the stop")
	r, entry = said(t, s, members{"stop_token_ids": []int{'w'}})
	require.Equal(t, "one tw", Decode(entry.Choices[0].IDs))
	require.Contains(t, r.raw, `"stop_reason":119`)
}

func TestTurnSwitches(t *testing.T) {
	t.Parallel()
	body := members{"max_tokens": 2000, "tools": []any{bashTool}}
	r, entry := said(t, Script{Turns: []Turn{{}}}, body)
	require.Equal(t, []int32{ImEnd}, entry.Choices[0].IDs)
	require.Equal(t, "", r.choices[0].text)
	r, _ = said(t, Script{Turns: []Turn{{Reasoning: "only"}}}, body)
	require.Equal(t, "\nonly\n", r.choices[0].reasoning)
	r, _ = said(t, Script{Turns: []Turn{{Calls: []Call{{"bash", `{"a": `}, {"none", `{}`}}}}}, body)
	require.Equal(t, []Call{{"bash", `{"a": `}, {"none", `{}`}}, r.choices[0].calls)
	r, entry = said(t, Script{Turns: []Turn{{Raw: "<tool_call>", Spelled: true}}}, body)
	require.NotContains(t, entry.Choices[0].IDs, CallStart)
	require.Equal(t, "<tool_call>", r.choices[0].text)
	r, _ = said(t, Script{Turns: []Turn{{Raw: "<think>a</think><tool_call>b</tool_call>"}}, Server: Server{NoToolParser: true, NoReasoningParser: true}}, members{"max_tokens": 100})
	require.Equal(t, "<think>a</think><tool_call>b</tool_call>", r.choices[0].text)
	r, _ = said(t, Script{Turns: []Turn{{Text: "x", Finish: "content_filter"}}}, body)
	require.Equal(t, "content_filter", r.choices[0].finish)

	s := Script{Turns: []Turn{{Text: "first"}, {Text: "second"}}}
	for n, want := range []string{"first", "second", "second"} {
		history := []any{user("q")}
		for range n {
			history = append(history, members{"role": "assistant", "content": "a"}, user("q"))
		}
		r, _ = said(t, s, members{"messages": history})
		require.Equal(t, want, r.choices[0].text)
	}
	r, _ = said(t, Script{Agent: func(s *Seen) Turn { return Turn{Text: fmt.Sprint(len(s.Messages), s.MaxTokens)} }}, nil)
	require.Equal(t, "1 20", r.choices[0].text)
	r, _ = said(t, Script{Turns: []Turn{{Reasoning: "R", Text: "A"}}}, members{"include_reasoning": false})
	require.Empty(t, r.choices[0].ids, "as vLLM does")
	r, entry = said(t, Script{Turns: []Turn{{Reasoning: "R", Text: "A"}}}, members{"chat_template_kwargs": members{"enable_thinking": false}})
	require.Equal(t, "A", r.choices[0].text)
	require.True(t, strings.HasSuffix(Decode(entry.PromptIDs), "<think>\n\n</think>\n\n"))
}

func TestLengths(t *testing.T) {
	t.Parallel()
	for _, drift := range []bool{false, true} {
		s := Script{Turns: []Turn{{Text: "So: ", Length: 333}}, Sampling: Sampling{Drift: drift}}
		r, entry := said(t, s, members{"max_tokens": 1000})
		require.Len(t, entry.Choices[0].IDs, 333)
		require.True(t, strings.HasPrefix(r.choices[0].text, "So: "))
		require.Equal(t, "stop", r.choices[0].finish)
		r, entry = said(t, s, members{"max_tokens": 777, "ignore_eos": true})
		require.Len(t, entry.Choices[0].IDs, 777)
		require.Equal(t, "length", r.choices[0].finish)
	}
}

// A script survives its JSON form.
func TestScriptJSON(t *testing.T) {
	t.Parallel()
	none := ""
	s := Script{Turns: []Turn{{Text: "x", Calls: []Call{{"f", "{}"}}, Choices: []Turn{{Raw: "y", Spelled: true}}}}, Builtin: "echo",
		Template: Template{DropThinking: true, SeparatorAfterEOT: &none}, Sampling: Sampling{Drift: true, End: "none"},
		IDs: IDs{Answer: "tail", Tail: 2}, Logprobs: Logs{Fault: "nan", At: []int{1}}, Chunks: Chunks{Sizes: []int{3}}, Time: Time{StallAt: 3, StallMS: 1},
		Faults: []Fault{{Kind: "status", Status: 429, First: 2, RetryAfter: "1"}}, Weights: Weights{BumpAt: 2, BumpTo: "8"}, Server: Server{MaxLen: 9}}
	raw, err := json.Marshal(s)
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var back Script
	require.NoError(t, d.Decode(&back))
	require.Equal(t, s, back)
	raw, err = json.Marshal(Script{})
	require.NoError(t, err)
	require.Equal(t, "{}", string(raw))
}
