package apptest

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCountTokens: the count is that of the prompt that the same request gives, and
// leaves no trace.
func TestCountTokens(t *testing.T) {
	t.Parallel()
	r := plainRig(t, thinker)
	for _, a := range apis[2:] {
		body := encode(a.turn(nil, false))
		where, field := "count/v1/messages/count_tokens", "input_tokens"
		if a.name == "google.generate" {
			where, field = "count/v1beta/models/gemini-x:countTokens", "totalTokens"
		}
		counted := num(parse(t, string(r.askGateway(where, body).is(200).body))[field])
		got := r.askGateway("count-"+a.name+"/"+a.path(false), body).is(200)
		require.Len(t, r.full(got.header.Get("Icecore-Trace-Id")).Prompt, counted)
	}
	r.get(path("rollouts", "count")).problem(404, "not_found")
}

// TestCodedRequests: bodies are inflated by what they are, whatever the header says, and
// measured inflated.
func TestCodedRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, "engines: [{url: ENGINE/vllm}]\nmodels: {policy: {}}\nlimits: {max_request: 64KiB}\n", scripts{"policy": says("yes")})
	body := encode(apis[1].turn(nil, false))
	for _, c := range []struct {
		body   []byte
		coding string
	}{{zstded(body), "zstd"}, {zstded(body), ""}, {gzipped(body), "gzip"}, {gzipped(body), "identity"}, {body, "zstd"}} {
		got := r.askGateway("coded/v1/responses", c.body, "Content-Encoding", c.coding).is(200)
		require.JSONEq(t, string(body), string(r.full(got.header.Get("Icecore-Trace-Id")).Sent))
	}
	bomb := encode(object{"model": "m", "input": strings.Repeat("a", 1<<20)})
	require.Less(t, len(zstded(bomb)), 4<<10)
	for _, coded := range [][]byte{zstded(bomb), gzipped(bomb), bomb} {
		r.askGateway("coded/v1/responses", coded).is(413)
	}
	r.askGateway("coded/v1/responses", zstded(body)[:20]).is(400)
	require.Len(t, r.keptCalls("coded"), 5)
}

// TestPathsThatAreNot: an upgrade is refused at once, other paths and methods by name;
// what is malformed is answered in the API's shape and leaves nothing.
func TestPathsThatAreNot(t *testing.T) {
	t.Parallel()
	r := plainRig(t, says("yes"))
	r.get("/gateway/p/v1/responses", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "eHh4eHh4eHh4eHh4eHh4eA==").is(http.StatusUpgradeRequired)
	require.Contains(t, string(r.askGateway("p/v1/embeddings", []byte(`{}`)).is(404).body), "chat/completions")
	require.Equal(t, "POST", r.get("/gateway/p/v1/messages").is(405).header.Get("Allow"))
	require.Contains(t, string(r.send("FOO", "/gateway/p/v1/messages", nil).is(405).body), `"invalid_request_error"`)
	// Without /gateway, or without a rollout, the base URL is told.
	for _, a := range apis {
		for _, missing := range []string{"/gateway/", "/"} {
			// Not by the client that checks answers: no path of the document is asked.
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+missing+a.path(false), bytes.NewReader(encode(a.turn(nil, false))))
			require.NoError(t, err)
			got, err := newHTTP().Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(got.Body)
			require.NoError(t, err)
			require.NoError(t, got.Body.Close())
			require.Equal(t, map[string]int{"/": 404, "/gateway/": 400}[missing], got.StatusCode, "%s %s", missing, body)
			require.Contains(t, parse(t, string(body))["error"].(object)["message"], "/gateway/ROLLOUT", missing+a.path(false))
		}
	}
	r.post("/v1/nothing", object{}).problem(404, "no_such_path")
	r.send("DELETE", "/v1/status", nil).problem(405, "method_not_allowed")
	r.get("/gateway/p").is(200)
	r.send("HEAD", "/gateway/p/", nil).is(200)
	r.askGateway("p/v1/responses/compact", []byte(`{}`)).is(400)
	for _, a := range apis {
		for _, body := range []string{``, `[]`, `null`, `{`, `{"model": "m"}`, `{"model": "m", "messages": 7, "input": {}, "contents": "x"}`,
			`{"model": "m", "model": "n", "messages": []}`, "{\"model\": \"\xff\"}", strings.Repeat(`{"a":`, 600) + strings.Repeat("}", 600)} {
			for _, stream := range []bool{false, true} {
				got := r.askGateway("p/"+a.path(stream), []byte(body)).is(400)
				require.NotEmpty(t, parse(t, string(got.body))["error"].(object)["message"], "%s %.50s", a.name, body)
			}
		}
	}
	require.Empty(t, r.engine.Calls())
	r.get(path("rollouts", "p")).problem(404, "not_found")
}

// TestSettingsFaults: what is wrong in the file is told with its line, all at once.
func TestSettingsFaults(t *testing.T) {
	t.Parallel()
	for text, wants := range map[string][]string{
		"engines: [{url: http://127.0.0.1:1}]\nlimits:\n  heartbeat: 0s\n  max_open: many\ncallers: nobody\n": {"line 3: limits.heartbeat", "line 4: limits.max_open", "line 5: callers"},
		"engines: []\n": {"engines"},
		"engines:\n  - url: ftp://x\n  - {url: http://u:hunter2@h/, kind: tgi}\n": {"line 2: engines[0].url", "line 3: engines[1].url", "line 3: engines[1].kind"},
		"engines: [{url: http://127.0.0.1:1, key_env: ICECORE_TEST_NO_SUCH}]":     {"line 1: engines[0].key_env", "ICECORE_TEST_NO_SUCH"},
		"a: [\n": {"read YAML", "line"},
		"engines: [{url: http://127.0.0.1:1}]\nmodels:\n  a: {aliases: 7}\ndefault_model: b\n": {"line 3: models.a.aliases", "line 4: default_model"},
	} {
		s := launch(t, filepath.Join(t.TempDir(), "data"), nil, "--gateway", tempFile(t, []byte(text)))
		<-s.exited
		require.Error(t, s.err)
		for _, want := range wants {
			require.Contains(t, s.stderr.String(), want, text)
		}
		require.NotContains(t, s.stderr.String(), "hunter2")
	}
	s := launch(t, filepath.Join(t.TempDir(), "data"), nil, "--gateway", filepath.Join(t.TempDir(), "none"))
	<-s.exited
	require.Contains(t, s.stderr.String(), "no such file")
}
