package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]route{
		"":                                   {act: actBase, api: apiChat},
		"v1":                                 {act: actBase, api: apiChat},
		"v1/":                                {act: actBase, api: apiChat},
		"v1/chat/completions":                {act: actSample, api: apiChat, path: "chat/completions"},
		"chat/completions":                   {act: actSample, api: apiChat, path: "chat/completions"},
		"v1/responses":                       {act: actSample, api: apiResponses, path: "responses"},
		"v1/responses/compact":               {act: actCompact, api: apiResponses, path: "responses/compact"},
		"messages":                           {act: actSample, api: apiMessages, path: "messages"},
		"v1/messages/count_tokens":           {act: actCount, api: apiMessages, path: "messages/count_tokens"},
		"v1/models":                          {act: actModels, api: apiChat},
		"models/org/name":                    {act: actModel, api: apiChat, model: "org/name"},
		"v1beta/models":                      {act: actModels, api: apiGenerate},
		"v1beta/models/m":                    {act: actModel, api: apiGenerate, model: "m"},
		"v1beta/models/m:countTokens":        {act: actCount, api: apiGenerate, path: "v1beta/models/m:countTokens"},
		"v1beta/models/a:b:generateContent":  {act: actSample, api: apiGenerate, path: "v1beta/models/a:b:generateContent"},
		"v1/models/m:streamGenerateContent":  {act: actSample, api: apiGenerate, path: "v1beta/models/m:streamGenerateContent"},
		"v1/v1beta/models/m:generateContent": {act: actSample, api: apiGenerate, path: "v1beta/models/m:generateContent"},
		"v1alpha/models/m:generateContent":   {act: actSample, api: apiGenerate, path: "v1beta/models/m:generateContent"},
		"v1/v1/messages":                     {act: actSample, api: apiMessages, path: "messages"},
		"v1/embeddings":                      {act: actNone, api: apiChat},
		"v1/messages/batches":                {act: actNone, api: apiMessages},
		"v1beta/files":                       {act: actNone, api: apiGenerate},
	} {
		require.Equal(t, want, match(http.MethodGet, path, http.Header{}), path)
	}
	require.Equal(t, apiGenerate, match(http.MethodGet, "v1/models/m", headerOf("X-Goog-Api-Key", "k")).api)
	require.Equal(t, apiMessages, match(http.MethodGet, "v1/models", headerOf("Anthropic-Version", "2023-06-01")).api)
}

func TestOtherRequests(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{})
	for _, c := range []struct {
		method, path string
		header       []string
		want         int
	}{
		{"GET", "r", nil, 200}, {"HEAD", "r", nil, 200}, {"HEAD", "r/v1", nil, 200}, {"GET", "r/", nil, 200},
		{"POST", "r", nil, 405}, {"GET", "r/v1/messages", nil, 405}, {"GET", "r/v1/embeddings", nil, 404}, {"POST", "r/v1/embeddings", nil, 404},
		{"POST", "r/v1/responses/compact", nil, 400},
		{"GET", "r/v1/responses", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 426}, // row 26
		{"GET", "r/v1/models", nil, 200}, {"GET", "r/v1/models/policy", nil, 200}, {"GET", "r/v1beta/models/policy", nil, 200},
	} {
		q := httptest.NewRequest(c.method, r.url+"/gateway/"+c.path, nil)
		q.RequestURI = ""
		for i := 0; i+1 < len(c.header); i += 2 {
			q.Header.Set(c.header[i], c.header[i+1])
		}
		a, err := r.client.Do(q)
		require.NoError(t, err)
		require.NoError(t, a.Body.Close())
		require.Equal(t, c.want, a.StatusCode, "%s %s", c.method, c.path)
	}
	require.Empty(t, r.store.intents)
}

// ask makes a request with any method and gives status, headers and what the body holds.
func (r *rig) ask(method, path string, headers ...string) (status int, header http.Header, body map[string]any) {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(`{}`))
	require.NoError(r.t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	a, err := r.client.Do(q)
	require.NoError(r.t, err)
	defer func() { _ = a.Body.Close() }()
	raw, err := io.ReadAll(a.Body)
	require.NoError(r.t, err)
	if len(raw) > 0 {
		require.NoError(r.t, json.Unmarshal(raw, &body), "%s %s: %s", method, path, raw)
	}
	return a.StatusCode, a.Header, body
}

// inShape demands a fault in the shape of an API, and gives its message.
func inShape(t *testing.T, api string, body map[string]any) string {
	t.Helper()
	fault, ok := body["error"].(object)
	require.True(t, ok, "%v", body)
	require.NotEmpty(t, fault["message"])
	switch api {
	case apiMessages:
		require.Equal(t, "error", body["type"])
		require.NotEmpty(t, fault["type"], "%v", body)
	case apiGenerate:
		require.NotEmpty(t, fault["status"], "%v", body)
		require.NotEmpty(t, fault["code"])
	default:
		require.Contains(t, fault, "param")
		require.NotEmpty(t, fault["type"])
	}
	return fault["message"].(string)
}

// A base URL that lacks the rollout, or /gateway as well, is told how it should look, in
// the shape of its API, and nothing is begun for it.
func TestBaseURLsThatLackSomething(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, func(_ *Options, f *fixed, _ *memory) { f.keys["ick_one"] = "r-1" })
	const with, without = "http://HOST:PORT/gateway/ROLLOUT/v1", "http://HOST:PORT/gateway/ROLLOUT"
	for _, c := range []struct {
		api, path, base string
		status          int
	}{
		{apiChat, "/gateway/v1/chat/completions", with, 400},
		{apiChat, "/gateway/%76%31/chat/completions", with, 400},
		{apiChat, "/gateway/chat/completions", with, 400},
		{apiChat, "/gateway/completions", with, 400},
		{apiChat, "/gateway//v1/chat/completions", with, 400},
		{apiChat, "/gateway/../v1/chat/completions", with, 400},
		{apiChat, "/gateway/%2e/v1/chat/completions", with, 400},
		{apiMessages, "/gateway/%2E%2e/v1/messages", without, 400},
		{apiResponses, "/gateway/v1/responses", with, 400},
		{apiResponses, "/gateway/responses", with, 400},
		{apiMessages, "/gateway/v1/messages", without, 400},
		{apiMessages, "/gateway/v1/messages/count_tokens", without, 400},
		{apiMessages, "/gateway/messages", without, 400},
		{apiGenerate, "/gateway/v1beta/models/policy:generateContent", without, 400},
		{apiGenerate, "/gateway/v1/models/policy:generateContent", without, 400},
		{apiGenerate, "/gateway/models/policy:generateContent", without, 400},
		{apiGenerate, "/gateway/v1alpha/models/policy:generateContent", without, 400},
		{apiChat, "/v1/chat/completions", with, 404},
		{apiChat, "/chat/completions", with, 404},
		{apiChat, "/gateway", with, 404},
		{apiResponses, "/v1/responses", with, 404},
		{apiResponses, "/responses", with, 404},
		{apiMessages, "/v1/messages", without, 404},
		{apiMessages, "/v1/messages/count_tokens", without, 404},
		{apiMessages, "/messages", without, 404},
		{apiGenerate, "/v1beta/models/x:generateContent", without, 404},
		{apiGenerate, "/v1/models/x:streamGenerateContent", without, 404},
		{apiMessages, "/v1/v1/messages", without, 404},
		{apiGenerate, "/v1/v1beta/models/x:generateContent", without, 404},
		{apiChat, "/r-u/v1/chat/completions", with, 404},
		{apiResponses, "/openai/v1/responses", with, 404},
		{apiMessages, "/anthropic/v1/messages", without, 404},
		{apiMessages, "/v1/gateway/r-u/v1/messages", without, 404},
		{apiChat, "/Gateway/r-u/v1/chat/completions", with, 404},
		{apiMessages, "//v1/messages", without, 404},
		// Below a rollout, but for something between.
		{apiMessages, "/gateway/r/r-u/v1/messages", without, 404},
		{apiMessages, "/gateway/r/v1/api/v1/messages", without, 404},
		{apiGenerate, "/gateway/r/v1/openai/v1beta/models/x:generateContent", without, 404},
		{apiResponses, "/gateway/r/v1beta/responses", with, 404},
		// What should have been filled in.
		{apiChat, "/gateway/ROLLOUT/v1/chat/completions", with, 400},
		{apiChat, "/gateway/%7Brollout_id%7D/v1/chat/completions", with, 400},
		{apiChat, "/gateway/$ROLLOUT/v1/chat/completions", with, 400},
		{apiMessages, "/gateway/%3Crollout%3E/v1/messages", without, 400},
		{apiMessages, "/gateway/undefined/v1/messages", without, 400},
		{apiChat, "/gateway/None/v1/chat/completions", with, 400},
		{apiChat, "/gateway/V1/chat/completions", with, 400},
		{apiChat, "/gateway/v1%20/chat/completions", with, 400},
	} {
		for _, key := range []string{"none", "ick_one"} {
			status, _, body := r.ask(http.MethodPost, c.path, "X-Api-Key", key)
			require.Equal(t, c.status, status, c.path)
			message := inShape(t, c.api, body)
			require.Contains(t, message, c.base+",", c.path)
		}
	}
	for _, path := range []string{"/gateway/v1/models", "/gateway/models", "/gateway/v1"} {
		status, _, _ := r.ask(http.MethodGet, path)
		require.Equal(t, http.StatusBadRequest, status, path)
	}
	for _, path := range []string{"/v1/models", "/models", "/v1beta/models", "/models/policy"} {
		status, _, _ := r.ask(http.MethodGet, path)
		require.Equal(t, http.StatusNotFound, status, path)
	}
	require.Empty(t, r.store.intents)
	// By a key, a rollout of such a name is reached all the same; a key is no name.
	r.fixed.keys["ick_v1"] = "v1"
	status, text, _ := r.post("-/v1/chat/completions", hello+`}`, "Authorization", "Bearer ick_v1")
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, "v1", r.store.wait(t, 1)[0].RolloutID)
	for _, one := range [][]string{{"ick_one"}, {"-", "Icecore-Rollout-Id", "ick_one"}, {"-", "X-Session-Id", "ick_one"},
		{"-", "Icecore-Rollout-Id", "Bearer abcdefgh", "X-Session-Id", "another"}} {
		status, text, _ = r.post(one[0]+"/v1/chat/completions", hello+`}`, one[1:]...)
		require.Equal(t, http.StatusBadRequest, status, text)
		require.NotContains(t, text+r.log.String(), "ick_one")
	}
}

// Methods that a path does not take are answered in its API's shape, with those that it
// takes, whatever the method is.
func TestOtherMethods(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}})
	for _, c := range []struct{ api, path, allow string }{
		{apiChat, "/gateway/r/v1/chat/completions", "POST"},
		{apiResponses, "/gateway/r/v1/responses", "POST"},
		{apiMessages, "/gateway/r/v1/messages", "POST"},
		{apiGenerate, "/gateway/r/v1beta/models/m:generateContent", "POST"},
		{apiChat, "/gateway/r", "GET, HEAD"},
		{apiChat, "/gateway/r/v1/models", "GET, HEAD"},
		{apiGenerate, "/gateway/r/v1beta/models", "GET, HEAD"},
		{apiGenerate, "/gateway/r/v1beta/models/a:b", "GET, HEAD"},
	} {
		for _, method := range []string{"PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "FOO", "QUERY"} {
			status, header, body := r.ask(method, c.path)
			require.Equal(t, http.StatusMethodNotAllowed, status, "%s %s", method, c.path)
			require.Equal(t, c.allow, header.Get("Allow"))
			require.Contains(t, inShape(t, c.api, body), "not "+method)
		}
	}
	for _, path := range []string{"v1beta/models/x:foo", "v1/models/x:foo", "models/:generateContent", "v1beta/models/:generateContent", "models/x:embedContent"} {
		status, _, body := r.ask(http.MethodPost, "/gateway/r/"+path)
		require.Equal(t, http.StatusNotFound, status, path)
		require.Equal(t, "NOT_FOUND", body["error"].(object)["status"], path)
	}
	for _, upgrade := range []string{"websocket", "foo, websocket", "WebSocket/13", "h2c,websocket"} {
		status, header, body := r.ask(http.MethodGet, "/gateway/r/v1/responses", "Connection", "Upgrade", "Upgrade", upgrade)
		require.Equal(t, http.StatusUpgradeRequired, status, upgrade)
		require.Equal(t, "HTTP/1.1", header.Get("Upgrade"))
		require.Equal(t, "Upgrade", header.Get("Connection"))
		inShape(t, apiResponses, body)
	}
	status, _, _ := r.ask(http.MethodGet, "/gateway/r/v1/models", "Connection", "Upgrade", "Upgrade", "h2c, websockets")
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, r.store.intents)
}
