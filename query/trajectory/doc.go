// Package trajectory is one delivered row: where its ids, mask and log-probs come
// from, what describes it, and the streams that carry it. Exports and leases
// plan which rows they want; Send makes them and hands them to a Sink.
package trajectory
