package apptest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// A call that runs still is no unknown one: who asks for its trace, or follows it, is told
// that it is announced, until it ends.
func TestAnnouncedCallIsNoUnknownOne(t *testing.T) {
	t.Parallel()
	gate := &enginetest.Gate{}
	script := enginetest.Script{Turns: []enginetest.Turn{{Text: "at last"}}}
	script.Time.Gate = gate
	r := plainRig(t, script)
	body := openStream(t, r.server, "runs/v1/chat/completions", object{"model": "policy", "stream": true, "messages": []object{{"role": "user", "content": "hello"}}})
	eventually(t, "the engine is asked", func() bool { return len(r.engine.Calls()) == 1 })
	id := r.engine.Calls()[0].RequestID
	for _, path := range []string{"/v1/traces/" + id, "/v1/traces/" + id + "?include=bodies", "/v1/traces/" + id + "/boundary"} {
		says := r.get(path)
		says.problem(404, "not_found")
		require.Contains(t, string(says.body), `the call is announced, of rollout \"runs\", since 20`)
		require.Contains(t, string(says.body), "has not ended")
	}
	_, stderr, err := command(t, nil, "trace", id, "--server", r.url)
	require.Error(t, err)
	require.Contains(t, stderr, "has not ended")
	unknown := r.get("/v1/traces/" + strings.Repeat("0", 12))
	unknown.problem(404, "not_found")
	require.Contains(t, string(unknown.body), "nothing is stored under this id")
	gate.Open()
	for buf := make([]byte, 4096); ; {
		if _, err := body.Read(buf); err != nil {
			break
		}
	}
	r.get("/v1/traces/" + id).is(200)
	r.get("/v1/traces/" + id + "/boundary").is(200)
	r.post("/v1/traces/begin", object{"trace_id": "told", "rollout_id": "elsewhere"}).is(200)
	require.Contains(t, string(r.get("/v1/traces/told").body), `of rollout \"elsewhere\", and has not ended`)
}

// The log's last line says that the server ended well.
func TestStopped(t *testing.T) {
	t.Parallel()
	s := start(t, "--log-level=info")
	s.traces(plain("end", "e1", 1, ids(1), ids(2))).is(200)
	s.stop()
	lines := strings.Split(strings.TrimSpace(s.stderr.String()), "\n")
	require.Contains(t, lines[len(lines)-1], "msg=stopped")
}

// A store that takes nothing refuses calls at once, and in time: no engine is asked.
func TestFullDiskRefusesCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, "engines: [{url: ENGINE/vllm, name: gpu-0}]\nmodels: {policy: {}}\nlimits: {begin_timeout: 1h}\n",
		scripts{"policy": {Turns: []enginetest.Turn{{Text: "never"}}}}, "--disk-floor=1000TB")
	for _, stream := range []bool{false, true} {
		a := r.askGateway("full/v1/chat/completions", encode(object{"model": "policy", "stream": stream, "messages": []object{{"role": "user", "content": "hello"}}}))
		a.is(503)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.Contains(t, string(a.body), "storage_failed")
	}
	require.Empty(t, r.engine.Calls())
	r.get("/v1/rollouts/full").problem(404, "not_found")
}
