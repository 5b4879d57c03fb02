package apptest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// scoredRollout is what a learner sees of a rollout.
type scoredRollout struct {
	reward  float64
	rows    int
	trained int64
}

// The groups of captured rollouts, delivered under every estimator: advantages and
// weights are computed here once more, from the rows alone.
func TestAdvantagesOfCaptures(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	importCaptures(s)
	everything := object{"groups": 10}
	for i, c := range []struct {
		set  object
		want func(group []float64, r float64) float64
	}{
		{object{}, func(g []float64, r float64) float64 { return (r - meanOf(g)) / (deviationOf(g, 1) + 1e-6) }},
		{object{"sigma": "population", "epsilon": 0.5}, func(g []float64, r float64) float64 { return (r - meanOf(g)) / (deviationOf(g, 0) + 0.5) }},
		{object{"estimator": "dr_grpo"}, func(g []float64, r float64) float64 { return r - meanOf(g) }},
		{object{"estimator": "rloo"}, func(g []float64, r float64) float64 {
			n := float64(len(g))
			return r - (meanOf(g)*n-r)/(n-1)
		}},
		{object{"estimator": "maxrl"}, func(g []float64, r float64) float64 { return (r - meanOf(g)) / meanOf(g) }},
	} {
		request := object{"key": "k"}
		for _, more := range []object{everything, c.set} {
			for name, v := range more {
				request[name] = v
			}
		}
		l := s.shortLease(fmt.Sprint("c", i), request)
		require.Len(t, l.groups(), 10)
		byGroup := map[string]map[string]scoredRollout{}
		for j := range l.rows {
			r := &l.rows[j]
			if byGroup[r.group()] == nil {
				byGroup[r.group()] = map[string]scoredRollout{}
			}
			k := byGroup[r.group()][r.RolloutID]
			byGroup[r.group()][r.RolloutID] = scoredRollout{*r.Reward, k.rows + 1, k.trained + r.TrainedTokens}
		}
		for j := range l.rows {
			r := &l.rows[j]
			var rewards []float64
			for _, k := range byGroup[r.group()] {
				rewards = append(rewards, k.reward)
			}
			require.EqualValues(t, len(rewards), r.GroupScored)
			zero := slices.Max(rewards) == slices.Min(rewards)
			require.Equal(t, zero, r.ZeroAdvantage)
			want := 0.0
			if !zero {
				want = c.want(rewards, *r.Reward)
			}
			require.InDelta(t, want, *r.Advantage, 1e-5, "%s in %v", r.RolloutID, request)
			own := byGroup[r.group()][r.RolloutID]
			require.EqualValues(t, []int64{int64(own.rows), own.trained}, []int64{r.RolloutTrajectories, r.RolloutTrainedTokens})
			require.InDelta(t, 1, r.Weight, 0)
		}
	}
}

// Whitening is over all trained tokens of the lease, and needs all of it.
func TestWhitenedAdvantages(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	importCaptures(s)
	l := s.shortLease("c", object{"groups": 10, "estimator": "reinforce_pp"})
	tokens, sum, squares := 0.0, 0.0, 0.0
	for i := range l.rows {
		n := float64(l.rows[i].TrainedTokens)
		tokens, sum = tokens+n, sum+n**l.rows[i].Reward
	}
	for i := range l.rows {
		d := *l.rows[i].Reward - sum/tokens
		squares += float64(l.rows[i].TrainedTokens) * d * d
	}
	total := 0.0
	for i := range l.rows {
		want := (*l.rows[i].Reward - sum/tokens) / math.Sqrt(squares/tokens+1e-8)
		require.InDelta(t, want, *l.rows[i].Advantage, 1e-5)
		total += float64(l.rows[i].TrainedTokens) * *l.rows[i].Advantage
	}
	require.InDelta(t, 0, total/tokens, 1e-4)
	none := s.shortLease("none", object{"groups": 10, "estimator": "none"})
	for i := range none.rows {
		require.Nil(t, none.rows[i].Advantage)
		require.False(t, none.rows[i].ZeroAdvantage)
	}
	require.Equal(t, []string{"", ""}, []string{none.meta["sigma"], none.meta["epsilon"]})
}

// Under a mean over rows, weights make every rollout count the same: by tokens, or
// by rows.
func TestRowWeights(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	importCaptures(s)
	for _, name := range []string{"rollout_mean", "session_mean"} {
		l := s.shortLease(name, object{"groups": 10, "row_weight": name})
		require.Equal(t, name, l.meta["row_weight"])
		mass, perToken := map[string]float64{}, map[string][]float64{}
		for i := range l.rows {
			r := &l.rows[i]
			share := r.Weight / float64(len(l.rows)) // of the loss
			mass[r.RolloutID] += share
			perToken[r.RolloutID] = append(perToken[r.RolloutID], share/float64(r.TrainedTokens))
			if name == "session_mean" {
				require.InDelta(t, float64(len(l.rows))/float64(l.count("rollouts"))/float64(r.RolloutTrajectories), r.Weight, 1e-5)
			}
		}
		for rollout, m := range mass {
			require.InDelta(t, 1/float64(l.count("rollouts")), m, 1e-6, rollout)
			if name == "rollout_mean" {
				require.InDelta(t, slices.Min(perToken[rollout]), slices.Max(perToken[rollout]), 1e-7)
			}
		}
	}
}

// What a lease delivers of captured rollouts is what an export has, row by row.
func TestLeaseIsTheExport(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	importCaptures(s)
	for _, policy := range []string{"strict_tree", "polar_compat"} {
		filter := object{"harness": "pi"}
		l := s.lease(policy, object{"max_groups": 1000, "max_tokens": 1 << 30, "policy": policy, "where": filter, "kinds": []string{"agent", "auxiliary"}})
		want := map[string]exported{}
		for _, r := range s.export("status=succeeded&harness=pi&policy=" + policy).rows {
			want[r.TrajectoryID] = r
		}
		require.Equal(t, len(want), len(l.rows))
		for i := range l.rows {
			require.Equal(t, want[l.rows[i].TrajectoryID], l.rows[i].exported)
		}
	}
}

func importCaptures(s *server) {
	s.t.Helper()
	_, stderr, err := command(s.t, nil, "import", "--quiet", "--server", s.url, root+"/testdata/captures")
	require.NoError(s.t, err, stderr)
}

func meanOf(list []float64) float64 {
	sum := 0.0
	for _, v := range list {
		sum += v
	}
	return sum / float64(len(list))
}

// deviationOf divides by n less than.
func deviationOf(list []float64, less int) float64 {
	sum := 0.0
	for _, v := range list {
		sum += (v - meanOf(list)) * (v - meanOf(list))
	}
	return math.Sqrt(sum / float64(len(list)-less))
}
