// Package query answers questions: rollouts and traces as JSON, trajectories as
// JSON for one rollout and as an Arrow stream for many.
package query
