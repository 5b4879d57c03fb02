package chat_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/chat"
	"icecore/ingest/gateway/sse"
	"icecore/ingest/gateway/turn"
)

// answer is what a client makes of an answer, streamed or not.
type answer struct {
	choices []heard
	usage   map[string]any
	done    bool
	failed  map[string]any
}

type heard struct {
	roles                      int
	content, reasoning, refuse string
	calls                      []map[string]string
	finish                     string
	logprobs                   []any
}

type object struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Index          int
		Delta, Message *message
		FinishReason   *string `json:"finish_reason"`
		Logprobs       *struct{ Content []any }
	}
	Usage map[string]any
	Error map[string]any
}

type message struct {
	Role      string
	Content   *string
	Reasoning string `json:"reasoning_content"`
	Refusal   *string
	ToolCalls []struct {
		Index    *int
		ID, Type string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

var head = turn.Head{ID: "0190aaaa-0000-7000-8000-000000000001", Model: "m", Created: 17, TraceIDs: []string{"0190aaaa-0000-7000-8000-000000000001", "0190aaaa-0000-7000-8000-000000000002"}}

// hear reads a stream as a client does, and holds it to the grammar.
func hear(t require.TestingT, r *turn.Request, stream []byte) answer {
	reader := sse.NewReader(bytes.NewReader(stream), 1<<20)
	a := answer{choices: make([]heard, r.Choices())}
	for {
		e, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return a
		}
		require.NoError(t, err)
		require.False(t, a.done, "nothing comes after [DONE]")
		require.Empty(t, e.Name)
		if string(e.Data) == "[DONE]" {
			a.done = true
			continue
		}
		var o object
		require.NoError(t, json.Unmarshal(e.Data, &o), string(e.Data))
		if o.Error != nil {
			a.failed = o.Error
			continue
		}
		require.Equal(t, "chatcmpl-"+head.ID, o.ID)
		require.Equal(t, "chat.completion.chunk", o.Object)
		require.Equal(t, int64(17), o.Created)
		require.Equal(t, r.IncludeUsage, strings.Contains(string(e.Data), `"usage":`))
		if len(o.Choices) == 0 {
			require.Nil(t, a.usage)
			a.usage = o.Usage
			continue
		}
		require.Nil(t, a.usage, "usage is last")
		require.Len(t, o.Choices, 1)
		c := o.Choices[0]
		require.Less(t, c.Index, len(a.choices))
		h := &a.choices[c.Index]
		require.Empty(t, h.finish, "a finish reason is a choice's last word")
		if c.Delta.Role != "" {
			h.roles++
		} else {
			require.Equal(t, 1, h.roles, "the role comes first")
		}
		h.hear(t, c.Delta)
		if c.Logprobs != nil {
			h.logprobs = append(h.logprobs, c.Logprobs.Content...)
		}
		if c.FinishReason != nil {
			h.finish = *c.FinishReason
		}
	}
}

func (h *heard) hear(t require.TestingT, m *message) {
	if m.Content != nil {
		h.content += *m.Content
	}
	h.reasoning += m.Reasoning
	if m.Refusal != nil {
		h.refuse += *m.Refusal
	}
	for i, c := range m.ToolCalls {
		at := i
		if c.Index != nil {
			at = *c.Index
		}
		if at == len(h.calls) {
			require.Equal(t, "function", c.Type)
			require.NotEmpty(t, c.ID)
			h.calls = append(h.calls, map[string]string{"id": c.ID, "name": c.Function.Name, "arguments": ""})
		}
		require.Less(t, at, len(h.calls), "calls begin in order")
		h.calls[at]["arguments"] += c.Function.Arguments
	}
}

func stream(r *turn.Request, deltas []turn.Delta, ends []turn.End, u turn.Usage) []byte {
	s := chat.Provider{}.Stream(r, head)
	out := s.Start(nil)
	for _, d := range deltas {
		out = s.Heartbeat(s.Delta(out, d))
	}
	return s.End(out, ends, u)
}

func usage() turn.Usage {
	prompt, completion := int64(9), int64(3)
	return turn.Usage{Prompt: &prompt, Completion: &completion}
}
