// Package analytics answers questions about many rollouts. Each analysis is one
// statement of SQL over schema v1, which docs/analytics.md shows and which gives
// the same to whoever sends it to POST /v1/sql; this package runs it and adds
// the confidence intervals. No statement touches a column that holds tokens. The
// comparison of learners' log-probs with the sampler's is three statements, on
// docs/mismatch.md, and reads both as they are stored.
package analytics
