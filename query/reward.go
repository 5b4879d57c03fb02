package query

import "icecore/trace"

// outcome is the value of the reward that learners train on; nil: none.
func outcome(rewards []trace.Reward) *float64 {
	if w := trace.Outcome(rewards); w != nil {
		return &w.Value
	}
	return nil
}
