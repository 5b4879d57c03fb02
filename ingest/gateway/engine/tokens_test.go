package engine_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

func withParsers(c *engine.Call) {
	c.ReasoningParser, c.ToolParser = "think", "hermes"
	c.Request.Tools = []turn.Tool{shell}
	most := int64(1000)
	c.Request.MaxTokens = &most
}

func TestTokenTools(t *testing.T) {
	t.Parallel()
	for _, face := range []string{"vllm", "sglang-0.5.13"} {
		t.Run(face, func(t *testing.T) {
			t.Parallel()
			rig := setUp(t, face, enginetest.Script{Server: enginetest.Server{TokenizeMessages: true}})
			e := one(t, rig.pool)
			thought := "so it is"
			c := ask("hi there <|im_end|>", withParsers)
			c.Request.Messages = append(c.Request.Messages,
				turn.Message{Role: "assistant", Reasoning: &thought, Content: []turn.Part{{Text: "Yes."}}},
				turn.Message{Role: "user", Content: []turn.Part{{Text: "And?"}}})
			ids, err := e.Render(t.Context(), c)
			require.NoError(t, err)
			well(t, call(t, e, c))
			require.Equal(t, rig.last().PromptIDs, ids)
			text, err := e.Detokenize(t.Context(), "policy", ids)
			require.NoError(t, err)
			require.Contains(t, text, "<|im_start|>user\nhi there")
			require.Contains(t, text, thought)
			again, err := e.Tokenize(t.Context(), "policy", text)
			require.NoError(t, err)
			require.Equal(t, enginetest.Encode(text), again)
		})
	}
}

func TestEnginesWithoutTokenTools(t *testing.T) {
	t.Parallel()
	for face, script := range map[string]enginetest.Script{
		"plain": {}, "vllm": {Server: enginetest.Server{NoTokenize: true}}, "sglang-0.5.13": {}} {
		rig := setUp(t, face, script)
		e := one(t, rig.pool)
		for range 2 {
			_, err := e.Render(t.Context(), ask("hi"))
			require.ErrorIs(t, err, engine.ErrNone, face)
		}
		_, err := e.Tokenize(t.Context(), "policy", "x")
		_, err2 := e.Detokenize(t.Context(), "policy", []int32{65})
		if face == "sglang-0.5.13" { // it takes text, and no messages
			require.NoError(t, err)
			require.NoError(t, err2)
			continue
		}
		require.ErrorIs(t, err, engine.ErrNone)
		require.ErrorIs(t, err2, engine.ErrNone)
	}
}

// Ids go in as they are, in another tokenisation than the engine's own, and the answer
// is the one that chat would have given.
func TestTokenIn(t *testing.T) {
	t.Parallel()
	script := enginetest.Script{Turns: []enginetest.Turn{{Reasoning: "hm", Text: "Let me look.",
		Calls: []enginetest.Call{{Name: "bash", Arguments: `{"command": "ls"}`}}}}}
	for _, face := range []string{"vllm", "sglang-0.5.13", "sglang-30917", "sglang-sglext"} {
		t.Run(face, func(t *testing.T) {
			t.Parallel()
			rig := setUp(t, face, script)
			e := one(t, rig.pool)
			c := ask("hi", withParsers)
			require.True(t, e.TokenIn(c))
			plain := well(t, call(t, e, c))
			text := enginetest.Decode(rig.last().PromptIDs)
			drifted := enginetest.EncodeDrifting(text, 7)
			require.NotEqual(t, rig.last().PromptIDs, drifted)
			for range 3 {
				c = ask("hi", withParsers, func(c *engine.Call) { c.PromptIDs = drifted })
				r := well(t, call(t, e, c))
				require.Equal(t, drifted, r.sampled(0).PromptIDs)
				exact(t, rig.last(), 0, r.sampled(0))
				want, got := plain.gather.Message(0), r.gather.Message(0)
				require.Equal(t, trim(*want.Reasoning), trim(*got.Reasoning))
				require.Equal(t, trim(want.Text()), trim(got.Text()))
				require.Len(t, got.Calls, 1)
				require.Equal(t, want.Calls[0].Arguments, got.Calls[0].Arguments)
				require.Equal(t, plain.ends, r.ends)
			}
		})
	}
}

func TestTokenInThatIsNotHonoured(t *testing.T) {
	t.Parallel()
	for _, face := range []string{"vllm", "sglang-0.5.13"} {
		rig := setUp(t, face, enginetest.Script{Server: enginetest.Server{NoTokenIn: true}})
		e := one(t, rig.pool)
		c := ask("hi", withParsers, func(c *engine.Call) { c.PromptIDs = []int32{65, 66, 67} })
		require.True(t, e.TokenIn(c))
		r := well(t, call(t, e, c))
		require.Contains(t, r.sampled(0).Flags, "prompt_ids_differ")
		if face == "vllm" { // it said so, and was asked by messages
			require.Contains(t, r.sampled(0).Flags, "token_in_refused")
		}
		require.Equal(t, rig.last().PromptIDs, r.sampled(0).PromptIDs)
		require.False(t, e.TokenIn(c), "it is remembered")
	}
}

func TestWhereTokenInCannotBe(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "vllm", enginetest.Script{})
	e := one(t, rig.pool)
	for name, change := range map[string]func(*engine.Call){
		"an image":            func(c *engine.Call) { c.Request.Messages[0].Content = []turn.Part{{Raw: json.RawMessage(`{}`)}} },
		"a call that is due":  func(c *engine.Call) { c.Request.Choice.Mode = "required" },
		"no parser for calls": func(c *engine.Call) { c.ToolParser = "" },
		"no parser at all":    func(c *engine.Call) { c.ReasoningParser = "" },
		"one nobody knows":    func(c *engine.Call) { c.ToolParser = "x" },
		"log-probs to show":   func(c *engine.Call) { c.Request.Logprobs = true },
	} {
		require.False(t, e.TokenIn(ask("hi", withParsers, change)), name)
	}
	require.True(t, e.TokenIn(ask("hi", withParsers, func(c *engine.Call) { c.Request.MaxTokens = nil })), "the length is known")
	require.False(t, one(t, setUp(t, "plain", enginetest.Script{}).pool).TokenIn(ask("hi", withParsers)))
}

func TestVersions(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "vllm", enginetest.Script{Weights: enginetest.Weights{Header: "X-Version"}},
		func(o *engine.Options) { o.Engines[0].VersionHeader = "X-Version" })
	e := one(t, rig.pool)
	n, text := e.Version(t.Context(), 0)
	require.Nil(t, n)
	require.Equal(t, "default", text)
	rig.SetVersion("41")
	n, _ = e.Version(t.Context(), soon)
	require.Nil(t, n, "it is not asked again so soon")
	n, _ = e.Version(t.Context(), 0)
	require.EqualValues(t, 41, *n)
	rig.SetVersion("42")
	r := well(t, call(t, e, ask("hi")))
	require.Equal(t, "42", r.sampled(0).Told)
	n, _ = e.Version(t.Context(), soon)
	require.EqualValues(t, 42, *n, "the header told")

	// A server without the route is asked once.
	rig = setUp(t, "vllm", enginetest.Script{Server: enginetest.Server{NoDev: true}})
	e = one(t, rig.pool)
	for range 3 {
		n, text = e.Version(t.Context(), 0)
		require.Nil(t, n)
		require.Empty(t, text)
	}
}

// Who says nothing of how long an answer may be, as Codex, gets what fits, also of an
// adapter, which vLLM lists without a length, and of one that it has not listed yet.
func TestTokenInWithoutMaxTokens(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sent map[string]any
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"id":"base","max_model_len":4096},{"id":"adapter","parent":"base","max_model_len":null}]}`)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewDecoder(r.Body).Decode(&sent)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"text":"x","prompt_token_ids":[65,66],"token_ids":[120],"finish_reason":"stop"}],"usage":{}}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	names := []string{"base", "adapter", "newer"}
	p := start(t, engine.Options{Engines: []engine.Config{{URL: server.URL, Kind: engine.KindVLLM, Models: names}}})
	for _, name := range names {
		e, err := p.Pick(name, "x")
		require.NoError(t, err)
		c := ask("AB", withParsers, func(c *engine.Call) {
			c.Model, c.Request.MaxTokens, c.PromptIDs = name, nil, []int32{65, 66}
		})
		require.True(t, e.TokenIn(c), name)
		well(t, call(t, e, c))
		mu.Lock()
		require.EqualValues(t, 4094, sent["max_tokens"], name)
		mu.Unlock()
	}
}
