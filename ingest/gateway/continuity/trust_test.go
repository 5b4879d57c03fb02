package continuity

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

func TestTrust(t *testing.T) {
	t.Parallel()
	var trust Trust
	e := Source{Name: "e"}
	a, b, f := []int32{1, 2}, []int32{1, 3}, []string{"x"}
	require.False(t, trust.Trusted(e, nil), "never seen")
	require.True(t, trust.Seen(e, f, a, nil), "the engine told no ids")
	require.True(t, trust.Seen(e, f, nil, a), "there was no rendering")
	require.False(t, trust.Trusted(e, nil))
	require.True(t, trust.Seen(e, f, a, []int32{1, 2}))
	require.True(t, trust.Trusted(e, nil))
	require.True(t, trust.Trusted(e, f))
	require.False(t, trust.Trusted(e, []string{"x", "y"}), "nobody has seen y")
	require.True(t, trust.Seen(e, []string{"y"}, b, b))
	require.True(t, trust.Trusted(e, []string{"x", "y"}))
	require.False(t, trust.Seen(e, f, a, b))
	require.True(t, trust.Seen(e, f, a, a), "this one agrees, but once is enough")
	require.False(t, trust.Trusted(e, nil))
	require.True(t, trust.Disagreed(e))
	require.False(t, trust.Disagreed(Source{Name: "f"}), "sources are apart")

	next := Source{Name: "e", Life: 1}
	require.False(t, trust.Disagreed(next), "it is another now")
	require.True(t, trust.Seen(next, f, a, a))
	require.True(t, trust.Trusted(next, f))
	require.False(t, trust.Seen(e, f, a, b), "it came late")
	require.True(t, trust.Trusted(next, f))
	require.False(t, trust.Trusted(e, f))
	require.False(t, trust.Trusted(Source{Name: "e", Life: 2}, nil))
}

func TestFeaturesTellWhatATemplateMayTreatDifferently(t *testing.T) {
	t.Parallel()
	first := &turn.Request{Messages: history}
	require.Equal(t, []string{"start>system+text", "system+text>user+text", "user+text>end"}, Features(first))
	second := &turn.Request{Messages: append(slices.Clone(history), answer, tool), Tools: []turn.Tool{{Name: "f"}}}
	require.Equal(t, []string{
		"assistant+reasoning+text+call>tool+text", "start>system+text", "system+text>user+text", "tool+text>end", "tools",
		"user+text>assistant+reasoning+text+call",
	}, Features(second))
	twice := &turn.Request{Messages: append(slices.Clone(second.Messages), tool), Tools: second.Tools}
	require.Contains(t, Features(twice), "tool+text>tool+text")
	require.Equal(t, []string{"start>end"}, Features(&turn.Request{}))
}
