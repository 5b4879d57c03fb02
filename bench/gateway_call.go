package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// side is one way to the same model: straight to the engine, or through the gateway in
// one API.
type side struct {
	name string
	http *http.Client
	// url of a rollout.
	url func(rollout int64) string
	// members stand in the body beside model, messages and stream.
	members string
	// token marks the events that carry text.
	token string
}

// What an engine is asked for is the same either way: ids and log-probs too, as whoever
// captures calls without a gateway asks for them.
const askIDs = `,"return_token_ids":true,"logprobs":true,"top_logprobs":0,"return_tokens_as_token_ids":true,"stream_options":{"include_usage":true}`

func sidesOf(engine, gateway *server) []side {
	client := func() *http.Client { return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096}} }
	through := func(path string) func(int64) string {
		return func(rollout int64) string {
			return fmt.Sprintf("%s/gateway/bench-%d/v1/%s", gateway.base, rollout, path)
		}
	}
	return []side{
		{"engine", client(), func(int64) string { return engine.base + "/vllm/v1/chat/completions" }, askIDs, `"content":"`},
		{"chat", client(), through("chat/completions"), "", `"content":"`},
		{"messages", client(), through("messages"), `,"max_tokens":1000`, `"text_delta","text":"`},
	}
}

// history is what an agent has behind it when it makes its first call here: some 8 KB.
var history = func() string {
	var b strings.Builder
	b.WriteString(`{"role":"user","content":"Mend the test, please."}`)
	for i := range 20 {
		fmt.Fprintf(&b, `,{"role":"assistant","content":"I look at file %d next, because its test names it."},{"role":"user","content":"%s"}`,
			i, strings.Repeat(fmt.Sprintf("line %d of what the tool said\\n", i), 10))
	}
	return b.String()
}()

// body asks for the next answer in a talk, which is messages in JSON without brackets.
func (s *side) body(model, talk string) []byte {
	return fmt.Appendf(nil, `{"model":%q,"stream":true%s,"messages":[%s]}`, model, s.members, talk)
}

// told is one call as its client saw it.
type told struct {
	first, whole time.Duration // since the request
	gap          time.Duration // mean, between tokens
	tokens       int
	text         []byte // as it stands in JSON
}

// call makes one call and reads its answer to the end.
func (s *side) call(model string, rollout int64, talk string) (told, error) {
	var t told
	req, err := http.NewRequest(http.MethodPost, s.url(rollout), bytes.NewReader(s.body(model, talk)))
	if err != nil {
		return t, fmt.Errorf("call: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := s.http.Do(req)
	if err != nil {
		return t, fmt.Errorf("call: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read whole
	var last time.Duration
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// The scripts have no text that JSON would write in another way.
		_, text, _ := bytes.Cut(lines.Bytes(), []byte(s.token))
		if text, _, _ = bytes.Cut(text, []byte(`"`)); len(text) == 0 {
			continue // another event, or the role alone
		}
		last = time.Since(began)
		if t.tokens == 0 {
			t.first = last
		}
		t.tokens++
		t.text = append(t.text, text...)
	}
	t.whole = time.Since(began)
	if err := lines.Err(); err != nil || resp.StatusCode != http.StatusOK || t.tokens < 2 {
		return t, fmt.Errorf("call: %s, %d tokens: %w", resp.Status, t.tokens, err)
	}
	t.gap = (last - t.first) / time.Duration(t.tokens-1)
	return t, nil
}

// round has agents work at the same time, each in a rollout of its own, whose calls go on
// from one another. It gives what they saw and how long it took. They begin one after the
// other over spread: engines are not asked by all in the same millisecond.
func (s *side) round(model string, agents, calls int, spread time.Duration, next func() int64) ([]told, time.Duration, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all []told
	var failed error
	var mu sync.Mutex
	var wait sync.WaitGroup
	began := time.Now()
	for w := range agents {
		wait.Go(func() {
			time.Sleep(spread * time.Duration(w) / time.Duration(agents))
			rollout, talk := next(), history
			for range calls {
				if ctx.Err() != nil {
					return
				}
				t, err := s.call(model, rollout, talk)
				mu.Lock()
				all = append(all, t)
				if err != nil {
					failed = fmt.Errorf("%s: %w", s.name, err)
					cancel()
				}
				mu.Unlock()
				talk += `,{"role":"assistant","content":"` + string(t.text) + `"},{"role":"user","content":"Go on, please."}`
			}
		})
	}
	wait.Wait()
	return all, time.Since(began), failed
}
