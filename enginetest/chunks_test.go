package enginetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestChunkSwitches(t *testing.T) {
	t.Parallel()
	turn := Turn{Text: "雪 é and so on", Calls: []Call{{"bash", `{"command": "ls"}`}}}
	body := members{"max_tokens": 500, "tools": []any{bashTool}}
	for name, c := range map[string]struct {
		chunks Chunks
		check  func(t *testing.T, r *reply)
	}{
		"one id":  {Chunks{}, func(t *testing.T, r *reply) { require.Contains(t, r.events[1], `"content":""`, "a rune's first byte") }},
		"many":    {Chunks{Sizes: []int{7, 1}}, func(t *testing.T, r *reply) { require.Len(t, r.chunks[1].Choices[0].IDs, 7) }},
		"at once": {Chunks{Sizes: []int{1000}}, func(t *testing.T, r *reply) { require.Len(t, r.events, 3) }},
		"empty": {Chunks{EmptyEvery: 2}, func(t *testing.T, r *reply) {
			require.Contains(t, r.events[3], `"delta":{"content":""},"logprobs":null`)
		}},
		"calls":     {Chunks{EmptyCalls: true}, func(t *testing.T, r *reply) { require.Contains(t, r.events[5], `"tool_calls":[]`) }},
		"roles":     {Chunks{RepeatRole: true}, func(t *testing.T, r *reply) { require.Contains(t, r.events[5], `"role":"assistant"`) }},
		"no role":   {Chunks{NoRole: true, Sizes: []int{6}}, func(t *testing.T, r *reply) { require.Contains(t, r.events[0], `"role":"assistant","content":"雪 é`) }},
		"late":      {Chunks{ArgumentsAtEnd: true}, func(t *testing.T, r *reply) { require.Equal(t, 1, strings.Count(r.raw, `"arguments":"{\"command`)) }},
		"apart":     {Chunks{FinishApart: true}, func(t *testing.T, r *reply) { require.NotContains(t, r.events[len(r.events)-2], "token_ids") }},
		"no usage":  {Chunks{Usage: "absent"}, func(t *testing.T, r *reply) { require.Nil(t, r.usage) }},
		"usage":     {Chunks{Usage: "wrong"}, func(t *testing.T, r *reply) { require.Equal(t, len(r.choices[0].ids)+7, r.usage.Completion) }},
		"always":    {Chunks{Usage: "continuous"}, func(t *testing.T, r *reply) { require.Equal(t, 3, r.chunks[3].Usage.Completion) }},
		"crlf":      {Chunks{Lines: "crlf"}, func(t *testing.T, r *reply) { require.NotContains(t, strings.ReplaceAll(r.raw, "\r\n", ""), "\n") }},
		"comments":  {Chunks{Comments: true}, func(t *testing.T, r *reply) { require.Contains(t, r.raw, ": a comment\n\n") }},
		"bytes":     {Chunks{Bytes: 3}, func(t *testing.T, r *reply) { require.NotEmpty(t, r.events) }},
		"reasoning": {Chunks{OldReasoning: true}, func(t *testing.T, r *reply) { require.Contains(t, r.raw, `"reasoning_content":"h`) }},
	} {
		turn.Reasoning = ""
		if name == "reasoning" {
			turn.Reasoning = "h"
		}
		r, entry := said(t, Script{Turns: []Turn{turn}, Chunks: c.chunks}, body)
		c.check(t, r)
		require.Equal(t, entry.Choices[0].IDs, r.choices[0].ids, name)
		require.Equal(t, turn.Text, trimNewlines(r.choices[0].text), name)
		require.Equal(t, turn.Calls, r.choices[0].calls, name)
	}
}

func TestManyChoicesInterleave(t *testing.T) {
	t.Parallel()
	s := Script{Turns: []Turn{{Text: "first of all", Choices: []Turn{{Text: "second", Calls: []Call{{"bash", "{}"}}}}}}}
	for _, stream := range []bool{true, false} {
		r, entry := said(t, s, members{"n": 3, "stream": stream, "tools": []any{bashTool}, "max_tokens": 300})
		require.Len(t, entry.Choices, 3)
		for i, want := range []string{"first of all", "second\n", "first of all (choice 2)"} {
			require.Equal(t, want, r.choices[i].text)
			require.Equal(t, entry.Choices[i].IDs, r.choices[i].ids)
			require.Equal(t, entry.Choices[i].Logprobs, plainLogprobs(t, r.choices[i].logprobs))
			require.Equal(t, Logprobs(entry.PromptIDs, entry.Choices[i].IDs), entry.Choices[i].Logprobs)
		}
		require.Equal(t, "tool_calls", r.choices[1].finish)
		if stream {
			require.Equal(t, []int{0, 1, 2, 0}, []int{r.chunks[3].Choices[0].Index, r.chunks[4].Choices[0].Index, r.chunks[5].Choices[0].Index, r.chunks[6].Choices[0].Index})
		}
		require.Equal(t, len(entry.Choices[0].IDs)+len(entry.Choices[1].IDs)+len(entry.Choices[2].IDs), r.usage.Completion)
	}
}

func TestHugePromptAndAnswer(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{Default: Script{Turns: []Turn{{Length: 32_000}}, Sampling: Sampling{Drift: true}, Chunks: Chunks{Sizes: []int{40}}}})
	text := strings.Repeat("the end 雪 ", 30_000)
	r := ask(t, url+"/vllm/v1/chat/completions", hello.with(members{"stream": true, "messages": []any{user(text)}}))
	entry := only(t, e)
	require.Greater(t, len(entry.PromptIDs), 200_000)
	require.Equal(t, entry.PromptIDs, r.prompt)
	require.Len(t, r.choices[0].ids, 32_000)
	require.Equal(t, Logprobs(r.prompt, r.choices[0].ids), plainLogprobs(t, r.choices[0].logprobs))
}

// Ten thousand ids, one by one, to two clients at once.
func TestLongStreams(t *testing.T) {
	t.Parallel()
	e, url := server(t, Options{Default: Script{Turns: []Turn{{Length: 10_000}}}})
	done := make(chan *reply)
	began := time.Now()
	for range 2 {
		go func() { done <- ask(t, url+"/vllm/v1/chat/completions", hello.with(members{"stream": true})) }()
	}
	for range 2 {
		r := <-done
		require.Len(t, r.choices[0].ids, 10_000)
		require.Equal(t, 1, r.done)
	}
	t.Logf("%.0f ids per second", 20_000/time.Since(began).Seconds())
	require.Len(t, e.Calls(), 2)
	require.Zero(t, e.Running())
}
