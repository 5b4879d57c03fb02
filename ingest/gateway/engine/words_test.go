package engine_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// However long an engine's words are, metadata stays small, and valid.
func TestWordsAreClipped(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 5000)
	spans := strings.TrimSuffix(strings.Repeat(`{"version":"`+long+`","start":0,"end":0},`, 200), ",")
	r := whole(t, `"message":{"content":"x"},"finish_reason":"`+long+`","stop_reason":"`+long+`"`,
		`,"usage":{"prompt_tokens":1,"completion_tokens":1,"x":"`+long+`"},"metadata":{"weight_version":"`+long+`","weight_versions":[`+spans+`]}`, 1)
	s := r.sampled(0)
	u := r.stream.Usage()
	require.EqualValues(t, 1, *u.Completion)
	require.Nil(t, u.Raw)
	raw, err := json.Marshal(s.Raw)
	require.NoError(t, err)
	require.Less(t, len(raw), 32<<10)
	finish, _ := s.Raw["finish_reason"].(string)
	for _, word := range []string{s.StopReason, s.Told, finish} {
		require.NotEmpty(t, word)
		require.Less(t, len(word), 300)
		require.True(t, strings.HasPrefix(word, "éé"))
		require.NotContains(t, word, "\uFFFD")
	}
}

// A byte order mark begins a text, and is none of it.
func TestByteOrderMark(t *testing.T) {
	t.Parallel()
	for kind, body := range map[string]string{
		"application/json":  "\ufeff" + `{"choices":[{"message":{"content":"x"},"finish_reason":"stop","token_ids":[1]}],"usage":{}}`,
		"text/event-stream": "\ufeffdata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\",\"token_ids\":[1]}]}\n\ndata: [DONE]\n\n",
	} {
		p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		})
		r := well(t, call(t, one(t, p), ask("hi")))
		require.Equal(t, "x", r.text(0), kind)
		require.Equal(t, []int32{1}, r.sampled(0).IDs)
	}
}

// However an engine writes the credential that it was sent, nobody reads it.
func TestCredentialInOtherSpellings(t *testing.T) {
	t.Parallel()
	const key = `sk-/a"b\c+d=e`
	escaped, err := json.Marshal(key)
	require.NoError(t, err)
	inside := string(escaped[1 : len(escaped)-1])
	var hex strings.Builder
	for _, r := range key {
		fmt.Fprintf(&hex, `\u%04X`, r)
	}
	for name, spelt := range map[string]string{
		"as JSON": inside, "slashes too": strings.ReplaceAll(inside, "/", `\/`), "as numbers": hex.String(),
		"some as numbers": strings.Replace(inside, "-", `\u002d`, 1), "JSON in JSON": strings.ReplaceAll(hex.String(), `\`, `\\`),
		"a URL": "sk-%2Fa%22b%5cc%2Bd%3De",
	} {
		for at, body := range map[string]string{
			"message": `{"error":{"message":"no: ` + spelt + `"}}`, "detail": `{"detail":[{"input":"` + spelt + `"}]}`,
			"raw": `{"x":"` + spelt + `"}`, "text": `no: ` + spelt, "cut": "x" + strings.Repeat(" ", 3994) + spelt, // only its beginning is read
			"event": `data: {"error":{"message":"` + spelt + `"}}` + "\n\n", "odd event": "event: error\ndata: " + spelt + "\n\n",
		} {
			p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, _ *http.Request) {
				if strings.Contains(at, "event") {
					w.Header().Set("Content-Type", "text/event-stream")
				} else {
					w.WriteHeader(http.StatusBadRequest)
				}
				_, _ = io.WriteString(w, body)
			}, func(o *engine.Options) { o.Engines[0].Key = key })
			r := call(t, one(t, p), ask("hi"))
			var f *turn.Fault
			require.ErrorAs(t, r.err, &f, name+" "+at)
			require.True(t, at == "cut" || strings.Contains(f.Message, "[credential]"), name+" "+at)
			require.NotContains(t, f.Message, "sk-", name+" "+at)
			require.NotContains(t, strings.ToLower(f.Message), `u0073`, name+" "+at)
		}
	}
}

// Nor is it kept where an engine uses it as a word of its own.
func TestCredentialAsAWord(t *testing.T) {
	t.Parallel()
	const key = "sk-engine-0123456789"
	p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"},"finish_reason":"`+key+`","stop_reason":"`+key+`","token_ids":[1]}],"usage":{"prompt_tokens":1,"x":"`+key+`"}}`)
	}, func(o *engine.Options) { o.Engines[0].Key = key })
	r := well(t, call(t, one(t, p), ask("hi")))
	kept, err := json.Marshal([]any{r.sampled(0), r.stream.Usage()})
	require.NoError(t, err)
	require.NotContains(t, string(kept), key)
	require.Equal(t, 3, strings.Count(string(kept), "[credential]"), string(kept))
}

// A credential so short that it is a piece of JSON's own names is taken out of what is
// told, and the error is read all the same.
func TestShortCredential(t *testing.T) {
	t.Parallel()
	for key, told := range map[string]string{
		"error": "no: 9 > 8, sesame", "message": "no: 9 > 8, sesame", "e": "no: 9 > 8, s[credential]sam[credential]",
		"sesame": "no: 9 > 8, [credential]",
	} {
		p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"no: 9 > 8, sesame","type":"BadRequestError","code":400}}`)
		}, func(o *engine.Options) { o.Engines[0].Key = key })
		var f *turn.Fault
		require.ErrorAs(t, call(t, one(t, p), ask("hi")).err, &f, key)
		require.Equal(t, told, f.Message, key)
	}
}
