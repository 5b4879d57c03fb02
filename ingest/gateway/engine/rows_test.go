package engine_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

var text = []enginetest.Turn{{Text: "A longer answer, of some twenty tokens."}}

// ids is script with a switch of how ids are told.
func ids(answer string) enginetest.Script {
	return enginetest.Script{Turns: text, IDs: enginetest.IDs{Answer: answer, Tail: 9}}
}

func logs(fault string, at ...int) enginetest.Script {
	return enginetest.Script{Turns: text, Logprobs: enginetest.Logs{Fault: fault, At: at}}
}

// Public faults that an engine causes (gateway.md, section 5, by its number), on vLLM.
func TestPublicFaults(t *testing.T) {
	t.Parallel()
	textless := logs("long")
	textless.Logprobs.NoTokenIDs = true
	for name, row := range map[string]struct {
		script enginetest.Script
		change func(*engine.Call)
		check  func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled)
	}{
		"1 only a tail of ids": {script: ids("tail"), check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			require.True(t, s.Incomplete)
			require.Contains(t, s.Flags, "ids_incomplete")
			require.Contains(t, s.Flags, "logprobs_dropped")
			require.Len(t, s.IDs, 9)
			require.Nil(t, s.Logprobs)
		}},
		"1 without the first": {script: ids("first_missing"), check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			require.True(t, s.Incomplete)
			require.Nil(t, s.Logprobs)
		}},
		"2 the end token is an id and no text": {script: enginetest.Script{Turns: text}, check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			exact(t, truth, 0, s)
			require.Equal(t, enginetest.ImEnd, s.IDs[len(s.IDs)-1])
			require.Equal(t, text[0].Text, r.text(0))
		}},
		"3 ids past a stop text": {script: enginetest.Script{Turns: text, Sampling: enginetest.Sampling{PastStop: 3}},
			change: func(c *engine.Call) {
				c.Request.Sampling = map[string]json.RawMessage{"stop": json.RawMessage(`["some"]`)}
			},
			check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
				require.Equal(t, truth.Choices[0].IDs, s.IDs)
				require.Equal(t, []string{"past_stop"}, s.Flags)
				require.Equal(t, "some", s.StopReason)
				require.Equal(t, []turn.End{{Finish: "stop", StopSequence: "some"}}, r.ends)
				require.Equal(t, "A longer answer, of ", r.text(0))
			}},
		"8 one log-prob too many": {script: logs("long"), check: dropped},
		"8 one too few":           {script: logs("short"), check: dropped},
		"8 shifted by one":        {script: logs("shifted"), check: dropped},
		"8 too many, as texts":    {script: textless, check: dropped},
		"8 none": {script: logs("missing"), check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			require.Nil(t, s.Logprobs)
			require.Equal(t, []string{"logprobs_missing"}, s.Flags)
		}},
		"8 ids in the log-probs alone": {script: ids("in_logprobs"), check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			exact(t, truth, 0, s)
		}},
		"ids in the delta": {script: ids("misplaced"), check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			require.Equal(t, truth.Choices[0].IDs, s.IDs)
		}},
		"9 no prompt ids": {script: enginetest.Script{Turns: text, IDs: enginetest.IDs{Prompt: "absent"}}, check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			require.Nil(t, s.PromptIDs)
			require.Equal(t, truth.Choices[0].IDs, s.IDs)
			require.Equal(t, []string{"prompt_ids_missing"}, s.Flags)
		}},
		"9 prompt ids in the choice": {script: enginetest.Script{Turns: text, IDs: enginetest.IDs{Prompt: "in_choice"}}, check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			exact(t, truth, 0, s)
		}},
		"9 a prompt that is short": {script: enginetest.Script{Turns: text, IDs: enginetest.IDs{Prompt: "short"}}, check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			require.Equal(t, []string{"usage_mismatch_prompt"}, s.Flags)
		}},
		"10 NaN": {script: logs("nan", 0, 3), check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			odd(t, truth, s, func(_ float32, known bool) bool { return !known }, 0, 3)
			require.Equal(t, map[string]any{"logprobs_odd": map[string]any{"0": "NaN", "3": "NaN"}}, s.Raw)
		}},
		"10 -Infinity": {script: logs("-inf", 2), check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			odd(t, truth, s, func(v float32, known bool) bool { return known && math.IsInf(float64(v), -1) }, 2)
		}},
		"10 the floor": {script: logs("floor", 1), check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			odd(t, truth, s, func(_ float32, known bool) bool { return !known }, 1)
			require.Equal(t, map[string]any{"logprobs_floored": map[string]any{"1": -9999.0}}, s.Raw)
		}},
		"10, 34 null": {script: logs("null", 3), check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			odd(t, truth, s, func(_ float32, known bool) bool { return !known }, 3)
			require.Empty(t, s.Raw)
		}},
		"15 text beside an empty list of calls": {script: enginetest.Script{Turns: text, Chunks: enginetest.Chunks{EmptyCalls: true, EmptyEvery: 2, RepeatRole: true}},
			check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
				exact(t, truth, 0, s)
				require.Equal(t, text[0].Text, r.text(0))
				for _, d := range r.deltas {
					require.Empty(t, d.Calls)
				}
			}},
		"a row of NaN made uniform": {script: enginetest.Script{Turns: text, Logprobs: enginetest.Logs{Uniform: true, From: 5}}, check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			require.Equal(t, []string{"uniform_tail"}, s.Flags)
		}},
		"usage that is wrong": {script: enginetest.Script{Turns: text, Chunks: enginetest.Chunks{Usage: "wrong"}}, check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			require.True(t, s.Incomplete)
		}},
		"no usage": {script: enginetest.Script{Turns: text, Chunks: enginetest.Chunks{Usage: "absent"}}, check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			require.Equal(t, []string{"usage_missing"}, s.Flags)
			require.False(t, s.Incomplete)
		}},
		"usage all along, comments, CRLF, and a few bytes at a time": {
			script: enginetest.Script{Turns: text, Chunks: enginetest.Chunks{Usage: "continuous", Comments: true, Lines: "crlf", Bytes: 7, NoRole: true, OldReasoning: true}},
			check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
				exact(t, truth, 0, s)
				require.Equal(t, text[0].Text, r.text(0))
			}},
		"DONE twice": {script: enginetest.Script{Turns: text, Faults: []enginetest.Fault{{Kind: "done_twice"}}}, check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			exact(t, truth, 0, s)
		}},
		"a finish that nobody knows": {script: enginetest.Script{Turns: []enginetest.Turn{{Text: "x", Finish: "repetition"}}}, check: func(t *testing.T, truth enginetest.Entry, r *result, s *engine.Sampled) {
			require.Empty(t, s.Finish, "none is made up")
			require.Equal(t, []string{"finish_unknown"}, s.Flags)
			require.Equal(t, "repetition", s.Raw["finish_reason"])
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig := setUp(t, "vllm", row.script)
			c := ask("hi")
			if row.change != nil {
				row.change(c)
			}
			r := well(t, call(t, one(t, rig.pool), c))
			row.check(t, rig.last(), r, r.sampled(0))
		})
	}
}

func dropped(t *testing.T, truth enginetest.Entry, _ *result, s *engine.Sampled) {
	t.Helper()
	require.Equal(t, truth.Choices[0].IDs, s.IDs)
	require.Nil(t, s.Logprobs)
	require.Equal(t, []string{"logprobs_dropped"}, s.Flags)
}

// odd demands that the positions at are as is says, and their neighbours unmoved.
func odd(t *testing.T, truth enginetest.Entry, s *engine.Sampled, is func(float32, bool) bool, at ...int) {
	t.Helper()
	require.Equal(t, truth.Choices[0].IDs, s.IDs)
	require.NotNil(t, s.Logprobs)
	require.Equal(t, len(s.IDs), s.Logprobs.Len())
	for i, v := range truth.Choices[0].Logprobs {
		got, known := s.Logprobs.At(i)
		strange := false
		for _, k := range at {
			strange = strange || k == i
		}
		if strange {
			require.True(t, is(got, known), "position %d", i)
		} else {
			require.True(t, known)
			require.Equal(t, v, got)
		}
	}
	if s.Raw["logprobs_odd"] != nil {
		require.Equal(t, []string{"logprobs_odd"}, s.Flags)
	} else {
		require.Empty(t, s.Flags)
	}
}
