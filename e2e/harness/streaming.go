package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"icecore/enginetest"
	"icecore/ingest/gateway/sse"
)

// streamText is said token by token. Each of its tokens adds text.
const streamText = "the ice is read in order and each layer stands on another"

// provider is how a plain client asks for a stream, and what an event adds to the text.
type provider struct {
	path string
	body any
	text func(event []byte) string
}

func ask(model string, more map[string]any) map[string]any {
	body := map[string]any{"model": model, "stream": true}
	maps.Copy(body, more)
	return body
}

func streamModel(api string) string { return "stream-" + strings.ReplaceAll(api, ".", "-") }

var providers = map[string]provider{
	"openai.chat": {
		path: "/v1/chat/completions",
		body: ask(streamModel("openai.chat"), map[string]any{"messages": []any{map[string]string{"role": "user", "content": "Read."}}}),
		text: func(event []byte) string {
			var e struct {
				Choices []struct {
					Delta struct{ Content string }
				}
			}
			if json.Unmarshal(event, &e) != nil || len(e.Choices) == 0 {
				return ""
			}
			return e.Choices[0].Delta.Content
		},
	},
	"openai.responses": {
		path: "/v1/responses",
		body: ask(streamModel("openai.responses"), map[string]any{"input": "Read."}),
		text: func(event []byte) string {
			var e struct{ Type, Delta string }
			if json.Unmarshal(event, &e) != nil || e.Type != "response.output_text.delta" {
				return ""
			}
			return e.Delta
		},
	},
	"anthropic.messages": {
		path: "/v1/messages",
		body: ask(streamModel("anthropic.messages"), map[string]any{"max_tokens": 1000, "messages": []any{map[string]string{"role": "user", "content": "Read."}}}),
		text: func(event []byte) string {
			var e struct {
				Type  string
				Delta struct{ Text string }
			}
			if json.Unmarshal(event, &e) != nil || e.Type != "content_block_delta" {
				return ""
			}
			return e.Delta.Text
		},
	},
	"google.generate": {
		path: "/v1beta/models/" + streamModel("google.generate") + ":streamGenerateContent?alt=sse",
		body: map[string]any{"contents": []any{map[string]any{"role": "user", "parts": []any{map[string]string{"text": "Read."}}}}},
		text: func(event []byte) string {
			var e struct {
				Candidates []struct {
					Content struct{ Parts []struct{ Text string } }
				}
			}
			if json.Unmarshal(event, &e) != nil || len(e.Candidates) == 0 {
				return ""
			}
			text := ""
			for _, p := range e.Candidates[0].Content.Parts {
				text += p.Text
			}
			return text
		},
	},
}

type streamResult struct {
	api    string
	tokens int
	faults []string
}

func (s *streamResult) said() string {
	if len(s.faults) > 0 {
		return "FAULT " + strings.Join(s.faults, "; ")
	}
	return fmt.Sprintf("%d tokens, each seen by the client before the engine let the next one out", s.tokens)
}

func (s *suite) streamAll(ctx context.Context, which func(string) bool) (out []*streamResult) {
	if !which("streaming") {
		return nil
	}
	for _, api := range slices.Sorted(maps.Keys(providers)) {
		res := &streamResult{api: api}
		if err := s.stream(ctx, api, res); err != nil {
			res.faults = append(res.faults, err.Error())
		}
		out = append(out, res)
	}
	return out
}

// stream goes token by token. Its time is a net: a gateway that gathers would wait for
// ever for the token that the engine lets out only behind the one it gathers.
func (s *suite) stream(ctx context.Context, api string, res *streamResult) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var gate enginetest.Gate
	s.engine.Script(streamModel(api), enginetest.Script{Turns: []enginetest.Turn{{Text: streamText}}, Time: enginetest.Time{Gate: &gate}})
	rollout := "stream." + api
	if err := s.server.call(ctx, "PUT", "/v1/rollouts/"+rollout, map[string]string{"harness": "none"}, nil); err != nil {
		return err
	}
	p := providers[api]
	body, err := json.Marshal(p.body)
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.server.base+"/gateway/"+rollout+p.path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req) // the answer's head comes before the first token
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // read whole, or given up
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body) // what could be read says enough
		return fmt.Errorf("stream: %s: %s", resp.Status, text)
	}
	events := sse.NewReader(resp.Body, 1<<20)
	want := ""
	got := ""
	for _, id := range enginetest.Encode(streamText) {
		gate.Step(1)
		for want += enginetest.Token(id); got != want; {
			event, err := events.Next()
			if err != nil {
				return fmt.Errorf("stream: behind %q: %w", got, err)
			}
			if got += p.text(event.Data); !strings.HasPrefix(want, got) {
				return fmt.Errorf("stream: %q, where the engine has let out %q", got, want)
			}
		}
		res.tokens++
	}
	gate.Open()
	for {
		if _, err := events.Next(); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("stream: at its end: %w", err)
		}
	}
}
