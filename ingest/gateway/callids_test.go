package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/parser"
	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
)

func TestCallIDsAreFilled(t *testing.T) {
	t.Parallel()
	m := callIDs{traces: []string{"t-0", "t-1"}}
	fill := func(choice int, calls ...turn.CallDelta) []turn.CallDelta {
		m.fill([]turn.Delta{{Choice: choice, Text: "x"}, {Choice: choice, Calls: calls}})
		return calls
	}
	id := parser.CallID
	require.Equal(t, "theirs", fill(0, turn.CallDelta{Index: 0, ID: "theirs", Name: "f"})[0].ID)
	require.Empty(t, fill(0, turn.CallDelta{Index: 0, Arguments: "{"})[0].ID, "it was said")
	require.False(t, m.minted)
	require.Equal(t, id("t-0", 1), fill(0, turn.CallDelta{Index: 1, Name: "f"})[0].ID)
	require.Empty(t, fill(0, turn.CallDelta{Index: 1, Arguments: "{"})[0].ID)
	require.Empty(t, fill(0, turn.CallDelta{Index: 1, ID: "late"})[0].ID, "the harness has ours")
	require.Equal(t, id("t-1", 1), fill(1, turn.CallDelta{Index: 1, Name: "f"})[0].ID, "choices are apart")
	require.Empty(t, fill(0, turn.CallDelta{Index: 2})[0].ID, "nothing is said yet")
	require.Equal(t, "now", fill(0, turn.CallDelta{Index: 2, ID: "now", Name: "f"})[0].ID)
	require.NotEqual(t, id("t-0", 1), id("t-0", 2))
	require.True(t, m.minted)
}

// Calls that the engine gave no ids have the gateway's: the harness's history is that
// which continuity holds, in every API, streamed or not.
func TestCallsWithoutIDs(t *testing.T) {
	t.Parallel()
	for api := range loops {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			s := drifting()
			s.Server.TokenizeMessages, s.Chunks.NoCallIDs = true, true
			r := newRig(t, "sglang-sglext", s, func(o *Options, _ *fixed, _ *memory) {
				m := settings.DefaultModel("policy")
				m.Continuity = settings.ContinuityExactText
				o.Settings.Models = []*settings.Model{m}
			})
			first := runAgent(t, r, api)
			require.Contains(t, string(first[0].ResponseBody), parser.CallID(first[0].TraceID, 0))
			require.Contains(t, meta(t, first[0])["flags"], flagCallIDs)
			require.Contains(t, string(r.engine.Calls()[1].Body), parser.CallID(first[0].TraceID, 0), "it comes back")
			runAgent(t, r, api)
			_, why := whys(t, r, len(first))
			require.Equal(t, map[string]int{"no_match": 1}, why, "of a conversation begun anew")
		})
	}
	// The ids of a stream are made in the same way.
	s := drifting()
	s.Chunks.NoCallIDs = true
	r := newRig(t, "vllm", s)
	_, text, broke := r.post("r/v1/chat/completions", streamed(hello+`,"tools":[{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}}]}`))
	require.NoError(t, broke)
	require.Contains(t, text, parser.CallID(r.store.wait(t, 1)[0].TraceID, 0))
}
