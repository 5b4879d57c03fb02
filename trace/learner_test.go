package trace

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLearnerLogprobsValidate(t *testing.T) {
	t.Parallel()
	values := func(v ...float32) *Logprobs { return &Logprobs{Values: v} }
	for field, l := range map[string]LearnerLogprobs{
		"trajectory_id":  {PolicyVersion: 1, Logprobs: values(-1)},
		"policy_version": {TrajectoryID: "tr_1", PolicyVersion: -1, Logprobs: values(-1)},
		"logprobs":       {TrajectoryID: "tr_1"},
	} {
		err := l.Validate()
		require.NotNil(t, err, field)
		require.Equal(t, field, err.Field)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	l := LearnerLogprobs{TrajectoryID: "tr_1", Logprobs: values(-3, -1, inf, nan)}
	require.Nil(t, l.Validate())
	require.Equal(t, &Logprobs{Values: []float32{0, -1, inf, 0}, Known: []bool{false, true, true, false}}, l.Logprobs,
		"NaN is not known, an infinity is a value; nothing is before the first token")
}
