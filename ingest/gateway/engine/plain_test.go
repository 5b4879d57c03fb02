package engine_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/ingest/gateway/engine"
)

// A server without ids is served all the same; one that refuses unknown members gets
// them once.
func TestPlainServers(t *testing.T) {
	t.Parallel()
	for _, refuses := range []bool{false, true} {
		rig := setUp(t, "plain", enginetest.Script{Turns: text, Server: enginetest.Server{RefuseUnknown: refuses}})
		e := one(t, rig.pool)
		require.Equal(t, engine.KindOpenAI, e.Kind())
		for range 2 {
			r := well(t, call(t, e, ask("hi")))
			require.Equal(t, text[0].Text, r.text(0))
			s := r.sampled(0)
			require.Nil(t, s.IDs)
			require.Nil(t, s.PromptIDs)
			require.Contains(t, s.Flags, "ids_missing")
			require.Contains(t, s.Flags, "prompt_ids_missing")
			require.Equal(t, "stop", s.Finish)
		}
		refused := 0
		for _, entry := range rig.Calls() {
			if entry.Status == 400 {
				refused++
			}
		}
		if refuses {
			require.Equal(t, 2, refused, "each member once")
		} else {
			require.Zero(t, refused)
		}
	}
}

// A server may end its stream without [DONE] where nothing else is missing.
func TestPlainServerWithoutDone(t *testing.T) {
	t.Parallel()
	rig := setUp(t, "plain", broken("no_done", 0))
	r := call(t, one(t, rig.pool), ask("hi"))
	require.ErrorIs(t, r.err, io.EOF)
	require.Contains(t, r.sampled(0).Flags, "done_missing")
}
