package apptest

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// TestStreamIsReal: what the engine has made is at the harness before the engine goes
// on, in each API.
func TestStreamIsReal(t *testing.T) {
	t.Parallel()
	e, at := engines(t)
	s := start(t, "--engine="+at+"/vllm")
	for n, a := range apis {
		gate := &enginetest.Gate{}
		text := strings.Repeat("word ", 5) + "last"
		e.Script("policy", enginetest.Script{Turns: []enginetest.Turn{{Text: text}}, Chunks: enginetest.Chunks{Sizes: []int{1}}, Time: enginetest.Time{Gate: gate}})
		body := openStream(t, s, "real"+itoa(n)+"/"+a.path(true), a.turn(nil, true))
		lines := bufio.NewReader(body)
		for range 3 {
			gate.Step(5)
			// The engine stands at its gate: no further id comes before these are read.
			for seen := false; !seen; {
				line, err := lines.ReadString('\n')
				require.NoError(t, err, a.name)
				seen = strings.HasPrefix(line, "data:") && strings.Contains(line, `"w`)
			}
		}
		gate.Open()
		for {
			if _, err := lines.ReadString('\n'); err != nil {
				require.ErrorContains(t, err, "EOF")
				break
			}
		}
		require.Equal(t, "ok", s.keptCalls("real" + itoa(n))[0].Status)
	}
}

// TestClientLeaves: before and after the first byte, what was sampled until then is kept,
// the engine is let go, and the trace says that nobody waited.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	e, at := engines(t)
	s := start(t, "--engine="+at+"/vllm")
	for n, a := range apis {
		gate := &enginetest.Gate{}
		e.Script("policy", enginetest.Script{Turns: []enginetest.Turn{{Text: strings.Repeat("word ", 50)}}, Time: enginetest.Time{Gate: gate}})
		gate.Step(7)
		rollout := "left" + itoa(n)
		body := openStream(t, s, rollout+"/"+a.path(true), a.turn(nil, true))
		require.NoError(t, gate.Arrived(t.Context(), 8))
		require.NoError(t, body.Close())
		eventually(t, "the trace is there", func() bool {
			got, err := s.try(http.MethodGet, path("rollouts", rollout), nil)
			return err == nil && strings.Contains(string(got.body), `"traces":1,`)
		})
		c := s.fullOf(rollout)[0]
		require.Equal(t, "client_gone", c.Status)
		require.Len(t, c.Response, 7)
		entry := entryOf(t, c.TraceID, e)
		require.Equal(t, entry.PromptIDs, c.Prompt)
		require.Equal(t, entry.Choices[0].IDs[:7], c.Response)
		require.Contains(t, []string{"client_gone", "aborted"}, entry.Ended)
		eventually(t, "the engine is let go", func() bool { return e.Running() == 0 })
	}
}

// TestStopWithManyStreams: a stop with open streams in every API breaks each off, keeps
// what was sampled, and leaves no announcement.
func TestStopWithManyStreams(t *testing.T) {
	t.Parallel()
	e, at := engines(t)
	gate := &enginetest.Gate{}
	e.Script("policy", enginetest.Script{Turns: []enginetest.Turn{{Text: strings.Repeat("word ", 50)}}, Time: enginetest.Time{Gate: gate}})
	s := start(t, "--engine="+at+"/vllm", "--stop-timeout=300ms")
	type open struct {
		rollout string
		lines   *bufio.Reader
	}
	var streams []open
	for _, a := range apis {
		for n := range 3 {
			rollout := "stop-" + a.name + itoa(n)
			streams = append(streams, open{rollout, bufio.NewReader(openStream(t, s, rollout+"/"+a.path(true), a.turn(nil, true)))})
		}
	}
	gate.Step(10 * len(streams))
	require.NoError(t, gate.Arrived(t.Context(), 11*len(streams)))
	began := time.Now()
	s.stop()
	require.Less(t, time.Since(began), patience/2)
	for _, o := range streams {
		var err error
		for err == nil {
			_, err = o.lines.ReadString('\n')
		}
		require.ErrorContains(t, err, "unexpected EOF", "%s must not end like a whole one", o.rollout)
	}
	s = startOn(t, s.dir, nil)
	sampled := 0
	for _, o := range streams {
		c := s.fullOf(o.rollout)
		require.Len(t, c, 1)
		require.Equal(t, "aborted", c[0].Status)
		entry := entryOf(t, c[0].TraceID, e)
		require.Equal(t, entry.Choices[0].IDs[:len(c[0].Response)], c[0].Response)
		sampled += len(c[0].Response)
		r, _ := s.rollout(o.rollout)
		require.Zero(t, r.OpenIntents)
	}
	require.Equal(t, 10*len(streams), sampled, "whoever had the most, none of it is lost")
}
