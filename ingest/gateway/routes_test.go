package gateway

import (
	"net/http"
	"net/http/httptest"
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
		"v1/v1/messages":                     {act: actSample, api: apiMessages, path: "messages"},
		"v1/embeddings":                      {act: actNone, api: apiChat},
		"v1/messages/batches":                {act: actNone, api: apiMessages},
		"v1beta/files":                       {act: actNone, api: apiGenerate},
	} {
		require.Equal(t, want, match(path, http.Header{}), path)
	}
	require.Equal(t, apiGenerate, match("v1/models/m", headerOf("X-Goog-Api-Key", "k")).api)
	require.Equal(t, apiMessages, match("v1/models", headerOf("Anthropic-Version", "2023-06-01")).api)
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
