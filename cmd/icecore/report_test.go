package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/query/analytics"
)

func number(v float64) *float64 { return &v }

// summaryOf is what is known of rewards of which n are listed.
func summaryOf(solved, n int64, mean, std, low, high float64) *analytics.Summary {
	return &analytics.Summary{
		Reward: analytics.Reward{Count: n, Mean: number(mean), Std: number(std), Min: number(low), Max: number(high),
			Interval: &analytics.Interval{mean - 0.5, mean + 0.5}},
		SolveRate: analytics.Rate{Solved: solved, Count: n, Rate: number(float64(solved) / float64(n))},
	}
}

func TestRewardCell(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s    *analytics.Summary
		want string
	}{
		"0, 1":               {summaryOf(1, 2, 0.5, 0.7071067811865476, 0, 1), "0.50"},
		"1, 1, 0":            {summaryOf(2, 3, 2.0/3, 0.5773502691896258, 0, 1), "0.67"},
		"1, 1":               {summaryOf(2, 2, 1, 0, 1, 1), "1.00"},
		"0, ½, 1":            {summaryOf(1, 3, 0.5, 0.5, 0, 1), "0.50 [0.00, 1.00]"},
		"-1, 1":              {summaryOf(1, 2, 0, 1.4142135623730951, -1, 1), "0.00 [-0.50, 0.50]"},
		"0, 1, none solved":  {summaryOf(0, 2, 0.5, 0.7071067811865476, 0, 1), "0.50 [0.00, 1.00]"},
		"¼, ¼ and ½ mean of": {summaryOf(0, 4, 0.25, 0.1, 0, 0.5), "0.25 [-0.25, 0.75]"},
	} {
		require.Equal(t, c.want, rewardCell(c.s), name)
	}
	equal := summaryOf(0, 3, 0.3, 0, 0.3, 0.3)
	equal.Reward.Interval = &analytics.Interval{0.3, 0.1 * 3}
	require.Equal(t, "0.30 [–]", rewardCell(equal))
	require.Equal(t, "–", rewardCell(&analytics.Summary{}))
}

func TestPassCell(t *testing.T) {
	t.Parallel()
	all := []analytics.Pass{{K: 4, Value: number(0.5), Groups: 2}, {K: 1, Value: number(0.25), Groups: 1300}, {K: 2, Value: number(0.4), Groups: 1300}, {K: 8}}
	var got []string
	for i := range all {
		got = append(got, passCell(all, i))
	}
	require.Equal(t, []string{"50 (2)", "25", "40", "–"}, got)
}

func TestLeftOut(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0", leftOut(&analytics.UpliftDrops{}))
	require.Equal(t, "1,002: only in base 1,000, only in against 2", leftOut(&analytics.UpliftDrops{TasksOnlyInBase: 1000, TasksOnlyInAgainst: 2}))
	require.Equal(t, "1: without reward 1; rollouts partly in a range 2, without version 3, without task 4, without reward 5",
		leftOut(&analytics.UpliftDrops{TasksUnrewarded: 1, RolloutsMixed: 2, RolloutsUnversioned: 3, RolloutsWithoutTask: 4, RolloutsUnrewarded: 5}))
}

func TestCommandOf(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"": nil, "  ": nil, "SELECT 1;": nil, "help me": nil, "exits": nil,
		"quit": {`\q`}, " EXIT ; ": {`\q`}, "help;": {`\?`}, `\d traces;`: {`\d`, "traces"}, `\d traces ;`: {`\d`, "traces"}, ` \q`: {`\q`}, `\q;`: {`\q`},
	} {
		require.Equal(t, want, commandOf(line), line)
	}
	require.Contains(t, hintFor("show  tables"), `\d lists`)
	require.Contains(t, hintFor("DESCRIBE traces"), `\d NAME`)
	require.Empty(t, hintFor("SELECT show FROM tables"))
}
