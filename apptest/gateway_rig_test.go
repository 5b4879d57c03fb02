package apptest

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// rig is a server with a gateway, before a test engine in this process.
type rig struct {
	*server
	engine *enginetest.Engine
	at     string // the engine's address
}

// scripts are what models answer, by their names.
type scripts = map[string]enginetest.Script

// newRig starts one; ENGINE in settings is the engine's address.
func newRig(t *testing.T, settings string, models scripts, args ...string) *rig {
	t.Helper()
	e, at := engines(t)
	for name, script := range models {
		e.Script(name, script)
	}
	file := tempFile(t, []byte(strings.ReplaceAll(settings, "ENGINE", at)))
	return &rig{start(t, append([]string{"--gateway=" + file}, args...)...), e, at}
}

// plainRig has one engine like vLLM, and defaults.
func plainRig(t *testing.T, script enginetest.Script) *rig {
	t.Helper()
	return newRig(t, "engines: [{url: ENGINE/vllm, name: gpu-0}]\nmodels: {policy: {}}\n", scripts{"policy": script})
}

// in is the rig for a test within the test.
func (r *rig) in(t *testing.T) *rig {
	inner := *r.server
	inner.t = t
	return &rig{&inner, r.engine, r.at}
}

// askGateway calls below /gateway and gives what the harness gets to see.
func (s *server) askGateway(path string, body []byte, headers ...string) *answer {
	s.t.Helper()
	return s.send(http.MethodPost, "/gateway/"+path, body, append([]string{"Content-Type", typeJSON}, headers...)...)
}

// fullCall is a trace with all that tells of the gateway.
type fullCall struct {
	keptCall
	Kind       string
	ToolsHash  string `json:"tools_hash"`
	Sampling   map[string]any
	Usage      map[string]any
	Metadata   struct{ Gateway told }
	StartedAt  string          `json:"started_at"`
	FirstToken string          `json:"first_token_at"`
	FinishedAt string          `json:"finished_at"`
	Harness    string          `json:"harness"`
	HarnessVer string          `json:"harness_version"`
	Error      string          `json:"error"`
	Incomplete bool            `json:"ids_incomplete"`
	Group      string          `json:"choice_group"`
	Index      *int64          `json:"choice_index"`
	Sent       json.RawMessage `json:"request"`
	Got        json.RawMessage `json:"response"`
}

// told is metadata.gateway.
type told struct {
	Engine         string
	EngineKind     string `json:"engine_kind"`
	RequestedModel string `json:"requested_model"`
	Stream         bool
	Flags          []string
	Rewrites       []struct{ Kind, Detail string }
	Anchors        map[string]string
	Session        string
	Thread         string `json:"agent_thread"`
	Parent         string `json:"parent_thread"`
	RetryOf        string `json:"retry_of"`
	Attempt        int
	RequestHash    string `json:"request_hash"`
	Continuity     struct{ Label string }
	Versions       map[string]any
	Headers        map[string]string
	Attempts       []struct{ Engine, Fault string } `json:"engine_attempts"`
}

// full reads a trace whole.
func (s *server) full(id string) (c fullCall) {
	s.t.Helper()
	s.get(path("traces", id) + "?include=bodies").is(200).into(&c)
	return c
}

// fullOf reads a rollout's traces in the order of their seq.
func (s *server) fullOf(rollout string) (out []fullCall) {
	s.t.Helper()
	for _, c := range s.keptCalls(rollout) {
		out = append(out, s.full(c.TraceID))
	}
	return out
}

// entryOf is what the engine noted of the call with this trace's id. (What it refused, as
// old ones do ids in streams, is asked again.)
func entryOf(t *testing.T, traceID string, of ...*enginetest.Engine) enginetest.Entry {
	t.Helper()
	var found []enginetest.Entry
	for _, e := range of {
		for _, entry := range e.Calls() {
			if entry.RequestID == traceID && len(entry.Choices) > 0 {
				found = append(found, entry)
			}
		}
	}
	require.Len(t, found, 1, "the engine sampled for the call once, and knows it by its trace id")
	return found[0]
}

// agrees demands that a whole trace holds what the engine read and sampled, bit by bit.
func agrees(t *testing.T, c keptCall, entry enginetest.Entry, choice int) {
	t.Helper()
	truth := entry.Choices[choice]
	require.Equal(t, entry.PromptIDs, c.Prompt)
	require.Equal(t, truth.IDs, c.Response)
	require.Len(t, c.Logprobs, len(truth.Logprobs))
	for i, p := range c.Logprobs {
		require.NotNil(t, p)
		require.Equal(t, truth.Logprobs[i], *p, "position %d", i)
	}
}

// listenAnywhere takes a free port.
func listenAnywhere(t *testing.T) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// event is one of a stream.
type event struct {
	name string
	data string
}

// eventsOf reads server-sent events; comments are passed over.
func eventsOf(body []byte) (out []event) {
	for block := range bytes.SplitSeq(body, []byte("\n\n")) {
		var e event
		for line := range strings.SplitSeq(string(block), "\n") {
			if v, ok := strings.CutPrefix(line, "event: "); ok {
				e.name = v
			}
			if v, ok := strings.CutPrefix(line, "data: "); ok {
				e.data += v
			}
		}
		if e.data != "" {
			out = append(out, e)
		}
	}
	return out
}

// openStream begins a streamed call and comes back with its body once the headers are there.
func openStream(t *testing.T, s *server, path string, body any, headers ...string) io.ReadCloser {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/gateway/"+path, bytes.NewReader(encode(body)))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := newHTTP().Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return resp.Body
}
