package apptest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// api is one of the four APIs, as a small harness speaks it.
type api struct {
	name string
	path func(stream bool) string
	// turn is a request with the history so far; nil: its beginning.
	turn func(history []any, stream bool) object
	// heard reads an answer, whole or streamed, as items for the history.
	heard func(t *testing.T, body []byte, stream bool) heardAnswer
	// result is the tool's, as the next item of the history.
	result func(callID, text string) any
	// sameText: what comes back renders as it was sampled. Where arguments travel as
	// objects they are written anew.
	sameText bool
}

// heardAnswer is what a harness makes of an answer.
type heardAnswer struct {
	items                   []any
	reasoning, text         string
	callID, tool, arguments string
	finish                  string
	in, out                 int
}

var bashSchema = object{"type": "object", "properties": object{"command": object{"type": "string"}}, "required": []string{"command"}}

const question = "what is in this directory?"

// num reads a count, however it was decoded.
func num(v any) int {
	switch n := v.(type) {
	case float64:
		return int(n)
	case json.Number:
		i, _ := n.Int64() // what is none counts nothing
		return int(i)
	}
	return 0
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

func parse(t *testing.T, raw string) (out object) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(raw), &out), "%.300s", raw)
	return out
}

// apis are the four.
var apis = []api{
	{name: "openai.chat", sameText: true,
		path: func(bool) string { return "v1/chat/completions" },
		turn: func(history []any, stream bool) object {
			return object{"model": "gpt-5", "stream": stream, "temperature": 0.5, "messages": append([]any{object{"role": "user", "content": question}}, history...),
				"stream_options": object{"include_usage": true}, "tools": []any{object{"type": "function", "function": object{"name": "bash", "parameters": bashSchema}}}}
		},
		heard:  heardChat,
		result: func(id, text string) any { return object{"role": "tool", "tool_call_id": id, "content": text} }},
	{name: "openai.responses", sameText: true,
		path: func(bool) string { return "v1/responses" },
		turn: func(history []any, stream bool) object {
			return object{"model": "gpt-5", "stream": stream, "temperature": 0.5, "store": false, "include": []string{"reasoning.encrypted_content"},
				"input": append([]any{object{"role": "user", "content": question}}, history...),
				"tools": []any{object{"type": "function", "name": "bash", "strict": false, "parameters": bashSchema}}}
		},
		heard: heardResponses,
		result: func(id, text string) any {
			return object{"type": "function_call_output", "call_id": id, "output": text}
		}},
	{name: "anthropic.messages",
		path: func(bool) string { return "v1/messages" },
		turn: func(history []any, stream bool) object {
			return object{"model": "claude-x", "stream": stream, "temperature": 0.5, "max_tokens": 4000, "messages": append([]any{object{"role": "user", "content": question}}, history...),
				"tools": []any{object{"name": "bash", "input_schema": bashSchema}}}
		},
		heard: heardMessages,
		result: func(id, text string) any {
			return object{"role": "user", "content": []any{object{"type": "tool_result", "tool_use_id": id, "content": text}}}
		}},
	{name: "google.generate",
		path: func(stream bool) string {
			if stream {
				return "v1beta/models/gemini-x:streamGenerateContent?alt=sse"
			}
			return "v1beta/models/gemini-x:generateContent"
		},
		turn: func(history []any, _ bool) object {
			return object{"contents": append([]any{object{"role": "user", "parts": []any{object{"text": question}}}}, history...),
				"generationConfig": object{"temperature": 0.5, "thinkingConfig": object{"includeThoughts": true}},
				"tools":            []any{object{"functionDeclarations": []any{object{"name": "bash", "parametersJsonSchema": bashSchema}}}}}
		},
		heard: heardGenerate,
		result: func(_, text string) any {
			return object{"role": "user", "parts": []any{object{"functionResponse": object{"name": "bash", "response": object{"output": text}}}}}
		}},
}

func heardChat(t *testing.T, body []byte, stream bool) (h heardAnswer) {
	if !stream {
		var a struct {
			Choices []struct {
				Message object
				Finish  string `json:"finish_reason"`
			}
			Usage object
		}
		require.NoError(t, json.Unmarshal(body, &a))
		m := a.Choices[0].Message
		h = heardAnswer{items: []any{m}, finish: a.Choices[0].Finish, reasoning: str(m["reasoning_content"]), text: str(m["content"]),
			in: num(a.Usage["prompt_tokens"]), out: num(a.Usage["completion_tokens"])}
		if calls, _ := m["tool_calls"].([]any); len(calls) > 0 {
			c := calls[0].(object)
			f := c["function"].(object)
			h.callID, h.tool, h.arguments = str(c["id"]), str(f["name"]), str(f["arguments"])
		}
		return h
	}
	events := eventsOf(body)
	require.Equal(t, "[DONE]", events[len(events)-1].data)
	for _, e := range events[:len(events)-1] {
		chunk := parse(t, e.data)
		if u, ok := chunk["usage"].(object); ok {
			h.in, h.out = num(u["prompt_tokens"]), num(u["completion_tokens"])
		}
		for _, c := range chunk["choices"].([]any) {
			c := c.(object)
			if f := str(c["finish_reason"]); f != "" {
				require.Empty(t, h.finish, "one reason")
				h.finish = f
			}
			d := c["delta"].(object)
			h.reasoning += str(d["reasoning_content"])
			h.text += str(d["content"])
			calls, _ := d["tool_calls"].([]any)
			for _, call := range calls {
				call := call.(object)
				f := call["function"].(object)
				h.callID, h.tool, h.arguments = h.callID+str(call["id"]), h.tool+str(f["name"]), h.arguments+str(f["arguments"])
			}
		}
	}
	m := object{"role": "assistant", "content": h.text, "reasoning_content": h.reasoning}
	if h.callID != "" {
		m["tool_calls"] = []any{object{"id": h.callID, "type": "function", "function": object{"name": h.tool, "arguments": h.arguments}}}
	}
	h.items = []any{m}
	return h
}

func heardResponses(t *testing.T, body []byte, stream bool) (h heardAnswer) {
	response := object{}
	if !stream {
		response = parse(t, string(body))
	}
	var done []any
	for n, e := range eventsOf(body) {
		if !stream {
			break
		}
		d := parse(t, e.data)
		require.Equal(t, e.name, d["type"])
		require.Equal(t, n, num(d["sequence_number"]))
		switch e.name {
		case "response.output_item.done":
			done = append(done, d["item"])
		case "response.completed":
			response = d["response"].(object)
		}
	}
	require.Equal(t, "completed", response["status"])
	h.items = response["output"].([]any)
	if stream {
		require.Equal(t, done, h.items, "each item was told whole, as the end repeats it")
	}
	for _, item := range h.items {
		item := item.(object)
		switch item["type"] {
		case "reasoning":
			require.NotEmpty(t, item["encrypted_content"])
			h.reasoning += str(item["content"].([]any)[0].(object)["text"])
		case "message":
			h.text += str(item["content"].([]any)[0].(object)["text"])
		case "function_call":
			h.callID, h.tool, h.arguments = str(item["call_id"]), str(item["name"]), str(item["arguments"])
		}
	}
	u := response["usage"].(object)
	h.in, h.out = num(u["input_tokens"]), num(u["output_tokens"])
	if h.finish = "stop"; h.callID != "" {
		h.finish = "tool_calls"
	}
	return h
}

func heardMessages(t *testing.T, body []byte, stream bool) (h heardAnswer) {
	var blocks []any
	stop, usage := "", object{}
	if !stream {
		a := parse(t, string(body))
		blocks, stop, usage = a["content"].([]any), str(a["stop_reason"]), a["usage"].(object)
	}
	arguments := map[int]string{}
	for n, e := range eventsOf(body) {
		if !stream {
			break
		}
		d := parse(t, e.data)
		require.Equal(t, e.name, d["type"])
		require.Equal(t, n == 0, e.name == "message_start")
		at := num(d["index"])
		switch e.name {
		case "content_block_start":
			require.Len(t, blocks, at)
			blocks = append(blocks, d["content_block"])
		case "content_block_delta":
			b, delta := blocks[at].(object), d["delta"].(object)
			for _, part := range []string{"text", "thinking", "signature"} {
				if more := str(delta[part]); more != "" {
					b[part] = str(b[part]) + more
				}
			}
			arguments[at] += str(delta["partial_json"])
		case "content_block_stop":
			if b := blocks[at].(object); b["type"] == "tool_use" {
				b["input"] = parse(t, arguments[at])
			}
		case "message_delta":
			stop, usage = str(d["delta"].(object)["stop_reason"]), d["usage"].(object)
		}
	}
	for _, b := range blocks {
		b := b.(object)
		switch b["type"] {
		case "thinking":
			require.NotEmpty(t, b["signature"])
			h.reasoning += str(b["thinking"])
		case "text":
			h.text += str(b["text"])
		case "tool_use":
			h.callID, h.tool, h.arguments = str(b["id"]), str(b["name"]), string(encode(b["input"]))
		}
	}
	h.items = []any{object{"role": "assistant", "content": blocks}}
	h.finish = map[string]string{"end_turn": "stop", "tool_use": "tool_calls"}[stop]
	h.in, h.out = num(usage["input_tokens"]), num(usage["output_tokens"])
	return h
}

func heardGenerate(t *testing.T, body []byte, stream bool) (h heardAnswer) {
	chunks := []object{}
	if stream {
		for _, e := range eventsOf(body) {
			chunks = append(chunks, parse(t, e.data))
		}
	} else {
		chunks = append(chunks, parse(t, string(body)))
	}
	var parts []any
	for n, chunk := range chunks {
		c := chunk["candidates"].([]any)[0].(object)
		require.Equal(t, n == len(chunks)-1, str(c["finishReason"]) == "STOP")
		content, _ := c["content"].(object)
		more, _ := content["parts"].([]any)
		for _, p := range more {
			p := p.(object)
			parts = append(parts, p)
			call, _ := p["functionCall"].(object)
			switch {
			case p["thought"] == true:
				h.reasoning += str(p["text"])
			case call != nil:
				h.callID, h.tool, h.arguments = str(call["id"]), str(call["name"]), string(encode(call["args"]))
			default:
				h.text += str(p["text"])
			}
		}
		if u, ok := chunk["usageMetadata"].(object); ok {
			h.in = num(u["promptTokenCount"])
			h.out = num(u["candidatesTokenCount"]) + num(u["thoughtsTokenCount"])
		}
	}
	h.items = []any{object{"role": "model", "parts": parts}}
	if h.finish = "stop"; h.tool != "" {
		h.finish = "tool_calls"
	}
	h.text = strings.TrimPrefix(h.text, "\n\n")
	return h
}
