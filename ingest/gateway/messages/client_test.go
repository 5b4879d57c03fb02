package messages_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/messages"
	"icecore/ingest/gateway/sse"
	"icecore/ingest/gateway/turn"
)

// message is an answer as a client puts it together.
type message struct {
	ID           string    `json:"id"`
	Type         string    `json:"type"`
	Role         string    `json:"role"`
	Model        string    `json:"model"`
	Content      []content `json:"content"`
	StopReason   *string   `json:"stop_reason"`
	StopSequence *string   `json:"stop_sequence"`
	Usage        usage     `json:"usage"`
}

type usage struct {
	Input  *int64 `json:"input_tokens"`
	Cached *int64 `json:"cache_read_input_tokens"`
	Output *int64 `json:"output_tokens"`
}

type content struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  string          `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`

	partial string
	closed  bool
}

// client reads a stream as strictly as the strictest of clients.
type client struct {
	t       require.TestingT
	message *message
	open    bool // a block
	done    bool
	pings   int
	failed  string
	events  []string
}

func (c *client) read(raw []byte) {
	r := sse.NewReader(bytes.NewReader(raw), 1<<20)
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(c.t, err)
		c.event(e.Name, e.Data)
	}
}

func (c *client) event(name string, data []byte) {
	var e struct {
		Type    string   `json:"type"`
		Message *message `json:"message"`
		Index   *int     `json:"index"`
		Block   *content `json:"content_block"`
		Delta   *struct {
			Type         string  `json:"type"`
			Text         *string `json:"text"`
			Thinking     *string `json:"thinking"`
			Signature    *string `json:"signature"`
			Partial      *string `json:"partial_json"`
			StopReason   *string `json:"stop_reason"`
			StopSequence *string `json:"stop_sequence"`
		} `json:"delta"`
		Usage *usage `json:"usage"`
		Error *struct{ Type, Message string }
	}
	require.NoError(c.t, json.Unmarshal(data, &e), "%s", data)
	require.Equal(c.t, name, e.Type)
	require.False(c.t, c.done, "an event after the end")
	c.events = append(c.events, name)
	if name != "message_start" && name != "error" {
		require.NotNil(c.t, c.message, "%s before message_start", name)
	}
	switch name {
	case "message_start":
		require.Nil(c.t, c.message, "message_start twice")
		require.Empty(c.t, e.Message.Content)
		require.Nil(c.t, e.Message.StopReason)
		require.NotNil(c.t, e.Message.Usage.Input)
		c.message = e.Message
	case "content_block_start":
		require.False(c.t, c.open, "a block in a block")
		require.Len(c.t, c.message.Content, *e.Index)
		require.Empty(c.t, e.Block.Text+e.Block.Thinking)
		c.message.Content = append(c.message.Content, *e.Block)
		c.open = true
	case "content_block_delta":
		require.True(c.t, c.open)
		require.Equal(c.t, len(c.message.Content)-1, *e.Index)
		b := &c.message.Content[*e.Index]
		switch e.Delta.Type {
		case "text_delta":
			require.Equal(c.t, "text", b.Type)
			b.Text += *e.Delta.Text
		case "thinking_delta":
			require.Equal(c.t, "thinking", b.Type)
			require.Empty(c.t, b.Signature)
			b.Thinking += *e.Delta.Thinking
		case "signature_delta":
			require.Equal(c.t, "thinking", b.Type)
			b.Signature += *e.Delta.Signature
		case "input_json_delta":
			require.Equal(c.t, "tool_use", b.Type)
			b.partial += *e.Delta.Partial
		default:
			require.Fail(c.t, "a delta of type "+e.Delta.Type)
		}
	case "content_block_stop":
		require.True(c.t, c.open)
		require.Equal(c.t, len(c.message.Content)-1, *e.Index)
		c.open = false
		b := &c.message.Content[*e.Index]
		b.closed = true
		if b.Type == "tool_use" { // as harnesses do
			if b.Input = json.RawMessage(b.partial); !json.Valid(b.Input) {
				b.Input = json.RawMessage("{}")
			}
		}
	case "message_delta":
		require.False(c.t, c.open)
		c.message.StopReason, c.message.StopSequence = e.Delta.StopReason, e.Delta.StopSequence
		c.message.Usage = *e.Usage
	case "message_stop":
		require.NotNil(c.t, c.message.StopReason)
		c.done = true
	case "ping":
		c.pings++
	case "error":
		c.failed = e.Error.Type + ": " + e.Error.Message
	default:
		require.Fail(c.t, "an event "+name)
	}
}

// answer is what an engine says, and how it ends.
type answer struct {
	deltas []turn.Delta
	end    turn.End
	usage  turn.Usage
}

var answerHead = turn.Head{ID: "0190-aa", Model: "claude-x", TraceIDs: []string{"0190-aa"}}

// play streams an answer to a client.
func play(t require.TestingT, r *turn.Request, a answer) (*client, []string) {
	c := &client{t: t}
	s := messages.Provider{}.Stream(r, answerHead)
	c.read(s.Start(nil))
	for _, d := range a.deltas {
		c.read(s.Delta(nil, d))
	}
	require.False(t, c.done)
	if n := len(c.message.Content); n > 0 {
		require.False(t, c.message.Content[n-1].closed, "the last block was closed before the end")
	}
	c.read(s.End(nil, []turn.End{a.end}, a.usage))
	require.True(t, c.done)
	return c, s.(turn.Flagger).Flags()
}

// whole gives the same answer in one piece.
func whole(t require.TestingT, r *turn.Request, a answer) (message, []string) {
	var g turn.Gather
	for _, d := range a.deltas {
		g.Add(d)
	}
	full := &turn.Answer{Head: answerHead, Usage: a.usage, Choices: []turn.Choice{{Message: g.Message(0), Refusal: g.Refusal(0), End: a.end}}}
	raw, err := messages.Provider{}.Whole(r, full)
	require.NoError(t, err)
	var m message
	require.NoError(t, json.Unmarshal(raw, &m), "%s", raw)
	return m, messages.Provider{}.WholeFlags(r, full)
}
