package apptest

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// TestSecretsStayOut: neither the engine's credential nor what harnesses send as theirs, nor
// a key that was minted for them, is on disk, in the log, at the engine, or in any answer.
func TestSecretsStayOut(t *testing.T) {
	t.Parallel()
	const upstream, harness = "sk-upstream-7f3a91c2", "sk-proj-harness-55d0e8b1aB3dE6gH9k"
	e := enginetest.New(enginetest.Options{Seed: 1, Key: upstream, Default: thinker})
	l := listenAnywhere(t)
	srv := &http.Server{Handler: e, ReadHeaderTimeout: patience}
	go func() { _ = srv.Serve(l) }() // until the test ends
	t.Cleanup(func() { _ = srv.Close() })
	at := "http://" + l.Addr().String()
	e.Script("breaks", enginetest.Script{Faults: []enginetest.Fault{{Kind: "status", Status: 401, Message: "key " + upstream + " is wrong"}}})
	e.Script("cut", enginetest.Script{Faults: []enginetest.Fault{{Kind: "cut_broken", At: 3}}})
	for _, bodies := range []string{"harness", "engine"} {
		file := tempFile(t, []byte("engines: [{url: "+at+"/vllm, key_env: UPSTREAM_KEY}]\nmodels: {policy: {}, breaks: {}, cut: {}}\nbodies: "+bodies+"\n"))
		s := startOn(t, filepath.Join(t.TempDir(), "data"), []string{"UPSTREAM_KEY=" + upstream}, "--gateway="+file, "--log-level=debug")
		s.faulty = true
		var k gatewayKey
		s.post(path("rollouts", "secret", "keys"), object{}).is(201).into(&k)
		minted := k.Key[len("ick_"):]
		var answers []string
		keep := func(a *answer, err error) {
			if a != nil {
				answers = append(answers, string(a.body))
				for name, values := range a.header {
					answers = append(answers, name+": "+strings.Join(values, ","))
				}
			}
			_ = err // a stream that is to break
		}
		for _, a := range apis {
			for _, stream := range []bool{false, true} {
				for _, model := range []string{"policy", "breaks", "cut"} {
					body := a.turn(nil, stream)
					where := a.path(stream)
					if body["model"] = model; a.name == "google.generate" {
						delete(body, "model")
						where = strings.Replace(where, "gemini-x", model, 1) + map[bool]string{true: "&", false: "?"}[stream] + "key=" + harness
					}
					keep(s.try(http.MethodPost, "/gateway/secret/"+where, strings.NewReader(string(encode(body))), "Content-Type", typeJSON,
						"Authorization", "Bearer "+harness, "X-Api-Key", k.Key, "X-Goog-Api-Key", harness, "Cookie", "s="+harness, "Proxy-Authorization", "Basic "+harness,
						"X-Codex-Turn-Metadata", `{"session_id": "`+harness+`", "thread_id": "t", "env": {"deep": ["`+harness+`"]}}`, "User-Agent", "codex_exec/0.171.0 ("+harness+")",
						"X-Session-Id", harness, "X-Client-Request-Id", `{"a": "`+harness+`"}`, "Icecore-Thread", "Bearer "+harness, "api_key", k.Key, "Referer", s.url+"?api_key="+k.Key))
					keep(s.try(http.MethodPost, "/gateway/-/"+where+map[bool]string{true: "&", false: "?"}[strings.Contains(where, "?")]+"api_key="+k.Key, strings.NewReader(string(encode(body)))))
				}
			}
		}
		for _, c := range s.keptCalls("secret") {
			keep(s.get(path("traces", c.TraceID)+"?include=bodies").is(200), nil)
			keep(s.get(path("traces", c.TraceID, "boundary")), nil)
		}
		for _, where := range []string{"/v1/status", "/metrics", "/v1/rollouts", "/v1/rollouts/secret", "/openapi.json", "/gateway/secret/v1/models"} {
			keep(s.get(where), nil)
		}
		keep(s.sql(typeJSON, object{"sql": "SELECT * FROM traces"}), nil)
		keep(s.sql(typeJSON, object{"sql": "SELECT * FROM trace_bodies"}), nil)
		s.stop()
		texts := map[string]string{"log": s.stderr.String(), "answers": strings.Join(answers, "\n")}
		require.NoError(t, filepath.WalkDir(s.dir, func(name string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(name)
			texts[name] = string(raw)
			return err
		}))
		for where, text := range texts {
			require.False(t, strings.Contains(text, upstream), "the engine's key is in %s", where)
			require.False(t, strings.Contains(text, harness), "the harness's key is in %s", where)
			require.False(t, strings.Contains(text, minted), "the minted key is in %s", where)
		}
		require.Greater(t, len(answers), 100)
	}
	for _, entry := range e.Ledger() {
		for _, secret := range []string{harness, "ick_"} {
			require.NotContains(t, string(encode(entry.Header))+string(entry.Body), secret, "it was forwarded")
		}
	}
}
