package responses_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/responses"
	"icecore/ingest/gateway/sse"
	"icecore/ingest/gateway/turn"
)

const traceID = "0190aaaa-0000-7000-8000-000000000001"

var head = turn.Head{ID: traceID, Model: "m", Created: 17, TraceIDs: []string{traceID}}

// answer is what a client makes of a stream.
type answer struct {
	kinds    []string
	begun    []string // ids of items, in the order of output_index
	done     []json.RawMessage
	partial  []string // the deltas of each item, one after the other
	final    map[string]json.RawMessage
	ended    string // the event that ended it
	failed   map[string]any
	heard    int // of in_progress
	inFinals []json.RawMessage
}

type event struct {
	Type         string
	Sequence     *int `json:"sequence_number"`
	Response     map[string]json.RawMessage
	Item         json.RawMessage
	OutputIndex  int    `json:"output_index"`
	ContentIndex int    `json:"content_index"`
	ItemID       string `json:"item_id"`
	Delta        string
	Text         string
	Refusal      string
	Arguments    *string
	Input        *string
	Part         map[string]any
}

type item struct {
	ID, Type, Status, Role, Name, Namespace string
	CallID                                  string `json:"call_id"`
	Arguments, Input                        *string
	Encrypted                               string `json:"encrypted_content"`
	Content                                 []struct{ Type, Text, Refusal string }
}

// hear reads a stream as a client does, and holds it to the grammar.
func hear(t require.TestingT, stream []byte) answer {
	reader := sse.NewReader(bytes.NewReader(stream), 1<<24)
	var a answer
	open := map[int]bool{}
	part := "" // what the open part of the item that speaks was told
	for {
		read, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return a
		}
		require.NoError(t, err)
		require.Empty(t, a.ended, "nothing comes after the end")
		var e event
		require.NoError(t, json.Unmarshal(read.Data, &e), string(read.Data))
		require.Equal(t, read.Name, e.Type)
		require.Equal(t, len(a.kinds), *e.Sequence, "numbers rise by one")
		a.kinds = append(a.kinds, e.Type)
		if e.ItemID != "" {
			require.True(t, open[e.OutputIndex], "%s of an item that is not open", e.Type)
			require.Equal(t, a.begun[e.OutputIndex], e.ItemID)
		}
		switch kind := strings.TrimPrefix(e.Type, "response."); kind {
		case "created":
			require.Len(t, a.kinds, 1)
		case "in_progress":
			a.heard++
			require.JSONEq(t, `"in_progress"`, string(e.Response["status"]))
			require.JSONEq(t, `[]`, string(e.Response["output"]))
		case "output_item.added":
			it := parse(t, e.Item)
			require.Equal(t, len(a.begun), e.OutputIndex)
			require.Equal(t, "in_progress", it.Status)
			require.Empty(t, it.Content)
			a.begun = append(a.begun, it.ID)
			a.done = append(a.done, nil)
			a.partial = append(a.partial, "")
			open[e.OutputIndex] = true
		case "content_part.added":
			require.Empty(t, part)
		case "output_text.delta", "reasoning_text.delta", "refusal.delta":
			require.NotEmpty(t, e.Delta)
			part += e.Delta
			a.partial[e.OutputIndex] += e.Delta
		case "output_text.done", "reasoning_text.done", "refusal.done":
			require.Equal(t, part, e.Text+e.Refusal)
		case "content_part.done":
			text, _ := e.Part["text"].(string)
			refusal, _ := e.Part["refusal"].(string)
			require.Equal(t, part, text+refusal)
			part = ""
		case "function_call_arguments.delta", "custom_tool_call_input.delta":
			require.NotEmpty(t, e.Delta)
			a.partial[e.OutputIndex] += e.Delta
		case "function_call_arguments.done":
			require.Equal(t, a.partial[e.OutputIndex], *e.Arguments)
		case "custom_tool_call_input.done":
			require.Equal(t, a.partial[e.OutputIndex], *e.Input)
		case "output_item.done":
			require.True(t, open[e.OutputIndex], "each item is done once")
			delete(open, e.OutputIndex)
			it := parse(t, e.Item)
			require.Equal(t, a.begun[e.OutputIndex], it.ID)
			require.Equal(t, a.partial[e.OutputIndex], it.whole())
			a.done[e.OutputIndex] = e.Item
		case "completed", "incomplete":
			require.Empty(t, open, "every item is done")
			a.ended, a.final = kind, e.Response
			require.JSONEq(t, `"`+kind+`"`, string(e.Response["status"]))
			require.NoError(t, json.Unmarshal(e.Response["output"], &a.inFinals))
			require.Equal(t, len(a.done), len(a.inFinals))
			for i := range a.done {
				require.JSONEq(t, string(a.done[i]), string(a.inFinals[i]), "the same ids and texts in stream and final")
			}
		case "error":
			require.NoError(t, json.Unmarshal(read.Data, &a.failed))
		default:
			require.Fail(t, "unknown event", e.Type)
		}
	}
}

func parse(t require.TestingT, raw json.RawMessage) item {
	var it item
	require.NoError(t, json.Unmarshal(raw, &it))
	return it
}

func (it item) whole() string {
	out := ""
	for _, p := range it.Content {
		out += p.Text + p.Refusal
	}
	if it.Arguments != nil {
		out += *it.Arguments
	}
	if it.Input != nil {
		out += *it.Input
	}
	return out
}

// items are the items that were done.
func (a answer) items(t require.TestingT) []item {
	var all []item
	for _, raw := range a.done {
		all = append(all, parse(t, raw))
	}
	return all
}

func stream(r *turn.Request, deltas []turn.Delta, finish string) (text []byte, flags []string) {
	s := responses.Provider{}.Stream(r, head)
	out := s.Start(nil)
	for _, d := range deltas {
		out = s.Heartbeat(s.Delta(out, d))
	}
	out = s.End(out, []turn.End{{Finish: finish}}, usage())
	f, _ := s.(turn.Flagger)
	return out, f.Flags()
}

func usage() turn.Usage {
	prompt, completion, cached := int64(9), int64(3), int64(4)
	return turn.Usage{Prompt: &prompt, Completion: &completion, Cached: &cached}
}
