package merge

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/trace"
)

func TestParsePolicy(t *testing.T) {
	for s, want := range map[string]Policy{
		"strict_tree":                          {Name: StrictTree},
		"per_request":                          {Name: PerRequest},
		"polar_compat":                         {Name: PolarCompat},
		"polar_compat(end_of_turn=0)":          endOfTurn(0),
		"polar_compat(end_of_turn=151645)":     endOfTurn(151645),
		"polar_compat(end_of_turn=2147483647)": endOfTurn(math.MaxInt32),
	} {
		got, err := ParsePolicy(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
		require.Equal(t, s, got.String())
	}
	require.Equal(t, "strict_tree", Policy{}.String())
	require.Equal(t, "strict_tree", Policy{Name: StrictTree, EndOfTurn: ptr(int32(3))}.String())
}

func TestParsePolicyRefuses(t *testing.T) {
	for s, says := range map[string]string{
		"":                                     "strict_tree, per_request, polar_compat",
		"strict":                               "strict_tree, per_request, polar_compat",
		"Strict_Tree":                          "strict_tree, per_request, polar_compat",
		" strict_tree":                         "strict_tree, per_request, polar_compat",
		"other(end_of_turn=1)":                 "strict_tree, per_request, polar_compat",
		"strict_tree()":                        "takes no parameter",
		"per_request(end_of_turn=1)":           "takes no parameter",
		"polar_compat()":                       "end_of_turn=N",
		"polar_compat(end_of_turn=)":           "end_of_turn=N",
		"polar_compat(end_of_turn=1":           "end_of_turn=N",
		"polar_compat(end_of_turn=-1)":         "end_of_turn=N",
		"polar_compat(end_of_turn=+1)":         "end_of_turn=N",
		"polar_compat(end_of_turn=01)":         "end_of_turn=N",
		"polar_compat(end_of_turn=2147483648)": "end_of_turn=N",
		"polar_compat(end_of_turn=1) ":         "end_of_turn=N",
		"polar_compat(eot=1)":                  "end_of_turn=N",
	} {
		_, err := ParsePolicy(s)
		require.ErrorContains(t, err, "parse merge policy")
		require.ErrorContains(t, err, says, s)
	}
	require.Panics(t, func() { NewTree().Run(Policy{Name: "other"}) })
}

func TestTrajectoryID(t *testing.T) {
	id := TrajectoryID("r", Policy{}, "t")
	require.Regexp(t, `^tr_[0-9a-f]{32}$`, id)
	// Stored ids depend on this encoding; a change would rename every row.
	require.Equal(t, "tr_6db489752309fd5a78276aba22b3a07a", id)
	require.Equal(t, id, TrajectoryID("r", Policy{Name: StrictTree}, "t"))
	others := map[string]bool{id: true}
	for _, other := range []string{
		TrajectoryID("r2", Policy{}, "t"), TrajectoryID("r", Policy{}, "t2"),
		TrajectoryID("r", Policy{Name: PerRequest}, "t"), TrajectoryID("r", Policy{Name: PolarCompat}, "t"),
		TrajectoryID("r", endOfTurn(1), "t"), TrajectoryID("r", endOfTurn(2), "t"),
	} {
		require.NotContains(t, others, other)
		others[other] = true
	}
	rapid.Check(t, func(t *rapid.T) { // moving bytes from one part to the next makes another id
		s := rapid.StringN(2, 20, -1).Draw(t, "both")
		k := rapid.IntRange(1, len(s)-1).Draw(t, "cut")
		require.NotEqual(t, TrajectoryID(s, Policy{}, ""), TrajectoryID(s[:k], Policy{}, s[k:]))
	})
}

func TestCallOf(t *testing.T) {
	full := trace.Trace{
		TraceID: "a", Seq: ptr(int64(3)), PromptIDs: seqTokens(1), ResponseIDs: []int32{}, IDsIncomplete: true,
		Status: trace.StatusAborted, FinishReason: "stop", ChoiceGroup: "g", ChoiceIndex: ptr(int64(1)),
	}
	require.Equal(t, Call{
		TraceID: "a", Seq: ptr(int64(3)), Prompt: seqTokens(1), Response: seqTokens(), IDsIncomplete: true,
		Status: trace.StatusAborted, FinishReason: "stop", ChoiceGroup: "g", ChoiceIndex: ptr(int64(1)),
	}, CallOf(&full))
	unknown := CallOf(&trace.Trace{TraceID: "b"})
	require.Nil(t, unknown.Prompt)
	require.Nil(t, unknown.Response)
}
