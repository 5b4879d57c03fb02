package generate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/generate"
	"icecore/ingest/gateway/sse"
	"icecore/ingest/gateway/turn"
)

// response is a chunk, or a whole answer.
type response struct {
	Candidates []struct {
		Content struct {
			Parts []part `json:"parts"`
			Role  string `json:"role"`
		} `json:"content"`
		FinishReason string `json:"finishReason"`
		Index        int    `json:"index"`
	} `json:"candidates"`
	Usage   map[string]int64 `json:"usageMetadata"`
	Version string           `json:"modelVersion"`
	ID      string           `json:"responseId"`
	Error   *struct {
		Code            int
		Message, Status string
	} `json:"error"`
}

type part struct {
	Text      *string `json:"text,omitempty"`
	Thought   bool    `json:"thought,omitempty"`
	Signature string  `json:"thoughtSignature,omitempty"`
	Call      *struct {
		ID   string          `json:"id,omitempty"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"functionCall,omitempty"`
}

// client puts candidates together as Google's clients do.
type client struct {
	t      require.TestingT
	parts  map[int][]part // texts of one kind are joined
	finish map[int]string
	usage  map[string]int64
	chunks int
}

func newClient(t require.TestingT) *client {
	return &client{t: t, parts: map[int][]part{}, finish: map[int]string{}}
}

// events reads a stream of events. Google's clients know no comment.
func (c *client) events(raw []byte) {
	r := sse.NewReader(bytes.NewReader(raw), 1<<20)
	require.NotContains(c.t, "\n"+string(raw), "\n:")
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(c.t, err)
		require.NotContains(c.t, string(e.Data), "\n") // nor data of several lines
		var chunk response
		require.NoError(c.t, json.Unmarshal(e.Data, &chunk), "%s", e.Data)
		c.add(chunk)
	}
}

// array reads the whole of a stream that goes as an array.
func (c *client) array(raw []byte) {
	var chunks []response
	require.NoError(c.t, json.Unmarshal(raw, &chunks), "%s", raw)
	for _, chunk := range chunks {
		c.add(chunk)
	}
}

func (c *client) add(chunk response) {
	c.chunks++
	require.Nil(c.t, c.usage, "a chunk after the last")
	for _, candidate := range chunk.Candidates {
		at := candidate.Index
		require.Empty(c.t, c.finish[at], "more of a candidate that has finished")
		require.Equal(c.t, "model", candidate.Content.Role)
		require.NotEmpty(c.t, candidate.Content.Parts)
		for _, p := range candidate.Content.Parts {
			held := c.parts[at]
			if last := len(held) - 1; p.Call == nil && last >= 0 && held[last].Call == nil && held[last].Thought == p.Thought {
				joined := *held[last].Text + *p.Text
				held[last].Text = &joined
				held[last].Signature += p.Signature
				continue
			}
			if p.Call == nil && *p.Text == "" && p.Signature == "" {
				continue
			}
			c.parts[at] = append(held, p)
		}
		c.finish[at] = candidate.FinishReason
	}
	if len(chunk.Candidates) > 0 {
		require.Equal(c.t, answerHead.Model, chunk.Version)
		require.Equal(c.t, answerHead.ID, chunk.ID)
	}
	c.usage = chunk.Usage
}

// answer is what an engine says, and how it ends.
type answer struct {
	deltas []turn.Delta
	ends   []turn.End
	usage  turn.Usage
}

var answerHead = turn.Head{ID: "0190-aa", Model: "gemini-x", TraceIDs: []string{"0190-aa", "0190-bb"}}

// play streams an answer to a client.
func play(t require.TestingT, r *turn.Request, a answer) (*client, []string) {
	c := newClient(t)
	s := generate.Provider{}.Stream(r, answerHead)
	var all []byte
	send := func(more []byte) {
		if all = append(all, more...); !r.Array {
			c.events(more)
		}
	}
	send(s.Heartbeat(nil))
	send(s.Start(nil))
	for _, d := range a.deltas {
		send(s.Delta(nil, d))
		send(s.Heartbeat(nil))
		for i, parts := range c.parts { // what a harness might take for a whole answer
			require.Empty(t, c.finish[i])
			for _, p := range parts {
				require.Nil(t, p.Call, "a call before the end")
			}
		}
	}
	send(s.End(nil, a.ends, a.usage))
	if r.Array {
		c.array(all)
	}
	require.NotNil(t, c.usage)
	return c, s.(turn.Flagger).Flags()
}

// whole gives the same answer in one piece.
func whole(t require.TestingT, r *turn.Request, a answer) (*client, []string) {
	var g turn.Gather
	for _, d := range a.deltas {
		g.Add(d)
	}
	full := &turn.Answer{Head: answerHead, Usage: a.usage}
	for i, end := range a.ends {
		full.Choices = append(full.Choices, turn.Choice{Message: g.Message(i), Refusal: g.Refusal(i), End: end})
	}
	raw, err := generate.Provider{}.Whole(r, full)
	require.NoError(t, err)
	var got response
	require.NoError(t, json.Unmarshal(raw, &got), "%s", raw)
	c := newClient(t)
	c.add(got)
	return c, generate.Provider{}.WholeFlags(r, full)
}
