package engine_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// A server that answers in one piece what was asked for as a stream is read all the
// same.
func TestWholeAnswerToAStream(t *testing.T) {
	t.Parallel()
	p := serve(t, engine.KindOpenAI, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x","reasoning":"r","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},
			"finish_reason":"tool_calls","token_ids":[1,2]}],"prompt_token_ids":[3],"usage":{"prompt_tokens":1,"completion_tokens":2}}`)
	})
	r := well(t, call(t, one(t, p), ask("hi")))
	require.Equal(t, []turn.Delta{{Reasoning: "r"}, {Text: "x"}, {Calls: []turn.CallDelta{{ID: "c", Name: "f", Arguments: "{}"}}}}, r.deltas)
	require.Equal(t, []int32{1, 2}, r.sampled(0).IDs)
	require.Equal(t, []int32{3}, r.sampled(0).PromptIDs)
	require.Equal(t, []string{"logprobs_missing"}, r.sampled(0).Flags)
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for body, code := range map[string]string{
		"":                                   turn.CodeEngineBroke,
		"<html>":                             turn.CodeEngineBroke,
		"data: {\"choices\":[{]}\n\n":        turn.CodeEngineBroke,
		"event: error\ndata: it broke\n\n":   turn.CodeEngineError,
		"data: {\"error\":\"it broke\"}\n\n": turn.CodeEngineError,
		"data: {\"error\":{\"message\":\"request was aborted\",\"code\":500}}\n\ndata: [DONE]\n\n":         turn.CodeAborted,
		"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"error\"}]}\n\ndata: [DONE]\n\n": turn.CodeEngineError,
		"data: [DONE]\n\n": turn.CodeAborted,
	} {
		p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, body)
		})
		r := call(t, one(t, p), ask("hi"))
		_ = fault(t, r.err, code)
		require.Nil(t, r.sampled(0).IDs)
		require.Empty(t, r.ends)
	}
}

// A choice that nobody asked for is no reason to lose the others.
func TestChoicesNobodyAskedFor(t *testing.T) {
	t.Parallel()
	p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `data: {"choices":[{"index":7,"delta":{"content":"x"}},{"index":-1,"delta":{"content":"x"}},{"index":0,"delta":{"content":"y"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	})
	r := well(t, call(t, one(t, p), ask("hi")))
	require.Equal(t, "y", r.text(0))
	require.Contains(t, r.sampled(0).Flags, "choice_unknown")
	require.Equal(t, []string{"ids_missing", "prompt_ids_missing"}, r.stream.Sampled(5).Flags[1:3])
}

// An engine that describes its requests is streamed from the first call on.
func TestSGLangThatDescribesItself(t *testing.T) {
	t.Parallel()
	e := enginetest.New(enginetest.Options{Seed: 1})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sglang-sglext/openapi.json" {
			_, _ = io.WriteString(w, `{"ChatCompletionRequest":{"properties":{"messages":{},"return_output_ids_in_sglext":{}}}}`)
			return
		}
		e.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p := start(t, engine.Options{Engines: []engine.Config{{URL: server.URL + "/sglang-sglext"}}})
	r := well(t, call(t, one(t, p), ask("hi")))
	entry := e.Calls()[0]
	require.True(t, entry.Stream)
	exact(t, entry, 0, r.sampled(0))
	require.False(t, one(t, p).TokenIn(ask("hi")), "it names no input_ids")
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "vllm", enginetest.Script{Turns: text}, func(o *engine.Options) { o.Engines[0].MaxConcurrent = 40 })
	e := one(t, rig.pool)
	var all sync.WaitGroup
	errs := make(chan error, 120)
	for i := range 120 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
			defer cancel()
			s, err := e.Do(ctx, ask(strings.Repeat("x", i), func(c *engine.Call) { c.TraceIDs = []string{fmt.Sprint("trace-", i)} }))
			if err != nil {
				errs <- err
				return
			}
			defer func() { _ = s.Close() }()
			if i%5 == 0 { // leaves early
				_, _ = s.Next(ctx)
				return
			}
			if r := read(ctx, s); r.err != io.EOF {
				errs <- r.err
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Zero(t, rig.pool.Status()[0].Open)
}

// One answer of 1,000 tokens, all but the network.
func BenchmarkStream(b *testing.B) {
	var pieces [][]byte
	for range 1000 {
		pieces = append(pieces, []byte("data: {\"id\":\"chatcmpl-018f\",\"object\":\"chat.completion.chunk\",\"created\":1764470000,\"model\":\"policy\",\"choices\":[{\"index\":0,"+
			"\"delta\":{\"content\":\" hello\"},\"logprobs\":{\"content\":[{\"token\":\"token_id:14990\",\"logprob\":-0.48721271753311157,"+
			"\"bytes\":[116,111,107,101,110,95,105,100,58,49,52,57,57,48],\"top_logprobs\":[]}]},\"finish_reason\":null,\"token_ids\":[14990]}]}\n\n"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := played(b.Context(), b, engine.KindVLLM, 1, pieces...); len(r.sampled(0).IDs) != 1000 {
			b.Fatal(r.err)
		}
	}
}
