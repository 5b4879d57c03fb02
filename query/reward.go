package query

import "icecore/trace"

// outcome is the reward that learners train on: the newest revision of the
// rollout's own "outcome". Of several sources the one with the highest revision
// counts, then the first by name.
func outcome(rewards []trace.Reward) *float64 {
	var best *trace.Reward
	for i := range rewards {
		w := &rewards[i]
		if w.TraceID != "" || w.Name != trace.DefaultReward {
			continue
		}
		if best == nil || w.Revision > best.Revision || w.Revision == best.Revision && w.Source < best.Source {
			best = w
		}
	}
	if best == nil {
		return nil
	}
	return &best.Value
}
