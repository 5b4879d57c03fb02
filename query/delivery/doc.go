// Package delivery gives learners whole groups of rollouts under leases: which
// groups are ready, what a lease of them holds, and the Arrow stream that carries
// it.
package delivery
