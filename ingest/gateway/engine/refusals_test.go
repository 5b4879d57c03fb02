package engine_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		status   int
		body     string
		header   string
		code     string
		out      int
		message  string
		after    time.Duration
		silentOn string
	}{
		"the request":      {status: 400, body: `{"error":{"message":"max_tokens is too large","type":"BadRequestError","code":400}}`, code: "invalid_request", out: 400, message: "max_tokens is too large"},
		"older vLLM":       {status: 400, body: `{"object":"error","message":"too long","code":400}`, code: "invalid_request", out: 400, message: "too long"},
		"FastAPI":          {status: 422, body: `{"detail":[{"loc":["body","messages"],"msg":"Field required"}]}`, code: "invalid_request", out: 400, message: "Field required"},
		"the credential":   {status: 401, body: `{"error":"you sent sk-secret"}`, code: "engine_error", out: 502, message: "credential", silentOn: "you sent"},
		"forbidden":        {status: 403, body: `nope`, code: "engine_error", out: 502, message: "credential"},
		"no such model":    {status: 404, body: `{"error":{"message":"The model does not exist"}}`, code: "unknown_model", out: 404, message: "does not exist"},
		"no such route":    {status: 404, body: `{"detail":"Not Found"}`, code: "engine_error", out: 502, message: "404"},
		"too many":         {status: 429, body: `{"error":{"message":"slow down"}}`, header: "7", code: "overloaded", out: 503, message: "overloaded", after: 7 * time.Second},
		"too many, silent": {status: 429, code: "overloaded", out: 503, message: "overloaded", after: time.Second},
		"529":              {status: 529, body: "x", code: "overloaded", out: 503, message: "overloaded", after: time.Second},
		"not ready":        {status: 503, body: "loading", code: "overloaded", out: 503, message: "loading", after: time.Second},
		"a page":           {status: 502, body: "<html><head><title>Bad &amp; gateway</title></head><body>" + strings.Repeat("x", 9000), code: "engine_error", out: 502, message: `a page with the title "Bad & gateway"`, silentOn: "xxx"},
		"broken inside":    {status: 500, body: strings.Repeat("long ", 10000), code: "engine_error", out: 502, message: "long"},
		"a redirect":       {status: 307, header: "http://elsewhere/", code: "engine_error", out: 502, message: "redirect"},
		"in its own time":  {status: 504, code: "timeout", out: 504, message: "504"},
		"too large":        {status: 413, code: "too_large", out: 413, message: "large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				w.Header().Set("Retry-After", row.header)
				w.Header().Set("Location", row.header)
				w.WriteHeader(row.status)
				_, _ = io.WriteString(w, row.body)
			})
			_, err := one(t, p).Do(t.Context(), ask("hi"))
			f := fault(t, err, row.code)
			require.Equal(t, row.out, f.Status)
			require.Contains(t, f.Message, row.message)
			require.Equal(t, row.after, f.RetryAfter)
			require.Less(t, len(f.Message), 2500)
			require.NotContains(t, f.Message, "sk-secret")
			if row.silentOn != "" {
				require.NotContains(t, f.Message, row.silentOn)
			}
			require.EqualValues(t, 1, calls.Load(), "nothing is asked again")
			require.Zero(t, p.Status()[0].Open)
		})
	}
}

// A 400 is taken to be about our members only where it says so, and what was learnt is
// kept only where it helped.
func TestWhatA400IsAbout(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		kind, says string
		refuses    string // a member that brings the 400; empty: every request
		calls      int
		ok         bool
	}{
		"a member that is named":       {engine.KindOpenAI, "Unknown parameter: 'return_token_ids'.", `"return_token_ids"`, 2, true},
		"one that is not named":        {engine.KindOpenAI, "Extra inputs are not permitted: unexpected field", `"return_token_ids"`, 2, true},
		"usage in a stream":            {engine.KindVLLM, "stream_options is not allowed", `"stream_options"`, 2, true},
		"streaming":                    {engine.KindOpenAI, "stream is not supported by this model", `"stream":true`, 2, true},
		"the harness's own":            {engine.KindVLLM, "messages: the last must be of the user", "", 1, false},
		"a field of the harness's own": {engine.KindOpenAI, "unknown field 'thinking'", "", 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			p := serve(t, row.kind, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				body, _ := io.ReadAll(r.Body)
				if bytes.Contains(body, []byte(row.refuses)) {
					w.WriteHeader(http.StatusBadRequest)
					_, _ = fmt.Fprintf(w, `{"error":{"message":%q}}`, row.says)
					return
				}
				if bytes.Contains(body, []byte(`"stream":true`)) {
					_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
					return
				}
				_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"completion_tokens":1}}`)
			})
			e := one(t, p)
			r := call(t, e, ask("hi"))
			require.EqualValues(t, row.calls, calls.Load())
			if !row.ok {
				f := fault(t, r.err, turn.CodeInvalidRequest)
				require.Equal(t, row.says, f.Message)
				return
			}
			well(t, r)
			require.Equal(t, "x", r.text(0))
			well(t, call(t, e, ask("hi")))
			require.EqualValues(t, row.calls+1, calls.Load(), "it is remembered")
		})
	}
}

// No credential is in an error, a log or a status, whatever an engine echoes.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	const key, password = "sk-very-secret", "hunter2-secret"
	basic := base64.StdEncoding.EncodeToString([]byte("me:" + password))
	var log bytes.Buffer
	echo := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "you sent "+r.Header.Get("Authorization"))
	}
	var shown strings.Builder
	for _, with := range []string{"key", "url", "nobody"} {
		p := serve(t, engine.KindVLLM, echo, func(o *engine.Options) {
			c := &o.Engines[0]
			o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			if with == "key" {
				c.Key = key
			}
			c.URL = strings.Replace(c.URL, "http://", "http://me:"+password+"@", 1)
			if with == "nobody" {
				o.Engines = append(o.Engines, engine.Config{URL: "http://me:" + password + "@127.0.0.1:1/v1", Key: key, Models: []string{"policy"}})
			}
		})
		_, err := one(t, p).Do(t.Context(), ask("hi"))
		f := fault(t, err, turn.CodeEngineError)
		require.Contains(t, f.Message, "[credential]")
		fmt.Fprintf(&shown, "%v %+v %+v\n", err, f, p.Status())
		p.Close()
	}
	_, err := engine.New(engine.Options{Engines: []engine.Config{{URL: "http://me:" + password + "@host:port"}}})
	require.Error(t, err)
	all := shown.String() + log.String() + err.Error()
	for _, secret := range []string{key, password, basic} {
		require.NotContains(t, all, secret)
	}
	require.Contains(t, log.String(), "engine is up")
}

func TestConfigurationsThatAreWrong(t *testing.T) {
	t.Parallel()
	for want, engines := range map[string][]engine.Config{
		"engines[0]: url must begin":    {{URL: "localhost:8000"}},
		"engines[1]: name \"a\"":        {{URL: "http://a", Name: "a"}, {URL: "http://b", Name: "a"}},
		"kind \"tgi\"":                  {{URL: "http://a", Kind: "tgi"}},
		"max_concurrent is negative":    {{URL: "http://a", MaxConcurrent: -1}},
		"must have no query":            {{URL: "http://a?key=sk"}},
		"engines[0]: url is not a URL":  {{URL: "http://a:b:c"}},
		"engines[0]: url must begin wi": {{URL: "ftp://a"}},
	} {
		_, err := engine.New(engine.Options{Engines: engines})
		require.ErrorContains(t, err, want)
	}
}
