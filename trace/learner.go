package trace

// LearnerLogprobs are the log-probabilities that a learner computed for one
// trajectory with the weights of one of its versions.
type LearnerLogprobs struct {
	TrajectoryID string
	// PolicyVersion is the learner's, not that of the sampler.
	PolicyVersion int64
	// Logprobs is token-aligned: entry t belongs to token t of the trajectory,
	// given the tokens before it. Only trained positions mean anything.
	Logprobs *Logprobs
}

// Validate checks what can be checked without the trajectory. It turns NaN into
// "not known", since of a learner it means nothing else, and the first entry too:
// there is nothing before the first token to compute it from.
func (l *LearnerLogprobs) Validate() *Error {
	if err := firstError(
		func() *Error { return ValidateID("trajectory_id", l.TrajectoryID) },
		func() *Error { return nonNegative("policy_version", &l.PolicyVersion) },
	); err != nil {
		return err
	}
	if l.Logprobs == nil {
		return Missing("logprobs")
	}
	for i, v := range l.Logprobs.Values {
		if v != v || i == 0 {
			l.Logprobs.forget(i)
		}
	}
	return nil
}

// forget makes a position unknown.
func (l *Logprobs) forget(i int) {
	if l.Known == nil {
		l.Known = make([]bool, len(l.Values))
		for j := range l.Known {
			l.Known[j] = true
		}
	}
	l.Values[i], l.Known[i] = 0, false
}
