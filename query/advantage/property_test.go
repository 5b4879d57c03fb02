package advantage

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var relative = []Estimator{GRPO, DrGRPO, RLOO, MaxRL}

// rewards generates those that reward functions give, and any that are finite.
func rewards() *rapid.Generator[*float64] {
	usual := rapid.Map(rapid.SampledFrom([]float64{0, 0, 1, 1, 0.5, -1, 0.1 + 0.2, 0.3}), func(v float64) *float64 { return &v })
	return rapid.OneOf(usual, usual, usual,
		rapid.Map(rapid.Float64Range(-2, 2), func(v float64) *float64 { return &v }),
		rapid.Map(rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64), func(v float64) *float64 { return &v }),
		rapid.Just[*float64](nil))
}

func groups() *rapid.Generator[[]Rollout] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Rollout {
		return Rollout{Reward: rewards().Draw(t, "reward"), Trained: rapid.Int64Range(0, 50).Draw(t, "trained")}
	}), 0, 9)
}

func options() *rapid.Generator[Options] {
	return rapid.Custom(func(t *rapid.T) Options {
		e := rapid.SampledFrom(Estimators).Draw(t, "estimator")
		return Options{Estimator: e, Epsilon: rapid.SampledFrom([]float64{e.Epsilon(), 0, 0.1}).Draw(t, "epsilon"),
			Population: rapid.Bool().Draw(t, "population"), KeepSingle: rapid.Bool().Draw(t, "keep single")}
	})
}

// Whatever the rewards, an advantage is a number that float32 holds, absent with
// the reward, or an error.
func TestAlwaysFinite(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := options().Draw(t, "options")
		lease := rapid.SliceOfN(groups(), 0, 4).Draw(t, "lease")
		got, err := o.Lease(lease)
		if err != nil {
			require.NotContains(t, []Estimator{ReinforcePP, None, MaxRL}, o.Estimator, "their advantages are bounded")
			return
		}
		require.Len(t, got, len(lease))
		for i, g := range lease {
			require.Len(t, got[i].Advantages, len(g))
			scored := 0
			for j, r := range g {
				a := got[i].Advantages[j]
				if r.Reward == nil {
					require.Nil(t, a)
					continue
				}
				scored++
				if a != nil {
					require.LessOrEqual(t, math.Abs(*a), math.MaxFloat32)
					require.False(t, got[i].Zero && *a != 0)
				}
			}
			require.Equal(t, scored, got[i].Scored)
		}
	})
}

// A baseline takes away what the group has in common, and what is not scored or
// stands elsewhere has no part in it.
func TestRelative(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Estimator: rapid.SampledFrom(relative).Draw(t, "estimator"), Epsilon: 1e-6}
		small := rapid.Custom(func(t *rapid.T) Rollout {
			v := rapid.Float64Range(-2, 2).Draw(t, "reward")
			return Rollout{Reward: &v}
		})
		g := rapid.SliceOfN(small, 2, 8).Draw(t, "group")
		got, err := o.Group(g)
		require.NoError(t, err)
		sum, scale := 0.0, 1.0
		for i := range g {
			sum += *got.Advantages[i]
			scale = max(scale, math.Abs(*got.Advantages[i]))
			for j := range g {
				if *g[i].Reward < *g[j].Reward {
					require.LessOrEqual(t, *got.Advantages[i], *got.Advantages[j], "the better reward has the better advantage")
				}
			}
		}
		require.InDelta(t, 0, sum, 1e-9*scale)

		more, err := o.Lease([][]Rollout{append([]Rollout{{}}, g...), {{Reward: g[0].Reward}, {}}})
		require.NoError(t, err)
		require.Equal(t, got.Advantages, more[0].Advantages[1:])
		require.Equal(t, got.Zero, more[0].Zero)
	})
}

// Whitened advantages have mean 0 and deviation 1 over the trained tokens.
func TestWhitened(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lease := rapid.SliceOfN(groups(), 1, 4).Draw(t, "lease")
		got, err := Options{Estimator: ReinforcePP}.Lease(lease)
		require.NoError(t, err)
		n, sum, squares := 0.0, 0.0, 0.0
		zero := false
		for i, g := range lease {
			zero = zero || got[i].Zero
			for j, r := range g {
				if a := got[i].Advantages[j]; a != nil {
					w := float64(r.Trained)
					n, sum, squares = n+w, sum+*a*w, squares+*a**a*w
				}
			}
		}
		if zero || n == 0 {
			require.Zero(t, squares)
			return
		}
		require.InDelta(t, 0, sum/n, 1e-6)
		require.InDelta(t, 1, squares/n, 1e-6)
	})
}

// Under a mean over rows, weighted rollouts count the same; with rollout_mean so
// does each token of a rollout.
func TestWeights(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rollouts := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(1, 1000), 0, 6), 1, 8).Draw(t, "rollouts")
		rows, holders := 0, 0
		for _, r := range rollouts {
			rows += len(r)
			if len(r) > 0 {
				holders++
			}
		}
		for _, kind := range []RowWeight{RolloutMean, SessionMean} {
			for i, weights := range kind.Weights(rollouts) {
				mass := 0.0
				for j, w := range weights {
					mass += w / float64(rows)
					if kind == RolloutMean {
						require.InEpsilon(t, weights[0]/float64(rollouts[i][0]), w/float64(rollouts[i][j]), 1e-12)
					} else {
						require.InEpsilon(t, weights[0], w, 1e-12)
					}
				}
				if len(weights) > 0 {
					require.InEpsilon(t, 1/float64(holders), mass, 1e-12)
				}
			}
		}
	})
}
