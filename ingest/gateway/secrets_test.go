package gateway

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/settings"
)

// Secrets that a harness sends, and the engine's key, are in no trace, no log, no answer
// and, but for that key, in nothing that the engine gets.
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	secret := "s3cr3t-planted"
	headers := []string{"Authorization", "Bearer " + secret, "X-Api-Key", secret, "X-Goog-Api-Key", secret, "Api-Key", secret, "Cookie", "a=" + secret,
		"Proxy-Authorization", "Basic " + secret, "X-Amz-Security-Token", secret, "Cf-Access-Client-Secret", secret, "X-Unknown", secret, "User-Agent", "claude-cli/2.1.197"}
	for _, face := range []string{"vllm", "plain"} {
		for _, fault := range []string{"", "error_event", "status"} {
			s := says("nothing to see")
			if fault != "" {
				s.Faults = []enginetest.Fault{{Kind: fault, Status: 401, At: 2, Message: "wrong key engine-s3cr3t"}}
			}
			r := newRig(t, face, s, func(o *Options, _ *fixed, _ *memory) { o.Settings.Engines[0].Key = "engine-s3cr3t" })
			all := ""
			for _, b := range bodies {
				path := paths(b.api, b.path, true)
				path += map[bool]string{true: "&key=" + secret, false: "?key=" + secret}[b.api == apiGenerate]
				_, text, _ := r.post(path, b.stream, headers...)
				all += text
			}
			_, text, _ := r.post("-/v1/messages", `{`, "Authorization", "Bearer ick_"+secret)
			all += text + r.log.String()
			for _, one := range r.store.wait(t, len(bodies)) {
				raw, err := json.Marshal(one)
				require.NoError(t, err)
				all += string(raw) + string(one.Metadata) + string(one.RequestBody) + string(one.ResponseBody) + one.Error
			}
			require.NotContains(t, all, secret)
			require.NotContains(t, all, "engine-s3cr3t")
			for _, entry := range r.engine.Ledger() {
				require.Equal(t, "Bearer engine-s3cr3t", entry.Header.Get("Authorization"))
				require.NotContains(t, string(entry.Body), secret)
				for name, values := range entry.Header {
					require.NotContains(t, values, secret, name)
					require.NotEqual(t, "claude-cli/2.1.197", entry.Header.Get(name), "no header of the harness goes on")
				}
			}
		}
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	clean, query, key := credentials(headerOf("Authorization", "Bearer sk-x", "X-Api-Key", "ick_1", "Anthropic-Version", "2023-06-01", "X-My-Auth", "z"),
		url.Values{"key": {"ick_2"}, "alt": {"sse"}, "access_token": {"y"}})
	require.Equal(t, http.Header{"Anthropic-Version": {"2023-06-01"}}, clean)
	require.Equal(t, url.Values{"alt": {"sse"}}, query)
	require.Equal(t, "ick_1", key)
	require.Len(t, clip("äöü", 3), 2, "no half characters")
	require.Equal(t, "a\ufffd", clip("a\xff", 10))
}

// The headers that metadata repeats are those of the list, in part.
func TestKeptHeaders(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, func(o *Options, _ *fixed, _ *memory) { o.Settings.Bodies = settings.BodiesNone })
	_, _, _ = r.post("r/v1/chat/completions", hello+`}`, "X-Session-Id", "s-1", "X-Other", "o", "User-Agent", "QwenCode/0.15.10")
	got := r.store.wait(t, 1)[0]
	require.Equal(t, map[string]any{"x-session-id": "s-1", "user-agent": "QwenCode/0.15.10"}, meta(t, got)["headers"])
	require.Equal(t, "s-1", meta(t, got)["session"])
}
