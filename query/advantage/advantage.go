// Package advantage sets the rewards of rollouts against each other, and weighs
// their rows. It is pure: numbers in, numbers out.
//
// A reward, and so an advantage, belongs to a rollout, however many rows the
// rollout has: counting rows in means and deviations moves the baseline with the
// number of rows (THUDM/slime#2062, radixark/miles#2378, verl-project/verl#7580).
package advantage

import (
	"fmt"
	"math"
	"slices"
)

// Estimator names a formula. r is a rollout's reward, μ and σ are mean and
// standard deviation of the n rewards that its group has, ε is Options.Epsilon.
type Estimator string

// The estimators.
const (
	// GRPO: (r − μ)/(σ + ε). Shao et al., "DeepSeekMath", arXiv 2402.03300.
	GRPO Estimator = "grpo"
	// DrGRPO: r − μ. Liu et al., "Understanding R1-Zero-Like Training", arXiv
	// 2503.20783. (Its constant loss length is the trainer's matter.)
	DrGRPO Estimator = "dr_grpo"
	// RLOO: r − the mean of the others = n/(n−1)·(r − μ). Ahmadian et al., "Back to
	// Basics", arXiv 2402.14740.
	RLOO Estimator = "rloo"
	// ReinforcePP: (r − m)/√(v + ε), where m and v are mean and population variance
	// over all trained tokens of the lease, each with its rollout's reward (the
	// return of every token when nothing is discounted). Hu, "REINFORCE++", arXiv
	// 2501.03262.
	ReinforcePP Estimator = "reinforce_pp"
	// MaxRL: (r − μ)/μ, and 0 where μ is not above 0. "Maximum Likelihood
	// Reinforcement Learning", arXiv 2602.02710.
	MaxRL Estimator = "maxrl"
	// None computes nothing: every advantage is null.
	None Estimator = "none"
)

// Estimators lists them, the default first.
var Estimators = []Estimator{GRPO, DrGRPO, RLOO, ReinforcePP, MaxRL, None}

// GroupRelative says that an estimator sets a rollout against its own group and
// nothing else.
func (e Estimator) GroupRelative() bool { return e != ReinforcePP && e != None }

// Epsilon is the default of Options.Epsilon.
func (e Estimator) Epsilon() float64 {
	if e == ReinforcePP {
		return 1e-8
	}
	return 1e-6
}

// Options say how advantages are computed.
type Options struct {
	Estimator Estimator
	// Population: σ divides by n, not by n − 1 (GRPO alone).
	Population bool
	// Epsilon is not below 0 (GRPO and ReinforcePP alone).
	Epsilon float64
	// KeepSingle: in a group with one reward the advantage is that reward, not 0
	// (group-relative estimators alone).
	KeepSingle bool
}

// Rollout is what an advantage is computed from.
type Rollout struct {
	// Reward is finite; nil: none was given. It is then out of every mean and
	// deviation, and has no advantage.
	Reward *float64
	// Trained counts the trained tokens of all its rows (read by ReinforcePP alone,
	// where a rollout without any takes no part).
	Trained int64
}

// Group is the outcome of one group.
type Group struct {
	// Advantages has one entry per rollout; nil: it has none.
	Advantages []*float64
	// Zero: all advantages are 0 because the rewards cannot be told apart, only one
	// is known, or (MaxRL) their mean is not above 0.
	Zero bool
	// Scored counts the rollouts with a reward.
	Scored int
}

// Lease computes the advantages of all groups of a lease. An advantage that
// float32 cannot hold, in which it is delivered, is an error.
func (o Options) Lease(groups [][]Rollout) ([]Group, error) {
	out := make([]Group, len(groups))
	if o.Estimator == ReinforcePP {
		o.whiten(groups, out)
		return out, nil
	}
	for i, g := range groups {
		var err error
		if out[i], err = o.Group(g); err != nil {
			return nil, fmt.Errorf("group %d: %w", i, err)
		}
	}
	return out, nil
}

// Group computes the advantages of one group, for every estimator but
// ReinforcePP, of which it only counts Scored: that needs the whole lease.
func (o Options) Group(rollouts []Rollout) (Group, error) {
	g := Group{Advantages: make([]*float64, len(rollouts))}
	var rewards []float64
	for _, r := range rollouts {
		if r.Reward != nil {
			rewards = append(rewards, *r.Reward)
		}
	}
	g.Scored = len(rewards)
	if g.Scored == 0 || !o.Estimator.GroupRelative() {
		return g, nil
	}
	advantages, zero := o.relative(rewards)
	g.Zero = zero
	for i, r := range rollouts {
		if r.Reward == nil {
			continue
		}
		a := advantages[0]
		advantages = advantages[1:]
		if math.Abs(a) > math.MaxFloat32 || math.IsNaN(a) {
			return g, fmt.Errorf("compute %s advantage of reward %g: %g is beyond float32", o.Estimator, *r.Reward, a)
		}
		g.Advantages[i] = &a
	}
	return g, nil
}

// relative computes the advantages of the rewards of one group.
func (o Options) relative(rewards []float64) (advantages []float64, zero bool) {
	out := make([]float64, len(rewards))
	if len(rewards) == 1 && o.KeepSingle {
		return slices.Clone(rewards), false
	}
	if len(rewards) == 1 || alike(rewards) {
		return out, true
	}
	// Powers of two change no digit, so this keeps squares and sums of huge rewards
	// from overflowing and changes nothing else.
	down := exponent(rewards)
	n, sum, least := float64(len(rewards)), 0.0, math.Ldexp(tolerance(rewards), -down)
	scaled := make([]float64, len(rewards))
	for i, r := range rewards {
		scaled[i] = math.Ldexp(r, -down)
		sum += scaled[i]
	}
	mean := sum / n
	if o.Estimator == MaxRL && mean <= least {
		return out, true
	}
	squares := 0.0
	for _, r := range scaled {
		squares += (r - mean) * (r - mean)
	}
	freedom := n - 1
	if o.Population {
		freedom = n
	}
	for i, r := range scaled {
		switch a := r - mean; o.Estimator {
		case GRPO:
			out[i] = a / (math.Sqrt(squares/freedom) + math.Ldexp(o.Epsilon, -down))
		case RLOO:
			out[i] = math.Ldexp(n/(n-1)*a, down)
		case MaxRL:
			out[i] = a / mean
		default:
			out[i] = math.Ldexp(a, down)
		}
	}
	return out, false
}

// alike says that rewards cannot be told apart. A deviation is no test of that:
// of 0.1+0.2, 0.3 and 0.3 it is 6e-17, which would be divided by.
func alike(rewards []float64) bool {
	return slices.Max(rewards)-slices.Min(rewards) <= tolerance(rewards)
}

// tolerance is the size below which a difference of rewards is rounding.
func tolerance(rewards []float64) float64 { return 1e-9 * max(1, largest(rewards)) }

func largest(rewards []float64) float64 {
	return max(math.Abs(slices.Max(rewards)), math.Abs(slices.Min(rewards)))
}

// exponent is how many times the rewards are halved to lie within −1 and 1; 0
// where they do.
func exponent(rewards []float64) int {
	_, e := math.Frexp(largest(rewards))
	return max(0, e)
}
