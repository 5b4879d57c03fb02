package wire

import "icecore/trace"

var learnerFields = newTable(ignoreUnknown,
	field[trace.LearnerLogprobs]{name: "trajectory_id", set: text(func(l *trace.LearnerLogprobs) *string { return &l.TrajectoryID })},
	field[trace.LearnerLogprobs]{name: "policy_version", set: integer(func(l *trace.LearnerLogprobs) *int64 { return &l.PolicyVersion })},
	field[trace.LearnerLogprobs]{name: "logprobs", words: true, set: func(s *scanner, l *trace.LearnerLogprobs) (err error) {
		l.Logprobs, err = s.logprobs()
		return err
	}},
)

var learnerKind = &kind[trace.LearnerLogprobs]{
	list:      "logprobs",
	ambiguous: true,
	fields:    learnerFields,
	id:        func(l *trace.LearnerLogprobs) string { return l.TrajectoryID },
	finish: func(_ *scanner, l *trace.LearnerLogprobs, rec *record) {
		if l.TrajectoryID != "" && rec.given>>learnerFields.index["policy_version"]&1 == 0 {
			rec.refuse(trace.Missing("policy_version"))
		} else if err := l.Validate(); err != nil {
			rec.refuse(err)
		}
	},
}

// LearnerLogprobsJSON reads the body of POST /v1/trajectories/logprobs: a
// learner's log-probs of one trajectory, an array of them, or
// {"logprobs": […]}. Unknown fields are passed over with a warning.
func LearnerLogprobsJSON(body []byte, lim Limits) ([]Item[trace.LearnerLogprobs], error) {
	return readItems(body, lim, learnerKind)
}
