package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A value that is no log-probability is not known, and told apart; its token and its
// neighbours stay.
func TestImpossibleLogprobs(t *testing.T) {
	t.Parallel()
	const unknown = float32(99)
	for told, row := range map[string]struct {
		value float32
		raw   map[string]any
	}{
		"-0.5":          {-0.5, nil},
		"0":             {0, nil},
		"1e-6":          {1e-6, nil},
		"0.001":         {0.001, nil},
		"0.00100000004": {0.001, nil}, // as float32 it is 0.001
		"-9998.9999999": {unknown, map[string]any{"logprobs_floored": map[string]any{"1": -9998.9999999}}},
		"0.0011":        {unknown, map[string]any{"logprobs_odd": map[string]any{"1": 0.0011}}},
		"2.5":           {unknown, map[string]any{"logprobs_odd": map[string]any{"1": 2.5}}},
		"1e39":          {unknown, map[string]any{"logprobs_odd": map[string]any{"1": 1e39}}},
		"1e400":         {unknown, map[string]any{"logprobs_odd": map[string]any{"1": 1.7976931348623157e308}}},
		"-1e39":         {unknown, map[string]any{"logprobs_floored": map[string]any{"1": -1e39}}},
		"-1e400":        {unknown, map[string]any{"logprobs_floored": map[string]any{"1": -1.7976931348623157e308}}},
		"-9999.0":       {unknown, map[string]any{"logprobs_floored": map[string]any{"1": -9999.0}}},
		"NaN":           {unknown, map[string]any{"logprobs_odd": map[string]any{"1": "NaN"}}},
		`"NaN"`:         {unknown, map[string]any{"logprobs_odd": map[string]any{"1": "NaN"}}},
		"Infinity":      {unknown, map[string]any{"logprobs_odd": map[string]any{"1": "Infinity"}}},
		`"+Infinity"`:   {unknown, map[string]any{"logprobs_odd": map[string]any{"1": "Infinity"}}},
		"null":          {unknown, nil},
	} {
		t.Run(told, func(t *testing.T) {
			t.Parallel()
			s := whole(t, `"message":{"content":"x"},"finish_reason":"stop","logprobs":{"content":[{"logprob":-1},{"logprob":`+told+`},{"logprob":-3}]}`,
				`,"usage":{"prompt_tokens":1,"completion_tokens":3}`, 1, 2, 3).sampled(0)
			require.Equal(t, []int32{1, 2, 3}, s.IDs)
			require.False(t, s.Incomplete)
			for i, want := range []float32{-1, row.value, -3} {
				got, known := s.Logprobs.At(i)
				require.Equal(t, want != unknown, known, i)
				if known {
					require.Equal(t, want, got)
				}
			}
			require.Equal(t, row.raw, s.Raw)
			if row.raw["logprobs_odd"] != nil {
				require.Equal(t, []string{"logprobs_odd"}, s.Flags)
			} else {
				require.Empty(t, s.Flags)
			}
			_, err := json.Marshal(s.Raw)
			require.NoError(t, err)
		})
	}
}

// An engine whose logits are NaN says so for each token: metadata stays small.
func TestOddValuesAreBounded(t *testing.T) {
	t.Parallel()
	ids := make([]int32, 1000)
	s := whole(t, `"message":{"content":"x"},"finish_reason":"stop","logprobs":{"content":[`+
		strings.TrimSuffix(strings.Repeat(`{"logprob":NaN},`, 1000), ",")+`]}`, "", ids...).sampled(0)
	kept, _ := s.Raw["logprobs_odd"].(map[string]any)
	require.Len(t, kept, 257)
	require.Equal(t, 1000-256, kept["more"])
}

func TestCountsOfUsage(t *testing.T) {
	t.Parallel()
	for told, want := range map[string]int64{
		"3": 3, "3.0": 3, "3e0": 3, "0": 0, "9007199254740991": 1<<53 - 1,
		"3.5": -1, "-1": -1, "9007199254740992": -1, "1e400": -1, `"3"`: -1, "null": -1, "[3]": -1, "99999999999999999999": -1,
	} {
		u := whole(t, `"message":{"content":"x"},"finish_reason":"stop"`, `,"usage":{"prompt_tokens":`+told+`,"completion_tokens":`+told+`}`, 1).stream.Usage()
		for _, n := range []*int64{u.Prompt, u.Completion} {
			if want < 0 {
				require.Nil(t, n, told)
			} else {
				require.NotNil(t, n, told)
				require.Equal(t, want, *n, told)
			}
		}
	}
}
