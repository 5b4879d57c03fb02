package turn_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/turn"
)

func TestAnchorRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := turn.Anchor{TraceID: rapid.String().Draw(t, "trace"), Reasoning: rapid.String().Draw(t, "reasoning")}
		raw, err := base64.StdEncoding.DecodeString(a.Seal())
		require.NoError(t, err, "it is base64 as a whole")
		for _, sealed := range []string{a.Seal(), base64.URLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw)} {
			back, ours := turn.OpenAnchor(sealed)
			require.True(t, ours)
			require.Equal(t, a, back)
		}
	})
}

func TestForeignAnchors(t *testing.T) {
	t.Parallel()
	seal := turn.Anchor{TraceID: "t", Reasoning: "r"}.Seal()
	for _, sealed := range []string{"", "EqQBCg", "icecore1", "icecore1.", "icecore1!", "icecore1AAAA", seal[:len(seal)-4], strings.Replace(seal, "1", "2", 1)} {
		_, ours := turn.OpenAnchor(sealed)
		require.False(t, ours, sealed)
	}
}

// A few bytes that inflate to a lot, many times over.
func TestAnchorsAreBounded(t *testing.T) {
	t.Parallel()
	bomb := turn.Anchor{TraceID: "t", Reasoning: strings.Repeat("a", 8<<20)}.Seal()
	require.Less(t, len(bomb), 1<<16)
	var r turn.Request
	var err error
	opened := 0
	for ; err == nil && opened < 100; opened++ {
		_, _, err = r.Anchor(bomb, "messages[0]")
	}
	var fault *turn.Fault
	require.ErrorAs(t, err, &fault)
	require.Equal(t, 413, fault.Status)
	require.Equal(t, 9, opened)
	require.Equal(t, map[int]string{0: "t"}, r.Anchors)
}
