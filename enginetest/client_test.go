package enginetest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// server runs an engine for one test.
func server(t testing.TB, o Options) (*Engine, string) {
	e := New(o)
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	return e, srv.URL
}

// members is a JSON object of a request.
type members map[string]any

// with gives a copy with others added.
func (m members) with(others members) members {
	out := members{}
	for _, from := range []members{m, others} {
		for k, v := range from {
			out[k] = v
		}
	}
	return out
}

func user(text string) members { return members{"role": "user", "content": text} }

var bashTool = members{"type": "function", "function": members{"name": "bash", "description": "Run.",
	"parameters": json.RawMessage(`{"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}`)}}

// hello asks vLLM for everything.
var hello = members{"model": DefaultModel, "messages": []any{user("hello")}, "return_token_ids": true, "logprobs": true, "top_logprobs": 0,
	"return_tokens_as_token_ids": true, "stream_options": members{"include_usage": true}}

// reply is what came back, as a simple client reads it.
type reply struct {
	status  int
	header  http.Header
	raw     string
	broken  error // of the connection
	events  []string
	chunks  []chunk
	done    int
	choices map[int]*heard
	prompt  []int32
	sglext  *ext
	usage   *usage
}

type heard struct {
	role, text, reasoning, finish string
	ids                           []int32
	prompt                        []int32
	logprobs                      []*float32
	tokens                        []string
	calls                         []Call
	callIDs                       []string
}

type ext struct {
	Input  []int32   `json:"input_ids"`
	Output [][]int32 `json:"output_ids"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

type chunk struct {
	Choices []struct {
		Index    int      `json:"index"`
		Delta    *message `json:"delta"`
		Whole    *message `json:"message"`
		Text     string   `json:"text"`
		Finish   string   `json:"finish_reason"`
		IDs      []int32  `json:"token_ids"`
		Prompt   []int32  `json:"prompt_token_ids"`
		Logprobs *struct {
			Content []struct {
				Token   string   `json:"token"`
				Logprob *float32 `json:"logprob"`
			} `json:"content"`
			Values []*float32 `json:"token_logprobs"`
			Tokens []string   `json:"tokens"`
		} `json:"logprobs"`
		Meta *meta `json:"meta_info"`
	} `json:"choices"`
	Prompt   []int32         `json:"prompt_token_ids"`
	Usage    *usage          `json:"usage"`
	Sglext   *ext            `json:"sglext"`
	Metadata json.RawMessage `json:"metadata"`
	Error    json.RawMessage `json:"error"`
}

type meta struct {
	Logprobs [][]any `json:"output_token_logprobs"`
}

type message struct {
	Role             string `json:"role"`
	Content          string `json:"content"`
	Reasoning        string `json:"reasoning"`
	ReasoningContent string `json:"reasoning_content"`
	Calls            []struct {
		Index    int    `json:"index"`
		ID       string `json:"id"`
		Function Call   `json:"function"`
	} `json:"tool_calls"`
}

func post(ctx context.Context, t testing.TB, url string, body any, headers ...string) *reply {
	b, err := json.Marshal(body)
	require.NoError(t, err)
	return send(ctx, t, url, string(b), headers...)
}

func send(ctx context.Context, t testing.TB, url, body string, headers ...string) *reply {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	r := &reply{choices: map[int]*heard{}}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		r.broken = err
		return r
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	r.status, r.header = answer.StatusCode, answer.Header
	raw, err := io.ReadAll(answer.Body)
	r.raw, r.broken = string(raw), err
	r.read(strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream"))
	return r
}

func ask(t testing.TB, url string, body any, headers ...string) *reply {
	return post(t.Context(), t, url, body, headers...)
}

func (r *reply) read(stream bool) {
	if !stream {
		r.take([]byte(r.raw))
		return
	}
	s := bufio.NewScanner(strings.NewReader(r.raw))
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		data, ok := strings.CutPrefix(s.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			r.done++
		default:
			r.events = append(r.events, data)
			r.take([]byte(data))
		}
	}
}

// take adds a chunk or a whole answer. What is no JSON (NaN) is left to the test.
func (r *reply) take(data []byte) {
	var c chunk
	if json.Unmarshal(data, &c) != nil {
		return
	}
	r.chunks = append(r.chunks, c)
	if c.Prompt != nil {
		r.prompt = c.Prompt
	}
	if c.Usage != nil {
		r.usage = c.Usage
	}
	if c.Sglext != nil {
		r.sglext = c.Sglext
	}
	for _, k := range c.Choices {
		h := r.choices[k.Index]
		if h == nil {
			h = &heard{}
			r.choices[k.Index] = h
		}
		h.text += k.Text
		h.ids = append(h.ids, k.IDs...)
		if k.Prompt != nil {
			h.prompt = k.Prompt
		}
		if k.Finish != "" {
			h.finish = k.Finish
		}
		if l := k.Logprobs; l != nil {
			for _, p := range l.Content {
				h.logprobs = append(h.logprobs, p.Logprob)
				h.tokens = append(h.tokens, p.Token)
			}
			h.logprobs = append(h.logprobs, l.Values...)
			h.tokens = append(h.tokens, l.Tokens...)
		}
		for _, m := range []*message{k.Delta, k.Whole} {
			h.message(m)
		}
	}
}

func (h *heard) message(m *message) {
	if m == nil {
		return
	}
	if m.Role != "" {
		h.role = m.Role
	}
	h.text += m.Content
	h.reasoning += m.Reasoning + m.ReasoningContent
	for _, c := range m.Calls {
		if c.ID != "" {
			h.calls = append(h.calls, Call{Name: c.Function.Name})
			h.callIDs = append(h.callIDs, c.ID)
		}
		h.calls[len(h.calls)-1].Arguments += c.Function.Arguments
	}
}
