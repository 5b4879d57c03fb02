package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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

// Ids that look a little like keys are kept, or a call would go to another rollout; real
// keys are not, in headers that are free to hold anything.
func TestIDsAreNoKeys(t *testing.T) {
	t.Parallel()
	keptIn := func(name, value string) bool {
		clean, query, _ := credentials(headerOf(name, value), url.Values{name: {value}})
		require.Equal(t, clean.Get(name), query.Get(name))
		return clean.Get(name) == value
	}
	ids := []string{"Icecore-Rollout-Id", "Icecore-Thread", "Icecore-Parent-Thread", "X-Session-Id", "Session-Id", "Thread-Id", "X-Claude-Code-Agent-Id", "X-Parent-Session-Id"}
	free := []string{"User-Agent", "X-Client-Request-Id", "Originator"}
	for _, id := range []string{"mgsm-sk-000123", "task-sk-toolkit-17", "sk-learn-issue-10297", "swe-sk_image-1234567", "sk-learn", "sk_SK", "disk-usage-0123456789-0123456789",
		"mgsm-sk-0123456789012345678901234567", "sk-an-id-of-letters-alone-is-none", "tick_12", "pick_7"} {
		for _, name := range slices.Concat(ids, free) {
			require.True(t, keptIn(name, id), "%s: %s", name, id)
		}
		require.JSONEq(t, `{"session_id":"`+id+`"}`, codexOf(`{"session_id":"`+id+`"}`))
	}
	for _, name := range ids {
		require.True(t, keptIn(name, "sk-learn__scikit-learn-10297"), name)
		require.True(t, keptIn(name, "basic tutorial-3"), name)
	}
	r := strings.Repeat("aB3dE6gH9k", 10)
	for _, key := range []string{"sk-" + r[:48], "sk-proj-" + r[:40] + "_" + r[:20], "sk-svcacct-" + r[:40], "sk-ant-api03-" + r[:60] + "-AA", "sk_live_" + r[:24], "sk-or-v1-" + r[:64],
		"ghp_" + r[:36], "github_pat_" + r[:22] + "_" + r[:59], "AIza" + r[:35], "AKIA" + strings.ToUpper(r[:16]), "hf_" + r[:34], "gsk_" + r[:52], "ick_" + r[:43],
		"eyJ" + r[:20] + "." + r[:30] + "." + r[:43]} {
		for _, name := range free {
			for _, around := range []string{"%s", "x/1.0 %s", `key="%s"`, "key='%s'", "key=%s", "key:%s", "a,%s", "x/1.0 (%s; y)"} {
				require.False(t, keptIn(name, fmt.Sprintf(around, key)), "%s: "+around, name, key)
			}
		}
		require.Empty(t, codexOf(`{"turn_id":"`+key+`"}`))
		for _, secret := range []string{key, "Bearer " + key} {
			for _, name := range ids {
				require.False(t, keptIn(name, secret), "%s: %s", name, secret)
			}
			require.Empty(t, codexOf(`{"session_id":"`+secret+`"}`))
		}
	}
}

// Ids with an sk in them name rollout and thread.
func TestIDsWithAnSK(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}})
	status, text, err := r.post("-/v1/chat/completions", hello+`}`, "Icecore-Rollout-Id", "mgsm-sk-000123", "Icecore-Thread", "task-sk-toolkit-17", "X-Session-Id", "sk-learn__scikit-learn-10297")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
	got := r.store.wait(t, 1)[0]
	require.Equal(t, "mgsm-sk-000123", got.RolloutID)
	require.Equal(t, "task-sk-toolkit-17", meta(t, got)["agent_thread"])
	require.Equal(t, "sk-learn__scikit-learn-10297", meta(t, got)["session"])
}

// Of a header of Codex that was cut there is what stood before the cut; of one that says
// nothing there is nothing.
func TestCutCodexHeader(t *testing.T) {
	t.Parallel()
	const whole = `{"session_id":"s-1","sandbox":{"a":[1]},"window_number":12,"request_kind":"compaction"}`
	for text, want := range map[string]string{
		whole:                              `{"session_id":"s-1","window_number":12,"request_kind":"compaction"}`,
		whole[:len(whole)-1]:               `{"session_id":"s-1","request_kind":"compaction"}`,
		whole[:len(whole)-3]:               `{"session_id":"s-1"}`,
		whole[:62]:                         `{"session_id":"s-1"}`,
		whole[:30]:                         `{"session_id":"s-1"}`,
		whole[:17]:                         "",
		"{":                                "",
		"":                                 "",
		`["session_id","s-1"]`:             "",
		`{"session_id":7,"thread_id":"t"}`: `{"session_id":7,"thread_id":"t"}`,
	} {
		clean, _, _ := credentials(headerOf(codexHeader, text), nil)
		if want == "" {
			require.NotContains(t, clean, codexHeader, text)
			continue
		}
		require.JSONEq(t, want, clean.Get(codexHeader), text)
		require.Equal(t, strings.Contains(want, `"s-1"`), sessionOf(clean) == "s-1", text)
		require.Equal(t, strings.Contains(want, `"t"`), codexTurn(clean).ThreadID == "t", text)
	}
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

// A canary in every header, parameter, and member of a header's JSON is nowhere: what
// looks like a credential in none at all, other words only in those that tell who calls.
func TestCanariesAreNowhere(t *testing.T) {
	t.Parallel()
	const word, basic = "canary-4711", "Y2FuYXJ5OmNhbmFyeS00NzEx" // canary:canary-4711
	odd := []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "Api_Key", "X_Api_Key", "X-Goog-Api-Key", "Cookie", "Set-Cookie", "X-Auth",
		"X-Amz-Security-Token", "Cf-Access-Client-Secret", "X-My-Password", "Key", "X-Unknown", "X-Forwarded-For", "Referer", "Accept", "Traceparent", "Baggage", "X-Session-Token"}
	ours := []string{"Icecore-Harness", "Icecore-Thread", "Icecore-Parent-Thread", "Icecore-Kind", "Icecore-Policy-Version"}
	all := slices.Concat(odd, ours, keptHeaders)
	codex := func(value string) string {
		return fmt.Sprintf(`{"session_id":"s-1","api_key":%q,"window_number":2,"nested":{"a":[%q]},"turn_id":[%q]}`, value, value, value)
	}
	type plant struct {
		value string
		in    []string
	}
	var plants []plant
	for _, secret := range []string{"ick_" + word, "Bearer " + word, "eyJhbGciOiJI." + word} {
		plants = append(plants, plant{secret, all}, plant{codex(secret), []string{codexHeader}},
			plant{`{"session_id":"` + secret + `"}`, []string{codexHeader}}, plant{fmt.Sprintf(`{"session_id":"\u%04x%s"}`, secret[0], secret[1:]), []string{codexHeader}})
	}
	long := "sk-proj-0123456789-" + word
	free := slices.DeleteFunc(slices.Clone(all), isID.MatchString)
	for _, secret := range []string{long, "Basic " + basic, "x/1.0 (" + long + ")", "ghp_" + word, "https://u:" + word + "@h/"} {
		plants = append(plants, plant{secret, free}, plant{codex(secret), []string{codexHeader}},
			plant{`{"thread_source":"` + secret + `"}`, []string{codexHeader}}, plant{fmt.Sprintf(`{"thread_source":"\u%04x%s"}`, secret[0], secret[1:]), []string{codexHeader}})
	}
	plants = append(plants, plant{word, odd}, plant{codex(word), []string{codexHeader}}, plant{`{"a":"` + word + `"}`, keptHeaders}, plant{`["` + word + `"]`, keptHeaders})
	for _, mode := range []string{settings.BodiesHarness, settings.BodiesNone} {
		r := newRig(t, "vllm", says("nothing to see"), func(o *Options, _ *fixed, _ *memory) { o.Settings.Bodies = mode })
		answers := ""
		for _, p := range plants {
			for _, name := range p.in {
				_, text, _ := r.post("r/v1/chat/completions", hello+`}`, name, p.value)
				answers += text
			}
		}
		for _, name := range []string{"key", "api_key", "apikey", "api-key", "access_token", "token", "x", "alt", "beta"} {
			_, text, _ := r.post("r/v1beta/models/policy:generateContent?"+name+"=sk-"+word, bodies[3].whole)
			answers += text
		}
		answers += r.log.String()
		for _, one := range r.store.all() {
			raw, err := json.Marshal(one)
			require.NoError(t, err)
			answers += string(raw) + string(one.Metadata) + string(one.RequestBody) + string(one.ResponseBody) + one.Error
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(r.gateway.Collectors()...)
		families, err := registry.Gather()
		require.NoError(t, err)
		answers += fmt.Sprint(families)
		for _, entry := range r.engine.Ledger() {
			answers += fmt.Sprint(entry.Header) + string(entry.Body)
		}
		for _, found := range []string{word, basic} {
			at := strings.Index(answers, found)
			require.Negative(t, at, "%.300q", answers[max(0, at-200):])
		}
		require.Greater(t, len(r.store.all()), 200)
	}
}

// A key of ours is seen wherever clients put keys, in whatever they make of it.
func TestKeysAreSeen(t *testing.T) {
	t.Parallel()
	const key = "ick_one"
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, func(o *Options, f *fixed, _ *memory) {
		f.keys[key], o.Settings.Callers = "r-1", settings.CallersKey
	})
	n := 0
	seen := func(query, name, value string) {
		t.Helper()
		var headers []string
		if name != "" {
			headers = []string{name, value}
		}
		status, text, _ := r.post("-/v1/chat/completions"+query, hello+`}`, headers...)
		require.Equal(t, http.StatusOK, status, "%s %s: %s %s", query, name, value, text)
		n++
	}
	for _, name := range []string{"X-Api-Key", "Api-Key", "api_key", "X_API_KEY", "X-Goog-Api-Key", "Authorization", "Proxy-Authorization", "X-Auth-Token"} {
		for _, value := range []string{key, `"` + key + `"`, "'" + key + "'", "Bearer " + key, "bearer  " + key, `Bearer "` + key + `"`, "Token " + key, "token=" + key, "ApiKey " + key,
			"Basic " + key, "Basic " + base64.StdEncoding.EncodeToString([]byte(key+":")), "basic " + base64.StdEncoding.EncodeToString([]byte("user:"+key))} {
			seen("", name, value)
		}
	}
	for _, name := range []string{"key", "api_key", "api-key", "apikey", "access_token", "token"} {
		seen("?"+name+"="+key, "", "")
		seen("?alt=sse&"+name+"=%22"+key+"%22", "", "")
	}
	require.Len(t, r.store.wait(t, n), n)
	for _, value := range []string{"ick_two", "ick_one.x", "ick_", `"ick_two"`, "tick_one", "sk-ick_one", "Basic " + base64.StdEncoding.EncodeToString([]byte("user:pass"))} {
		status, _, _ := r.post("-/v1/chat/completions", hello+`}`, "Authorization", value)
		require.Equal(t, http.StatusUnauthorized, status, value)
	}
}
