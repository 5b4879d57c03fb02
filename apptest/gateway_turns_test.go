package apptest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// thinker thinks, calls a tool, and answers when it has the result.
var thinker = enginetest.Script{Turns: []enginetest.Turn{
	{Reasoning: "I should look.", Text: "Let me see.", Calls: []enginetest.Call{{Name: "bash", Arguments: `{"command": "ls -a"}`}}},
	{Reasoning: "Now I know.", Text: "There is été.txt, and “nothing” else."},
}}

// TestTurnsOfEachAPI: for each API, streamed and not, before each engine that tells ids, a
// harness asks, is answered with thinking and a call, sends that back with the result, and
// is answered again. Every id and log-probability is the engine's; what else a trace tells
// is as it was.
func TestTurnsOfEachAPI(t *testing.T) {
	t.Parallel()
	for face, kind := range map[string]string{"vllm": "vllm", "sglang-0.5.13": "sglang", "sglang-30917": "sglang", "sglang-sglext": "sglang"} {
		outer := newRig(t, "engines: [{url: ENGINE/"+face+", name: gpu-0}]\nmodels: {policy: {}}\n", scripts{"policy": thinker})
		for _, a := range apis {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, stream %v", face, a.name, stream), func(t *testing.T) {
					t.Parallel()
					r := outer.in(t)
					rollout := fmt.Sprintf("%s-%v", a.name, stream)
					traces := r.twoTurns(t, a, rollout, stream)
					require.Equal(t, kind, traces[0].Metadata.Gateway.EngineKind)
					r.comesTogether(t, a, rollout, traces)
				})
			}
		}
	}
}

// twoTurns plays them and looks at each trace.
func (r *rig) twoTurns(t *testing.T, a api, rollout string, stream bool) (traces []fullCall) {
	t.Helper()
	var history []any
	for n, turn := range thinker.Turns {
		sent := encode(a.turn(history, stream))
		got := r.askGateway(rollout+"/"+a.path(stream), sent, "User-Agent", "codex_exec/0.171.0 (Linux)").is(200)
		h := a.heard(t, got.body, stream)
		require.Equal(t, turn.Reasoning, trimmed(h.reasoning))
		require.Equal(t, turn.Text, trimmed(h.text))
		c := r.full(got.header.Get("Icecore-Trace-Id"))
		entry := entryOf(t, c.TraceID, r.engine)
		require.Equal(t, "done", entry.Ended)
		agrees(t, c.keptCall, entry, 0)
		require.Equal(t, len(c.Prompt), h.in, "the harness is told what was read")
		require.Equal(t, len(c.Response), h.out)
		require.Equal(t, h.finish, *c.FinishReason)
		if len(turn.Calls) > 0 {
			require.Equal(t, "bash", h.tool)
			require.JSONEq(t, turn.Calls[0].Arguments, h.arguments)
			history = append(slices.Clone(h.items), a.result(h.callID, "été.txt"))
		}
		looksWhole(t, c, a, rollout, stream, sent, got)
		require.Equal(t, int64(n+1), *c.Seq)
		traces = append(traces, c)
	}
	require.Equal(t, "first", traces[0].Metadata.Gateway.Continuity.Label)
	if a.sameText {
		require.Equal(t, "extends", traces[1].Metadata.Gateway.Continuity.Label)
	}
	return traces
}

// trimmed leaves out the line breaks that a template puts around a text.
func trimmed(text string) string {
	for len(text) > 0 && text[len(text)-1] == '\n' {
		text = text[:len(text)-1]
	}
	for len(text) > 0 && text[0] == '\n' {
		text = text[1:]
	}
	return text
}

// looksWhole demands every field that a trace of the gateway has.
func looksWhole(t *testing.T, c fullCall, a api, rollout string, stream bool, sent []byte, got *answer) {
	t.Helper()
	require.Equal(t, []string{rollout, a.name, "policy", "ok", "agent"}, []string{c.RolloutID, c.API, c.Model, c.Status, c.Kind})
	if *c.Seq == 1 { // later the rollout has it
		require.Equal(t, "codex 0.171.0", c.Harness+" "+c.HarnessVer)
	}
	require.Regexp(t, "^[0-9a-f]{64}$", c.ToolsHash)
	require.Equal(t, json.Number("0.5"), c.Sampling["temperature"])
	require.Equal(t, len(c.Prompt), num(c.Usage["prompt_tokens"]))
	require.Equal(t, len(c.Response), num(c.Usage["completion_tokens"]))
	require.False(t, c.Incomplete)
	require.Empty(t, c.Error)
	require.Empty(t, c.Group)
	var times []time.Time
	for _, text := range []string{c.StartedAt, c.FirstToken, c.FinishedAt} {
		at, err := time.Parse(time.RFC3339Nano, text)
		require.NoError(t, err)
		times = append(times, at)
	}
	require.True(t, slices.IsSortedFunc(times, time.Time.Compare), "%v", times)
	m := c.Metadata.Gateway
	require.Equal(t, "gpu-0", m.Engine)
	require.NotEqual(t, "policy", m.RequestedModel)
	require.Equal(t, stream, m.Stream)
	require.Equal(t, 1, m.Attempt)
	require.Empty(t, m.RetryOf)
	require.Regexp(t, "^[0-9a-f]{64}$", m.RequestHash)
	require.NotEmpty(t, m.Thread)
	require.Equal(t, "codex_exec/0.171.0 (Linux)", m.Headers["user-agent"])
	require.Empty(t, m.Flags)
	require.JSONEq(t, string(sent), string(c.Sent))
	if stream {
		var text string
		require.NoError(t, json.Unmarshal(c.Got, &text))
		require.Equal(t, string(got.body), text, "the bytes that the harness got")
		return
	}
	require.JSONEq(t, string(got.body), string(c.Got))
}

// comesTogether looks at the rollout as a learner and as SQL do.
func (r *rig) comesTogether(t *testing.T, a api, rollout string, traces []fullCall) {
	t.Helper()
	m := r.merged(rollout, "")
	if a.sameText {
		require.Len(t, m.Trajectories, 1)
		require.Equal(t, append(slices.Clone(traces[1].Prompt), traces[1].Response...), m.Trajectories[0].TokenIDs)
		require.Equal(t, traces[0].Response, m.Trajectories[0].TokenIDs[len(traces[0].Prompt):][:len(traces[0].Response)])
	}
	trained := 0
	for _, tr := range m.Trajectories {
		for _, mask := range tr.LossMask {
			trained += int(mask)
		}
	}
	require.Equal(t, len(traces[0].Response)+len(traces[1].Response), trained)
	rows := r.rowsOf(fmt.Sprintf(`SELECT metadata ->> '$.gateway.engine', metadata ->> '$.gateway.request_hash', api, harness, len(response_token_ids)
		FROM traces WHERE rollout_id = '%s' ORDER BY seq`, rollout))
	require.Len(t, rows, 2)
	for i, row := range rows {
		require.Equal(t, []any{"gpu-0", traces[i].Metadata.Gateway.RequestHash, a.name, "codex", json.Number(itoa(len(traces[i].Response)))}, row)
	}
}
