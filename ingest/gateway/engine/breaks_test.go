package engine_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

func broken(kind string, at int) enginetest.Script {
	return enginetest.Script{Turns: text, Faults: []enginetest.Fault{{Kind: kind, At: at, Status: 500, Message: "CUDA is lost"}}}
}

// Rows 4 and 5, and other ways in which an answer does not come to its end.
func TestAnswersThatDoNotEnd(t *testing.T) {
	t.Parallel()
	for _, face := range []string{"vllm", "sglang-sglext"} {
		for kind, code := range map[string]string{
			"abort":       turn.CodeAborted,
			"no_finish":   turn.CodeAborted,
			"cut_clean":   turn.CodeEngineBroke,
			"cut_broken":  turn.CodeEngineBroke,
			"no_done":     turn.CodeEngineBroke,
			"error_event": turn.CodeEngineError,
		} {
			t.Run(face+" "+kind, func(t *testing.T) {
				t.Parallel()
				rig := setUp(t, face, enginetest.Script{Turns: text})
				e := one(t, rig.pool)
				if face != "vllm" {
					well(t, call(t, e, ask("hi"))) // from now on it streams
				}
				rig.Script("policy", broken(kind, 5))
				r := call(t, e, ask("hi"))
				f := fault(t, r.err, code)
				s := r.sampled(0)
				if kind != "no_done" { // there all had come but the end itself
					require.NotEqual(t, "stop", s.Finish)
					require.Empty(t, r.ends)
				}
				truth := rig.last()
				if face == "vllm" {
					require.Equal(t, truth.PromptIDs, s.PromptIDs)
					require.Equal(t, truth.Choices[0].IDs[:len(s.IDs)], s.IDs)
					require.GreaterOrEqual(t, len(s.IDs), 5)
					require.Equal(t, truth.Choices[0].Logprobs[:len(s.IDs)], s.Logprobs.Values)
				}
				switch kind {
				case "abort":
					require.Equal(t, "abort", s.Finish)
				case "error_event":
					require.Equal(t, 500, f.Status)
					require.Contains(t, f.Message, "CUDA is lost")
				}
				_, again := r.stream.Next(t.Context())
				require.Equal(t, r.err, again)
			})
		}
	}
}

// Row 6: aborted while it waited, nothing was sampled.
func TestAbortedBeforeTheFirstToken(t *testing.T) {
	t.Parallel()
	for _, face := range []string{"vllm", "sglang-0.5.13", "sglang-30917", "sglang-sglext"} {
		t.Run(face, func(t *testing.T) {
			t.Parallel()
			rig := setUp(t, face, enginetest.Script{Turns: text})
			e := one(t, rig.pool)
			well(t, call(t, e, ask("hi")))
			well(t, call(t, e, ask("hi")))
			rig.Script("policy", broken("abort", 0))
			r := call(t, e, ask("hi"))
			_ = fault(t, r.err, turn.CodeAborted)
			require.NotNil(t, r.sampled(0).IDs)
			require.Empty(t, r.sampled(0).IDs)
		})
	}
}

// A caller that leaves closes the connection, and the abort route is called as well.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, face := range []string{"vllm", "sglang-sglext"} {
		for _, how := range []string{"context of Do", "context of Next", "Close"} {
			t.Run(face+" "+how, func(t *testing.T) {
				t.Parallel()
				// The engine is deaf: it goes on when its client leaves, until it is aborted.
				script := enginetest.Script{Turns: text, Time: enginetest.Time{NeverEnds: true},
					Faults: []enginetest.Fault{{Kind: "deaf"}}}
				rig := setUp(t, face, enginetest.Script{Turns: text})
				e := one(t, rig.pool)
				well(t, call(t, e, ask("hi")))
				rig.Script("policy", script)
				do, cancelDo := context.WithCancel(t.Context())
				next, cancelNext := context.WithCancel(t.Context())
				defer cancelDo()
				defer cancelNext()
				s, err := e.Do(do, ask("hi"))
				require.NoError(t, err)
				for range 3 {
					_, err := s.Next(next)
					require.NoError(t, err)
				}
				require.Equal(t, int64(1), rig.pool.Status()[0].Open)
				switch how {
				case "Close":
					require.NoError(t, s.Close())
				case "context of Do":
					cancelDo()
				default:
					cancelNext()
				}
				r := read(next, s)
				f := fault(t, r.err, turn.CodeAborted)
				require.ErrorContains(t, f, "cancelled")
				if how != "Close" {
					require.ErrorIs(t, r.err, context.Canceled)
				}
				require.NoError(t, s.Close())
				require.Zero(t, rig.pool.Status()[0].Open)
				require.Eventually(t, func() bool { return rig.Running() == 0 }, 10*time.Second, time.Millisecond)
				require.True(t, slices.ContainsFunc(rig.Ledger(), func(entry enginetest.Entry) bool {
					return strings.HasPrefix(entry.Route, "/abort_request")
				}))
				if face == "vllm" {
					got := s.Sampled(0).IDs
					require.NotEmpty(t, got)
					require.Equal(t, rig.last().Choices[0].IDs[:len(got)], got)
				}
			})
		}
	}
}

// Row 33: an abort that the engine ignores harms nobody.
func TestAbortThatIsIgnored(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "vllm", enginetest.Script{Turns: text, Faults: []enginetest.Fault{{Kind: "deaf_abort"}}})
	e := one(t, rig.pool)
	s, err := e.Do(t.Context(), ask("hi"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	r := well(t, call(t, e, ask("hi")))
	exact(t, rig.last(), 0, r.sampled(0))
}

// A caller that leaves while the engine has not even answered its headers: the engine
// is asked to abort there too.
func TestCancelBeforeTheHeaders(t *testing.T) {
	t.Parallel()
	gate := &enginetest.Gate{}
	rig := setUp(t, "vllm", enginetest.Script{Turns: text, Time: enginetest.Time{Headers: gate}})
	e := one(t, rig.pool)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := e.Do(ctx, ask("hi"))
		failed <- err
	}()
	require.NoError(t, gate.Arrived(t.Context(), 1))
	cancel()
	err := <-failed
	_ = fault(t, err, turn.CodeAborted)
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(rig.Ledger(), func(entry enginetest.Entry) bool { return entry.Route == "/abort_requests" })
	}, soon, time.Millisecond)
	require.Zero(t, rig.pool.Status()[0].Open)
}

// A reader that is slow is not silence of the engine.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "vllm", enginetest.Script{Turns: text}, func(o *engine.Options) { o.SilenceTimeout = time.Second })
	s, err := one(t, rig.pool).Do(t.Context(), ask("hi"))
	require.NoError(t, err)
	_, err = s.Next(t.Context())
	require.NoError(t, err)
	slow := time.NewTimer(1300 * time.Millisecond) // it is the reader's own time that is tested
	<-slow.C
	require.ErrorIs(t, read(t.Context(), s).err, io.EOF)
	require.NoError(t, s.Close())
}

func TestSilence(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "vllm", enginetest.Script{Turns: text, Time: enginetest.Time{NeverEnds: true}},
		func(o *engine.Options) { o.SilenceTimeout = 500 * time.Millisecond })
	r := call(t, one(t, rig.pool), ask("hi"))
	f := fault(t, r.err, turn.CodeTimeout)
	require.Equal(t, 504, f.Status)
	require.NotEmpty(t, r.sampled(0).IDs)
}

func TestAnswerTooLarge(t *testing.T) {
	t.Parallel()
	for _, face := range []string{"vllm", "sglang-0.5.13"} {
		rig := setUp(t, face, enginetest.Script{Turns: text}, func(o *engine.Options) { o.MaxAnswerBytes = 2000 })
		r := call(t, one(t, rig.pool), ask("hi"))
		f := fault(t, r.err, turn.CodeEngineError)
		require.Contains(t, f.Message, "too large")
	}
}
