// Package trace holds icecore's vocabulary as types: the trace and what
// surrounds it, the rules by which one is valid, and the Arrow schemas in which
// traces and trajectories travel.
//
// It is the ground floor: it imports no other package of icecore.
package trace
