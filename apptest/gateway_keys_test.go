package apptest

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type gatewayKey struct {
	Key       string  `json:"key"`
	KeyID     string  `json:"key_id"`
	RolloutID string  `json:"rollout_id"`
	Label     *string `json:"label"`
	ExpiresAt *string `json:"expires_at"`
	RevokedAt *string `json:"revoked_at"`
}

func (s *server) keysOf(rollout string) []gatewayKey {
	s.t.Helper()
	var list struct {
		Keys []gatewayKey `json:"keys"`
	}
	s.get("/v1/rollouts/" + url.PathEscape(rollout) + "/keys").is(200).into(&list)
	return list.Keys
}

// TestKeysOverHTTP: a key is shown once, listed without itself, revoked for good, and
// survives a kill; nothing on disk or in the log tells it.
func TestKeysOverHTTP(t *testing.T) {
	t.Parallel()
	s := start(t, "--log-level=debug")
	const rollout = "r/1 ü"
	path := "/v1/rollouts/" + url.PathEscape(rollout) + "/keys"
	s.get(path).problem(404, "not_found")
	var a, b gatewayKey
	minted := s.send("POST", path, nil).is(201)
	require.Equal(t, "no-store", minted.header.Get("Cache-Control"))
	minted.into(&a)
	s.post(path, object{"label": "sandbox", "expires_in_seconds": 60}).is(201).into(&b)
	require.NotEqual(t, a.Key, b.Key)
	require.Equal(t, rollout, a.RolloutID)
	require.Nil(t, a.ExpiresAt)
	expires, err := time.Parse(time.RFC3339Nano, *b.ExpiresAt)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Minute), expires, time.Minute)
	r, _ := s.rollout(rollout)
	require.Equal(t, rollout, r.RolloutID, "a key opens its rollout")
	s.send("DELETE", path+"/"+a.KeyID, nil).is(200)
	s.send("DELETE", path+"/"+a.KeyID, nil).is(200)
	s.send("DELETE", path+"/key_0", nil).problem(404, "not_found")
	s.send("DELETE", "/v1/rollouts/other/keys/"+b.KeyID, nil).problem(404, "not_found")
	s.kill()
	again := startOn(t, s.dir, nil)
	list := again.keysOf(rollout)
	require.Len(t, list, 2)
	require.Equal(t, []string{a.KeyID, b.KeyID}, []string{list[0].KeyID, list[1].KeyID})
	require.NotNil(t, list[0].RevokedAt)
	require.Nil(t, list[1].RevokedAt)
	require.Equal(t, "sandbox", *list[1].Label)
	require.Empty(t, list[0].Key+list[1].Key)
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	require.NoError(t, err)
	for _, secret := range []string{a.Key[4:], b.Key[4:]} {
		require.NotContains(t, s.stderr.String()+again.stderr.String(), secret)
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err == nil { // a directory has none
				require.False(t, bytes.Contains(text, []byte(secret)), name)
			}
		}
	}
}

// TestKeyRequestsRefused: whatever is wrong is named, and makes no key.
func TestKeyRequestsRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, code := range map[string]string{
		`[]`: "not_an_object", `{`: "invalid_json", `{"labels": "x"}`: "invalid_field", `{"label": 7}`: "invalid_field",
		`{"label": "a\nb"}`: "invalid_field", `{"label": "` + strings.Repeat("x", 129) + `"}`: "invalid_field",
		`{"label": "\ud800"}`: "invalid_field", `{"label": "a", "label": "b"}`: "duplicate_field",
		`{"expires_in_seconds": 0}`: "invalid_field", `{"expires_in_seconds": 1.5}`: "invalid_field",
		`{"expires_in_seconds": 9223372036854775807}`: "invalid_field", `{"expires_in_seconds": "60"}`: "invalid_field",
	} {
		a := s.send("POST", "/v1/rollouts/refused/keys", []byte(body), "Content-Type", typeJSON)
		a.problem(map[bool]int{true: 400, false: 422}[code == "invalid_json"], code)
	}
	s.send("POST", "/v1/rollouts/refused/keys?label=x", nil).problem(400, "invalid_parameter")
	s.send("POST", "/v1/rollouts/refused/keys", []byte("x"), "Content-Type", typeNDJSON).problem(415, "unsupported_media_type")
	s.get("/v1/rollouts/refused/keys").problem(404, "not_found")
}

// TestKeyCommand: the same from the command line; the key alone is on standard output.
func TestKeyCommand(t *testing.T) {
	t.Parallel()
	s := start(t)
	run := func(args ...string) (string, string) {
		t.Helper()
		out, log, err := command(t, nil, append([]string{"key"}, append(args, "--server", s.url)...)...)
		require.NoError(t, err, log)
		return out, log
	}
	key, said := run("create", "r 1", "--label", "by hand", "--expires-in", "1h")
	require.Regexp(t, `^ick_[0-9a-f]{64}\n$`, key)
	id := s.keysOf("r 1")[0].KeyID
	require.Contains(t, said, id+" for rollout r 1; it counts until 2")
	table, _ := run("list", "r 1")
	require.Regexp(t, id+` +by hand +20`, table)
	out, _ := run("revoke", "r 1", id)
	require.Contains(t, out, id+" of rollout r 1 counts no more")
	raw, _ := run("list", "r 1", "--format", "json")
	require.Contains(t, raw, `"revoked_at":"2`)
	require.NotContains(t, table+raw, "ick_")
	_, log, err := command(t, nil, "key", "revoke", "r 1", "key_0", "--server", s.url)
	require.Error(t, err)
	require.Contains(t, log, "key revoke: the server answered 404 not_found")
	_, log, err = command(t, nil, "key", "create", "r 1", "--expires-in", "1ms", "--server", s.url)
	require.Error(t, err)
	require.Contains(t, log, "less than a second")
}

type announced struct {
	Model         *string `json:"model"`
	PolicyVersion int64   `json:"policy_version"`
	At            string  `json:"at"`
}

// TestPolicyVersionOverHTTP: what was said last counts, over a kill too; news that are
// late, of the future or malformed change nothing.
func TestPolicyVersionOverHTTP(t *testing.T) {
	t.Parallel()
	s := start(t)
	told := func(s *server) (list []announced) {
		t.Helper()
		var all struct {
			PolicyVersions []announced `json:"policy_versions"`
		}
		s.get("/v1/policy_version").is(200).into(&all)
		return all.PolicyVersions
	}
	require.Empty(t, told(s))
	const path = "/v1/policy_version"
	s.put(path, object{"policy_version": int64(9007199254740993), "model": "a"}).is(200)
	s.put(path, object{"policy_version": 3, "model": "b", "at": "2026-01-01T00:00:00Z"}).is(200)
	s.put(path, object{"policy_version": 2, "model": "b", "at": "2026-01-01T01:00:00+01:00"}).is(200) // at the same moment: a rollback
	s.put(path, object{"policy_version": 4, "model": "b", "at": "2025-12-31T23:59:59Z"}).problem(409, "conflict")
	for body, code := range map[string]string{
		`{}`: "missing_field", `{"policy_version": -1}`: "invalid_field", `{"policy_version": "7"}`: "invalid_field",
		`{"policy_version": 7, "models": "a"}`: "invalid_field", `{"policy_version": 7, "at": 5}`: "invalid_field",
		`{"policy_version": 7, "at": "2999-01-01T00:00:00Z"}`: "invalid_field", `{"policy_version": 7, "model": "a\u0000"}`: "invalid_field",
		`{"policy_version": null}`: "missing_field", `7`: "not_an_object",
	} {
		a := s.send("PUT", path, []byte(body), "Content-Type", typeJSON)
		a.problem(map[bool]int{true: 400, false: 422}[code == "invalid_json"], code)
	}
	want := []announced{{ptr("a"), 9007199254740993, ""}, {ptr("b"), 2, ""}}
	is := func(s *server, want []announced) {
		t.Helper()
		have := told(s)
		for i := range have {
			have[i].At = ""
		}
		require.Equal(t, want, have)
	}
	is(s, want)
	s.kill()
	s = startOn(t, s.dir, nil)
	is(s, want)
	s.put(path, object{"policy_version": 1}).is(200)
	is(s, []announced{{nil, 1, ""}})
}

// TestNoGateway: a server without engines says what it lacks.
func TestNoGateway(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.post("/gateway/r-1/v1/chat/completions", object{}).problem(404, "no_gateway")
	require.NotContains(t, string(s.get("/v1/status").is(200).body), `"gateway"`)
	require.NotContains(t, string(s.get("/openapi.json").is(200).body), `"/gateway/`)
}

// TestGatewayOfNoEngine: an engine that is away keeps the server from nothing else.
func TestGatewayOfNoEngine(t *testing.T) {
	t.Parallel()
	s := start(t, nowhere)
	s.get("/readyz").is(200)
	var status struct {
		Gateway struct {
			OpenCalls int `json:"open_calls"`
			Engines   []struct {
				URL     string `json:"url"`
				Healthy bool   `json:"healthy"`
			} `json:"engines"`
		} `json:"gateway"`
	}
	s.get("/v1/status").is(200).into(&status)
	require.Len(t, status.Gateway.Engines, 1)
	require.Equal(t, "http://127.0.0.1:1", status.Gateway.Engines[0].URL)
	require.False(t, status.Gateway.Engines[0].Healthy)
	a := s.post("/gateway/r-1/chat/completions", object{"model": "m", "messages": []object{{"role": "user", "content": "hi"}}})
	require.GreaterOrEqual(t, a.status, 400)
	require.Contains(t, string(a.body), `"error"`)
	require.Zero(t, status.Gateway.OpenCalls)
	_, err := s.try("GET", "/metrics", nil)
	require.NoError(t, err)
}

// TestGatewaySettingsRefused: a file with faults ends the start, and says where they are.
func TestGatewaySettingsRefused(t *testing.T) {
	t.Parallel()
	file := tempFile(t, []byte("engines:\n  - url: http://127.0.0.1:1\n    key: hunter2\nunknown: 1\n"))
	s := launch(t, filepath.Join(t.TempDir(), "data"), nil, "--gateway", file)
	<-s.exited
	log := s.stderr.String()
	require.Contains(t, log, "line 3: engines[0].key")
	require.Contains(t, log, "line 4: unknown")
	require.NotContains(t, log, "hunter2")
}
