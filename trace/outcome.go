package trace

// Outcome is the reward that learners train on: the newest revision of the
// rollout's own "outcome". Of several sources the one with the highest revision
// counts, then the first by name. nil: there is none.
func Outcome(rewards []Reward) *Reward {
	var best *Reward
	for i := range rewards {
		w := &rewards[i]
		if w.TraceID != "" || w.Name != DefaultReward {
			continue
		}
		if best == nil || w.Revision > best.Revision || w.Revision == best.Revision && w.Source < best.Source {
			best = w
		}
	}
	return best
}
