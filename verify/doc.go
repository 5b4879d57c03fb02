// Package verify is a witness: it reads both databases as they lie and says
// whether what they hold is what was acknowledged, whole, and merged by the law
// (merge.md). It shares no code with the packages that wrote the data — not the
// encodings, not the hashes, not the policies — so that a fault in one of them
// cannot hide itself. It only reads.
//
// The checks, by their stable names:
//
//	tapes      parents, forks and chunks of every tape hang together
//	traces     every trace's ids are there and give its prompt hash; its fields are sane
//	logprobs   log-probabilities cover the response exactly, or are absent
//	bodies     bodies decompress along their chains to what the trace row says
//	content    everything stored of a trace gives its content hash
//	index      the trace index and the warehouse know the same traces
//	journal    journal batches decode, are indexed, and agree with what was drained
//	drains     no batch was drained twice, and none is ahead of ice.drains
//	counters   the next keys lie beyond every key in use
//	rollouts   counts and attributes of rollouts agree in both databases
//	rewards    rewards agree in both databases
//	intents    no call is still announced whose trace is stored
//	merges     published merges are complete, named and counted right
//	faithful   every span stands after exactly the prompt it was sampled from
//	conserved  every sampled token is trained once or has one other disposition
//	learner    log-probs of learners are there whole, lie on their traces' places, and are indexed
//	policy     dispositions, boundaries and rows, computed anew from the law
package verify
