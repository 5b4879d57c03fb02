package advantage

import "math"

// whiten computes ReinforcePP over a whole lease.
func (o Options) whiten(groups [][]Rollout, out []Group) {
	var rewards []float64 // of rollouts that take part
	for _, g := range groups {
		for _, r := range g {
			if r.takesPart() {
				rewards = append(rewards, *r.Reward)
			}
		}
	}
	zero := len(rewards) > 0 && alike(rewards)
	mean, deviation, down := 0.0, 0.0, 0
	if len(rewards) > 0 && !zero {
		down = exponent(rewards)
		m, variance := weighted(groups, down)
		mean, deviation = m, math.Sqrt(variance+math.Ldexp(o.Epsilon, -2*down))
	}
	for i, g := range groups {
		out[i].Advantages = make([]*float64, len(g))
		for j, r := range g {
			if r.Reward != nil {
				out[i].Scored++
			}
			if !r.takesPart() {
				continue
			}
			a := 0.0
			out[i].Zero = zero
			if !zero {
				a = (math.Ldexp(*r.Reward, -down) - mean) / deviation
			}
			out[i].Advantages[j] = &a
		}
	}
}

func (r Rollout) takesPart() bool { return r.Reward != nil && r.Trained > 0 }

// weighted gives mean and population variance of the rewards, halved down times,
// over trained tokens.
func weighted(groups [][]Rollout, down int) (mean, variance float64) {
	each := func(f func(reward, tokens float64)) {
		for _, g := range groups {
			for _, r := range g {
				if r.takesPart() {
					f(math.Ldexp(*r.Reward, -down), float64(r.Trained))
				}
			}
		}
	}
	tokens, sum, squares := 0.0, 0.0, 0.0
	each(func(r, n float64) { tokens, sum = tokens+n, sum+r*n })
	mean = sum / tokens
	each(func(r, n float64) { squares += (r - mean) * (r - mean) * n })
	return mean, squares / tokens
}
