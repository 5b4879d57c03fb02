package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
)

func trim(s string) string { return strings.Trim(s, "\n") }

// No id is lost in any generation, from the first call on; the way is found out by
// asking and remembered.
func TestGenerationsOfSGLang(t *testing.T) {
	t.Parallel()
	for face, streamed := range map[string][]bool{
		"sglang-0.5.13": {false, false, false},
		// The 400 to ids in a stream comes once (row 7).
		"sglang-30917":  {false, true, false, false},
		"sglang-sglext": {false, true, true},
	} {
		t.Run(face, func(t *testing.T) {
			t.Parallel()
			rig := setUp(t, face, enginetest.Script{Turns: []enginetest.Turn{{Reasoning: "hm", Text: "Hello"}}})
			e := one(t, rig.pool)
			require.Equal(t, engine.KindSGLang, e.Kind())
			for range 3 {
				r := well(t, call(t, e, ask("hi")))
				exact(t, rig.last(), 0, r.sampled(0))
				require.Equal(t, "Hello", trim(r.text(0)))
				require.Equal(t, "hm", trim(*r.gather.Message(0).Reasoning))
				require.Equal(t, "stop", r.sampled(0).Finish)
			}
			var got []bool
			refused := 0
			for _, entry := range rig.Calls() {
				got = append(got, entry.Stream)
				if entry.Status == 400 {
					refused++
				}
			}
			require.Equal(t, streamed, got)
			require.LessOrEqual(t, refused, 1)
		})
	}
}

// A server that begins to tell no ids in its stream is asked otherwise from then on.
func TestSglextThatStops(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "sglang-sglext", enginetest.Script{})
	e := one(t, rig.pool)
	for range 2 {
		well(t, call(t, e, ask("hi")))
	}
	require.True(t, rig.last().Stream)
	rig.Script("policy", enginetest.Script{IDs: enginetest.IDs{Answer: "none"}})
	r := well(t, call(t, e, ask("hi")))
	require.Nil(t, r.sampled(0).IDs)
	require.Contains(t, r.sampled(0).Flags, "ids_missing")
	rig.Script("policy", enginetest.Script{})
	for range 2 {
		r = well(t, call(t, e, ask("hi")))
		exact(t, rig.last(), 0, r.sampled(0))
		require.False(t, rig.last().Stream, "it lost ids once")
	}
}

func TestIDsInDeltasOfSGLang(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "sglang-30917", enginetest.Script{Server: enginetest.Server{StreamIDs: true}})
	e := one(t, rig.pool)
	for range 3 {
		r := well(t, call(t, e, ask("hi")))
		s := r.sampled(0)
		require.Equal(t, rig.last().Choices[0].IDs, s.IDs)
		require.Equal(t, rig.last().Choices[0].Logprobs, s.Logprobs.Values)
	}
	require.True(t, rig.last().Stream)
}

// Row 11: spans where the engine tells them.
func TestVersionSpans(t *testing.T) {
	t.Parallel()
	script := enginetest.Script{Turns: []enginetest.Turn{{Text: "a text", Length: 80}},
		Weights: enginetest.Weights{BumpAt: 57, BumpTo: "8", Spans: true}}
	rig := setUp(t, "sglang-0.5.13", script)
	rig.SetVersion("7")
	e := one(t, rig.pool)
	n, text := e.Version(t.Context(), 0)
	require.Equal(t, int64(7), *n)
	require.Equal(t, "7", text)
	s := well(t, call(t, e, ask("hi"))).sampled(0)
	require.Len(t, s.Versions, 2)
	require.EqualValues(t, 57, s.Versions[1].Start)
	require.EqualValues(t, 7, s.Versions[0].Version)
	require.EqualValues(t, 8, s.Versions[1].Version)
	require.Equal(t, "8", s.Told)

	// Without spans nothing is guessed.
	script.Weights.Spans = false
	rig.Script("policy", script)
	rig.SetVersion("v7")
	s = well(t, call(t, e, ask("hi"))).sampled(0)
	require.Nil(t, s.Versions)
	n, text = e.Version(t.Context(), 0)
	require.Equal(t, int64(8), *n)
	require.Equal(t, "8", text)

	// Versions that are no numbers stay texts.
	script.Weights.Spans, script.Weights.BumpTo = true, "v8"
	rig.Script("policy", script)
	rig.SetVersion("v7")
	s = well(t, call(t, e, ask("hi"))).sampled(0)
	require.Nil(t, s.Versions)
	require.Equal(t, []string{"v7", "v8"}, s.VersionStrings)
	n, text = e.Version(t.Context(), 0)
	require.Nil(t, n)
	require.Equal(t, "v8", text)
}
