package continuity

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

func heldOf(id string, n int, messages ...turn.Message) *Held {
	return &Held{TraceID: id, Messages: messages, Tokens: make([]int32, n), PromptLen: n}
}

func ids(matches []*Match) []string {
	out := []string{}
	for _, m := range matches {
		out = append(out, m.Held.TraceID)
	}
	return out
}

func TestCandidatesBestFirst(t *testing.T) {
	t.Parallel()
	m := NewMemory(0)
	sys, a, b, c := said("system", "s"), said("user", "a"), said("assistant", "b"), said("user", "c")
	m.Put("x", heldOf("short", 1, sys, a))
	m.Put("x", heldOf("long", 1, sys, a, b))
	m.Put("x", heldOf("branch", 1, sys, a, said("assistant", "other")))
	other := heldOf("settings", 1, sys, a, b)
	other.ToolsHash = "others"
	m.Put("x", other)
	m.Put("y", heldOf("elsewhere", 1, sys, a, b))
	got := m.Candidates("x", &turn.Request{Messages: []turn.Message{sys, a, b, c}}, "", "", "")
	require.Equal(t, []string{"long", "short", "settings", "branch"}, ids(got))
	require.Equal(t, []int{3, 2, 3, 2}, []int{got[0].Through, got[1].Through, got[2].Through, got[3].Through})
	require.True(t, got[0].MessagesEqual && got[0].SettingsEqual)
	require.False(t, got[2].SettingsEqual)
	require.False(t, got[3].MessagesEqual)
	require.Empty(t, m.Candidates("z", &turn.Request{}, "", "", ""))
}

func TestMessagesAreCompared(t *testing.T) {
	t.Parallel()
	text, empty := "x", ""
	raw := func(s string) turn.Message {
		return turn.Message{Role: "user", Content: []turn.Part{{Text: "see"}, {Raw: json.RawMessage(s)}}}
	}
	call := func(arguments string) turn.Message {
		return turn.Message{Role: "assistant", Null: true, Calls: []turn.Call{{ID: "1", Name: "f", Arguments: arguments}}}
	}
	for name, c := range map[string]struct {
		a, b  turn.Message
		equal bool
	}{
		"null and empty content":  {turn.Message{Null: true}, turn.Message{Content: turn.TextOf("")}, true},
		"text as array":           {said("user", "a"), turn.Message{Role: "user", Content: turn.TextOf("a"), AsArray: true}, true},
		"two parts, one text":     {said("user", "ab"), turn.Message{Role: "user", Content: []turn.Part{{Text: "a"}, {Text: "b"}}}, false},
		"no reasoning and empty":  {turn.Message{}, turn.Message{Reasoning: &empty}, true},
		"reasoning dropped":       {turn.Message{Reasoning: &text}, turn.Message{}, false},
		"reasoning as text":       {turn.Message{Reasoning: &text}, said("", "x"), false},
		"role":                    {said("user", "a"), said("system", "a"), false},
		"white space in a part":   {raw(`{"type":"image_url","n":1}`), raw("{ \"type\": \"image\\u005furl\",\n\"n\": 1 }"), true},
		"key order in a part":     {raw(`{"a":1,"b":2}`), raw(`{"b":2,"a":1}`), false},
		"number in a part":        {raw(`{"a":1.0}`), raw(`{"a":1}`), false},
		"text or number":          {raw(`{"a":"1"}`), raw(`{"a":1}`), false},
		"nesting":                 {raw(`[[1],2]`), raw(`[[1,2]]`), false},
		"no JSON":                 {raw(`{"a":1`), raw(`{"a":1}`), false},
		"raw and text":            {raw(`"x"`), turn.Message{Role: "user", Content: []turn.Part{{Text: "see"}, {Text: `"x"`}}}, false},
		"arguments, white space":  {call(`{"a":1}`), call(`{"a": 1}`), true},
		"arguments, key order":    {call(`{"a":1,"b":2}`), call(`{"b":2,"a":1}`), false},
		"arguments, same string":  {call(`{"a":1`), call(`{"a":1`), true},
		"call answered":           {turn.Message{CallID: "1"}, turn.Message{CallID: "2"}, false},
		"name":                    {turn.Message{Name: "1"}, turn.Message{}, false},
		"other members":           {turn.Message{Extra: map[string]json.RawMessage{"k": json.RawMessage(`1`)}}, turn.Message{}, false},
		"other members, reformed": {turn.Message{Extra: map[string]json.RawMessage{"k": json.RawMessage(`[1,2]`)}}, turn.Message{Extra: map[string]json.RawMessage{"k": json.RawMessage(`[1, 2]`)}}, true},
		"borders":                 {turn.Message{CallID: "ab", Name: "c"}, turn.Message{CallID: "a", Name: "bc"}, false},
	} {
		require.Equal(t, c.equal, sums([]turn.Message{c.a})[0] == sums([]turn.Message{c.b})[0], name)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	m := NewMemory(10_000)
	for i := range 50 {
		name := fmt.Sprint("thread ", i)
		m.Put(name, heldOf("t", 1000, said("user", name)))
		m.Candidates("thread 0", &turn.Request{}, "", "", "") // is used all the time
		_, used := m.Size()
		require.LessOrEqual(t, used, int64(10_000))
	}
	threads, used := m.Size()
	require.Equal(t, 9, threads)
	require.NotEmpty(t, m.Candidates("thread 0", &turn.Request{}, "", "", ""))
	require.Empty(t, m.Candidates("thread 1", &turn.Request{}, "", "", ""))
	require.NotEmpty(t, m.Candidates("thread 49", &turn.Request{}, "", "", ""))
	m.Forget("thread 0")
	m.Forget("no such thread")
	fewer, less := m.Size()
	require.Equal(t, []int64{int64(threads) - 1, used - 1000 - heldCost - sumCost}, []int64{int64(fewer), less})

	m.Put("huge", heldOf("t", 10_001))
	require.Empty(t, m.Candidates("huge", &turn.Request{}, "", "", ""))
	threads, used = m.Size()
	require.Zero(t, threads)
	require.Zero(t, used)
}

func TestAThreadAloneLosesItsOldest(t *testing.T) {
	t.Parallel()
	m := NewMemory(2500)
	for i := range int32(4) {
		h := heldOf(fmt.Sprint(i), 1000)
		h.Tokens[0] = i
		m.Put("x", h)
	}
	require.Equal(t, []string{"3", "2"}, ids(m.Candidates("x", &turn.Request{}, "", "", "")))
	for i := range int32(2 * perThread) {
		m.Put("y", &Held{TraceID: fmt.Sprint(i), Tokens: []int32{i}})
	}
	require.Len(t, m.Candidates("y", &turn.Request{}, "", "", ""), perThread)
}

func TestTheSameTraceIsReplaced(t *testing.T) {
	t.Parallel()
	m := NewMemory(0)
	m.Put("x", heldOf("t", 10))
	m.Put("x", heldOf("t", 20))
	got := m.Candidates("x", &turn.Request{}, "", "", "")
	require.Len(t, got, 1)
	require.Len(t, got[0].Held.Tokens, 20)
	_, used := m.Size()
	require.Equal(t, int64(20+heldCost), used)
}

// A thread of n calls sends its history n times; the ids are held once.
func TestSequencesThatGrowAreHeldOnce(t *testing.T) {
	t.Parallel()
	m := NewMemory(0)
	var tokens []int32
	for i := range int32(5) {
		tokens = append(slices.Clone(tokens), slices.Repeat([]int32{i}, 1000)...)
		m.Put("x", &Held{TraceID: fmt.Sprint(i), Tokens: tokens, PromptLen: len(tokens), Rendered: slices.Clone(tokens)})
	}
	_, used := m.Size()
	require.Equal(t, int64(5000+5*heldCost), used)
	for _, c := range m.Candidates("x", &turn.Request{}, "", "", "") {
		require.Equal(t, tokens[:len(c.Held.Tokens)], c.Held.Tokens)
		require.Nil(t, c.Held.Rendered, "it is the prompt itself")
	}
}

func TestTheCallersMessagesAreNotKept(t *testing.T) {
	t.Parallel()
	m := NewMemory(0)
	h := heldOf("t", 1, said("user", "a"))
	m.Put("x", h)
	require.Nil(t, m.Candidates("x", &turn.Request{}, "", "", "")[0].Held.Messages)
	require.Len(t, h.Messages, 1)
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	m := NewMemory(20_000)
	var trust Trust
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			e := &engine{}
			messages := slices.Clone(history)
			for i := range 20 {
				name := fmt.Sprint("thread ", (g+i)%3)
				h := called(fmt.Sprint(g, i), template{}, messages, answer, "<|im_end|>", smallest)
				m.Put(name, h)
				e.messages = append(slices.Clone(h.Messages), tool)
				found := m.Candidates(name, &turn.Request{Messages: e.messages}, "policy", "tools", "params")
				plan, err := Best(t.Context(), found, e)
				if err != nil || plan.PromptIDs != nil && decodeBytes(plan.PromptIDs) != decodeBytes(plan.Rendered) {
					t.Error("a splice went wrong", err)
				}
				Classify(t.Context(), plan.Rendered, found, e)
				trust.Seen(Source{Name: name}, []string{name}, plan.Rendered, plan.Rendered)
				trust.Trusted(Source{Name: name}, nil)
				messages = e.messages
				if strings.HasSuffix(name, "2") && i == 10 {
					m.Forget(name)
				}
				m.Size()
			}
		})
	}
	all.Wait()
}

func BenchmarkCandidates(b *testing.B) {
	m := NewMemory(0)
	var messages []turn.Message
	for i := range 200 {
		messages = append(messages, said("user", strings.Repeat(fmt.Sprint("line ", i, "\n"), 300)))
	}
	for i := range perThread {
		m.Put("x", heldOf(fmt.Sprint(i), 1, messages[:190+i]...))
	}
	for b.Loop() {
		m.Candidates("x", &turn.Request{Messages: messages}, "", "", "")
	}
}
