package verify

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// corruption is one fault planted by SQL, and where it must be told.
type corruption struct {
	name string
	// control and warehouse are statements. «x» stands for the key of trace x,
	// «tape x» for its tape, «made» for the rollout's key, «strict» and «polar»
	// for its generations.
	control, warehouse string
	// killed plants it in the data of a killed server, whose journal is full.
	killed bool
	check  string
	says   string
}

func expand(s, key string) string {
	for _, id := range []string{"a", "b", "choice-0", "choice-1", "body-03", "body-00", "body-10", "cut", "retry", "announced", "late"} {
		s = strings.ReplaceAll(s, "«"+id+"»", "(SELECT trace_key FROM ice.traces WHERE trace_id = '"+id+"')")
		s = strings.ReplaceAll(s, "«tape "+id+"»", "(SELECT tape_key FROM ice.traces WHERE trace_id = '"+id+"')")
	}
	generation := func(policy string) string {
		return "(SELECT max(generation) FROM ice.generations WHERE policy = '" + policy + "' AND rollout_key = " + key + ")"
	}
	return strings.NewReplacer("«made»", key, "«strict»", generation("strict_tree"), "«single»", generation("per_request"),
		"«polar»", generation("polar_compat(end_of_turn=151645)")).Replace(s)
}

const bump = `list_transform(token_ids, lambda x, i: CASE WHEN i = 2 THEN x + 1 ELSE x END)`

var corruptions = []corruption{
	// Tapes and traces.
	{name: "a token of a prompt flipped", warehouse: `UPDATE ice.tape_chunks SET token_ids = ` + bump + ` WHERE tape_key = «tape a» AND start = 0`,
		check: checkTraces, says: "has SHA-256"},
	{name: "a token of a response flipped", warehouse: `UPDATE ice.tape_chunks SET token_ids = ` + bump + ` WHERE tape_key = «tape choice-0»`,
		check: checkTraces, says: "SHA-256"},
	{name: "a sampled token flipped", warehouse: `UPDATE ice.tape_chunks SET token_ids = ` + bump + ` WHERE tape_key = «tape announced»`,
		check: checkContent, says: "content hash"},
	{name: "a negative id", warehouse: `UPDATE ice.tape_chunks SET token_ids = [-5, 71] WHERE tape_key = «tape retry» AND start = 0`,
		check: checkTapes, says: "the id at 0 is -5"},
	{name: "a NULL id", warehouse: `UPDATE ice.tape_chunks SET token_ids = [NULL, 71] WHERE tape_key = «tape retry» AND start = 0`,
		check: checkTapes, says: "not an id"},
	{name: "a chunk dropped", warehouse: `DELETE FROM ice.tape_chunks WHERE tape_key = «tape a» AND start = 4096`,
		check: checkTapes, says: "are missing"},
	{name: "the last chunk dropped", warehouse: `DELETE FROM ice.tape_chunks WHERE tape_key = «tape announced»`,
		check: checkTraces, says: "has 2 ids, but tape"},
	{name: "a chunk twice", warehouse: `INSERT INTO ice.tape_chunks SELECT * FROM ice.tape_chunks WHERE tape_key = «tape a» AND start = 4096`,
		check: checkTapes, says: "overlaps"},
	{name: "a chunk too long", warehouse: `UPDATE ice.tape_chunks SET token_ids = token_ids || token_ids WHERE tape_key = «tape a» AND start = 0`,
		check: checkTapes, says: "holds 8192 ids"},
	{name: "a chunk before its tape", warehouse: `UPDATE ice.tape_chunks SET batch = 0 WHERE tape_key = «tape a»`,
		check: checkTapes, says: "is of batch 0"},
	{name: "a parent of another rollout", warehouse: `UPDATE ice.tapes SET parent_key = 1 WHERE tape_key = «tape choice-1»`,
		check: checkTapes, says: "its parent 1 is not a tape of this rollout"},
	{name: "a parent that comes later", warehouse: `UPDATE ice.tapes SET parent_key = 99999 WHERE tape_key = «tape choice-1»`,
		check: checkTapes, says: "does not come before it"},
	{name: "a fork without a parent", warehouse: `UPDATE ice.tapes SET parent_key = 0 WHERE tape_key = «tape choice-1»`,
		check: checkTapes, says: "but has no parent"},
	{name: "a fork beyond the parent", warehouse: `UPDATE ice.tapes SET fork = 1000 WHERE tape_key = «tape choice-1»;
		UPDATE ice.tape_chunks SET start = 1000 WHERE tape_key = «tape choice-1»`,
		check: checkTapes, says: "forks at 1000, but its parent"},
	{name: "a tape dropped", warehouse: `DELETE FROM ice.tapes WHERE tape_key = «tape a»`,
		check: checkTapes, says: "does not have"},
	{name: "a tape twice", warehouse: `INSERT INTO ice.tapes SELECT * FROM ice.tapes WHERE tape_key = «tape a»`,
		check: checkTapes, says: "2 times"},
	{name: "a trace on another tape", warehouse: `UPDATE ice.traces SET tape_key = «tape b» WHERE trace_id = 'retry'`,
		check: checkTraces, says: "SHA-256"},
	{name: "a prompt hash changed", warehouse: `UPDATE ice.traces SET prompt_hash = unhex(sha256('x')) WHERE trace_id = 'a'`,
		check: checkTraces, says: "SHA-256"},
	{name: "a prompt hash lost", warehouse: `UPDATE ice.traces SET prompt_hash = NULL WHERE trace_id = 'a'`,
		check: checkTraces, says: "known together"},
	{name: "a trace twice", warehouse: `INSERT INTO ice.traces SELECT * FROM ice.traces WHERE trace_id = 'a'`,
		check: checkTraces, says: "trace_id a 2 times"},
	{name: "no such status", warehouse: `UPDATE ice.traces SET status = 'fine' WHERE trace_id = 'a'`,
		check: checkTraces, says: `status is "fine"`},
	{name: "version spans beyond the response", warehouse: `UPDATE ice.traces SET policy_version_spans = [{'start': 0, 'version': 3}, {'start': 9000, 'version': 4}] WHERE trace_id = 'a'`,
		check: checkTraces, says: "do not divide"},
	{name: "a trace of another rollout", warehouse: `UPDATE ice.traces SET rollout_id = 'other' WHERE trace_id = 'a'`,
		check: checkTraces, says: "says that its rollout is"},

	// Log-probabilities.
	{name: "log-probs shifted", warehouse: `UPDATE ice.logprob_chunks SET start = start + 1 WHERE trace_key = «a» AND start = 4096`,
		check: checkLogprobs, says: "4096 to 4097 are missing"},
	{name: "log-probs cut", warehouse: `DELETE FROM ice.logprob_chunks WHERE trace_key = «a» AND start = 8192`,
		check: checkLogprobs, says: "has 8192 log-probabilities for 9000"},
	{name: "log-probs denied", warehouse: `UPDATE ice.traces SET has_logprobs = false WHERE trace_id = 'a'`,
		check: checkLogprobs, says: "says that it has none"},
	{name: "a log-prob changed", warehouse: `UPDATE ice.logprob_chunks SET logprobs = [-1.5::FLOAT, -2::FLOAT] WHERE len(logprobs) = 2 AND rollout_key = «made»`,
		check: checkContent, says: "content hash"},
	{name: "an unknown log-prob filled", warehouse: `UPDATE ice.logprob_chunks SET logprobs = list_transform(logprobs, lambda x: coalesce(x, 0)) WHERE trace_key = «a» AND start = 0`,
		check: checkContent, says: "content hash"},

	// Content and index.
	{name: "an attribute changed", warehouse: `UPDATE ice.traces SET tokenizer = 'other' WHERE trace_id = 'body-03'`,
		check: checkContent, says: "content hash"},
	{name: "a time changed", warehouse: `UPDATE ice.traces SET finished_at = finished_at + INTERVAL 1 MICROSECOND WHERE trace_id = 'body-03'`,
		check: checkContent, says: "content hash"},
	{name: "a content hash changed", warehouse: `UPDATE ice.traces SET content_hash = prompt_hash WHERE trace_id = 'a'`,
		check: checkContent, says: "content hash"},
	{name: "an index row dropped", control: `DELETE FROM trace_index WHERE trace_key = (SELECT min(trace_key) FROM trace_index)`,
		check: checkIndex, says: "not indexed"},
	{name: "an index row changed", control: `UPDATE trace_index SET content_hash = x'00' WHERE trace_key = (SELECT min(trace_key) FROM trace_index)`,
		check: checkIndex, says: "the index has"},
	{name: "an index row of another batch", control: `UPDATE trace_index SET batch = batch + 1 WHERE trace_key = (SELECT min(trace_key) FROM trace_index)`,
		check: checkIndex, says: "the index has"},
	{name: "a trace row dropped", warehouse: `DELETE FROM ice.traces WHERE trace_id = 'retry'`,
		check: checkIndex, says: "the warehouse lacks it"},

	// Bodies.
	{name: "a body broken", warehouse: `UPDATE ice.bodies SET data = 'xx'::BLOB WHERE trace_key = «body-10»`,
		check: checkBodies, says: "cannot be read"},
	{name: "a body dropped", warehouse: `DELETE FROM ice.bodies WHERE trace_key = «body-10»`,
		check: checkBodies, says: "is not stored"},
	{name: "a base lost", warehouse: `UPDATE ice.bodies SET base_key = 77777 WHERE trace_key = «body-10»`,
		check: checkBodies, says: "which is missing"},
	{name: "another base", warehouse: `UPDATE ice.bodies SET base_key = «body-03» WHERE trace_key = «body-10»`,
		check: checkBodies, says: "cannot be read"},
	{name: "a body's size changed", warehouse: `UPDATE ice.bodies SET raw_bytes = raw_bytes + 1 WHERE trace_key = «body-10»`,
		check: checkBodies, says: "the trace row says"},
	{name: "a side of neither", warehouse: `UPDATE ice.bodies SET side = 'reply' WHERE trace_key = «body-10»`,
		check: checkBodies, says: `on the side "reply"`},
	{name: "a body of another trace", warehouse: `UPDATE ice.bodies SET base_key = 0, data = (SELECT data FROM ice.bodies WHERE trace_key = «body-00» AND side = 'response')
		WHERE trace_key = «body-03» AND side = 'response'`, check: checkContent, says: "content hash"},
	{name: "a body of another trace, journalled", killed: true,
		warehouse: `UPDATE ice.bodies SET base_key = 0, data = (SELECT data FROM ice.bodies WHERE trace_key = «body-00» AND side = 'response')
		WHERE trace_key = «body-03» AND side = 'response'`, check: checkBodies, says: "not the one in the journal"},

	// Rollouts, rewards, intents, counters, drains.
	{name: "traces miscounted", control: `UPDATE rollouts SET traces = traces + 1 WHERE rollout_id = 'made'`,
		check: checkRollouts, says: "traces is"},
	{name: "last batch wrong", control: `UPDATE rollouts SET last_batch = last_batch - 1 WHERE rollout_id = 'made'`,
		check: checkRollouts, says: "last_batch is"},
	{name: "open intents miscounted", control: `UPDATE rollouts SET open_intents = 0 WHERE rollout_id = 'made'`,
		check: checkRollouts, says: "open_intents is"},
	{name: "an attribute of a rollout differs", control: `UPDATE rollouts SET harness = 'other' WHERE rollout_id = 'made'`,
		check: checkRollouts, says: `harness is "other"`},
	{name: "a newest state dropped", warehouse: `DELETE FROM ice.rollouts WHERE rollout_key = «made» AND batch = (SELECT max(batch) FROM ice.rollouts WHERE rollout_key = «made»)`,
		check: checkRollouts, says: "in the warehouse"},
	{name: "all states dropped", warehouse: `DELETE FROM ice.rollouts WHERE rollout_key = «made»`,
		check: checkRollouts, says: "does not hold the rollout"},
	{name: "a rollout dropped", control: `DELETE FROM rollouts WHERE rollout_id = 'made'`,
		check: checkRollouts, says: "does not know the rollout"},
	{name: "a reward differs", control: `UPDATE rewards SET value = 0.75 WHERE reward_id = 'w1'`,
		check: checkRewards, says: "reward w1 is"},
	{name: "a reward missing in the warehouse", warehouse: `DELETE FROM ice.rewards WHERE reward_id = 'w1'`,
		check: checkRewards, says: "not in the warehouse"},
	{name: "a reward missing in the control database", control: `DELETE FROM rewards WHERE reward_id = 'w1'`,
		check: checkRewards, says: "not in the control database"},
	{name: "a reward twice", warehouse: `INSERT INTO ice.rewards SELECT * FROM ice.rewards WHERE reward_id = 'w1'`,
		check: checkRewards, says: "twice"},
	{name: "a number that would be given twice", control: `UPDATE rollouts SET last_seq = 0`,
		check: checkRollouts, says: "its number would be given twice"},
	{name: "an announced number that would be given twice", control: `UPDATE intents SET seq = 9000`,
		check: checkRollouts, says: "a call is announced with seq 9000"},
	{name: "an intent left behind", control: `INSERT INTO intents SELECT trace_hash, 'announced', rollout_key, 1, 1 FROM trace_index
		WHERE trace_hash = x'` + hexKey("announced") + `'`, check: checkIntents, says: "still announced"},
	{name: "an intent under another hash", control: `UPDATE intents SET trace_id = 'x'`,
		check: checkIntents, says: "another trace's hash"},
	{name: "an intent of no rollout", control: `UPDATE intents SET rollout_key = 4444`,
		check: checkIntents, says: "does not exist"},
	{name: "the trace counter too low", control: `UPDATE meta SET value = 3 WHERE key = 'next_trace'`,
		check: checkCounters, says: "next_trace is 3"},
	{name: "the tape counter too low", control: `UPDATE meta SET value = 3 WHERE key = 'next_tape'`,
		check: checkCounters, says: "next_tape is 3"},
	{name: "the batch counter too low", control: `UPDATE meta SET value = 3 WHERE key = 'next_batch'`,
		check: checkCounters, says: "next_batch is 3"},
	{name: "the rollout counter lost", control: `DELETE FROM meta WHERE key = 'next_rollout'`,
		check: checkCounters, says: "next_rollout is 0"},
	{name: "a batch drained twice", warehouse: `INSERT INTO ice.drains SELECT * FROM ice.drains`,
		check: checkDrains, says: "drained more than once"},
	{name: "a drain not recorded", warehouse: `DELETE FROM ice.drains WHERE last_batch = (SELECT max(last_batch) FROM ice.drains)`,
		check: checkDrains, says: "but ice.drains ends with"},

	// Delivery.
	{name: "a group summed wrong", control: `UPDATE groups SET settled = settled + 1 WHERE stale = 0 AND group_key = (SELECT min(group_key) FROM groups WHERE stale = 0)`,
		check: checkGroups, says: "where counting makes it"},
	{name: "a group's last finish wrong", control: `UPDATE groups SET finished_at = finished_at + 1 WHERE stale = 0`,
		check: checkGroups, says: "where counting makes it"},
	{name: "a group lost", control: `DELETE FROM groups WHERE group_id IS NOT NULL`,
		check: checkGroups, says: "is not known"},
	{name: "a group of one lost", control: `DELETE FROM groups WHERE rollout_key IS NOT NULL`,
		check: checkGroups, says: "not known as one by itself"},
	{name: "a shard's ack lost", control: `DELETE FROM lease_shards WHERE lease_key = (SELECT lease_key FROM leases WHERE key = 'step-1')`,
		check: checkDeliveries, says: "are not acknowledged"},
	{name: "an acknowledged group taken back", control: `UPDATE deliveries SET state = 'held' WHERE lease_key = (SELECT lease_key FROM leases WHERE key = 'step-2')`,
		check: checkDeliveries, says: "are acknowledged"},
	{name: "a group acknowledged by nobody", control: `UPDATE deliveries SET state = 'acked' WHERE state = 'held'`,
		check: checkDeliveries, says: "are not acknowledged"},
	{name: "a delivery of no group", control: `UPDATE deliveries SET group_key = 4444 WHERE state = 'held'`,
		check: checkDeliveries, says: "no such group"},
	{name: "a group that stands where it would never be given out", control: `UPDATE deliveries SET stage = 0 WHERE stage > 0`,
		check: checkDeliveries, says: "where its sums make it stage"},
	{name: "a group that is given out out of order", control: `UPDATE deliveries SET place = place + 1`,
		check: checkDeliveries, says: "and time"},
	{name: "a delivery of no lease", control: `UPDATE deliveries SET lease_key = 4444 WHERE state = 'held'`,
		check: checkDeliveries, says: "its lease does not exist"},
	{name: "a group that was given to two leases", control: `UPDATE deliveries SET lease_key = (SELECT lease_key FROM leases WHERE key = 'step-1') WHERE state = 'held'`,
		check: checkLeases, says: "the others went elsewhere"},
	{name: "a lease settled too early", control: `UPDATE leases SET settled_at = 1, state = 'expired', plan = NULL WHERE key = 'step-2'`,
		check: checkLeases, says: "and holds 1 groups"},
	{name: "a lease acknowledged too early", control: `UPDATE leases SET state = 'acknowledged' WHERE key = 'step-2'`,
		check: checkLeases, says: "1 of 2 shards are acknowledged"},
	{name: "a plan kept", control: `UPDATE leases SET plan = x'00' WHERE key = 'step-1'`,
		check: checkLeases, says: "its plan is kept"},
	{name: "acknowledged groups miscounted", control: `UPDATE leases SET acked_groups = 0 WHERE key = 'step-2'`,
		check: checkLeases, says: "it says that 0 groups are acknowledged"},
	{name: "a shard that the lease does not have", control: `UPDATE lease_shards SET shard = 9 WHERE lease_key = (SELECT lease_key FROM leases WHERE key = 'step-1')`,
		check: checkLeases, says: "that it does not have"},
	{name: "a lease of no consumer", control: `UPDATE leases SET consumer_key = 4444`,
		check: checkLeases, says: "its consumer does not exist"},
	{name: "a pin of no rollout", control: `UPDATE pins SET rollout_key = 4444 WHERE rollout_key = (SELECT min(rollout_key) FROM pins)`,
		check: checkPins, says: "it does not exist"},
	{name: "a pin of no lease", control: `UPDATE pins SET lease_key = 4444 WHERE lease_key = (SELECT max(lease_key) FROM pins)`,
		check: checkPins, says: "does not exist"},
	{name: "a change after the lease not seen", control: `UPDATE pins SET rewarded = 0 WHERE rewarded = 1`,
		check: checkPins, says: "is said rewarded anew: false"},
	{name: "a change after the lease made up", control: `UPDATE pins SET reopened = 1`,
		check: checkPins, says: "is said reopened: true"},
	{name: "a rollout given out twice", control: `INSERT INTO pins SELECT p.rollout_key, p.consumer_key, l.lease_key, d.group_key, p.last_batch, p.reward_id, 0, p.rewarded
		FROM pins p JOIN leases l ON l.key = 'step-2' JOIN deliveries d ON d.lease_key = l.lease_key
		WHERE p.lease_key = (SELECT lease_key FROM leases WHERE key = 'step-1') LIMIT 1`,
		check: checkPins, says: "both have it"},

	// Journal.
	{name: "a journal payload of garbage", killed: true, control: `UPDATE journal SET payload = x'0102030405060708' WHERE batch = (SELECT max(batch) FROM journal)`,
		check: checkJournal, says: "cannot be read"},
	{name: "a journal payload cut short", killed: true, control: `UPDATE journal SET payload = substr(payload, 1, length(payload) * 3 / 4) WHERE part = 'traces'`,
		check: checkJournal, says: "cannot be read"},
	{name: "a journal's rows miscounted", killed: true, control: `UPDATE journal SET rows = rows + 1 WHERE batch = 1 AND part = 'traces'`,
		check: checkJournal, says: "but says"},
	{name: "a journal part of no table", killed: true, control: `UPDATE journal SET part = 'tracks' WHERE batch = 1 AND part = 'traces'`,
		check: checkJournal, says: "which is no table"},
	{name: "an undrained batch lost", killed: true, control: `DELETE FROM journal WHERE batch > (SELECT max(batch) FROM journal) - 2`,
		check: checkIndex, says: "neither the journal nor the warehouse"},
	{name: "a journalled trace not indexed", killed: true, control: `DELETE FROM trace_index WHERE trace_hash = x'` + hexKey("undrained") + `'`,
		check: checkIndex, says: "it is not indexed"},
	{name: "a row drained otherwise", killed: true, warehouse: `UPDATE ice.traces SET received_at = received_at + INTERVAL 1 SECOND WHERE trace_id = 'a'`,
		check: checkJournal, says: "not drained as it is there"},
	{name: "a row drained twice", killed: true, warehouse: `INSERT INTO ice.logprob_chunks SELECT * FROM ice.logprob_chunks WHERE trace_key = «a»`,
		check: checkJournal, says: "not so often"},

	// Merges.
	{name: "a merged trace missing", warehouse: `DELETE FROM ice.merged_traces WHERE generation = «strict» AND trace_key = «retry»`,
		check: checkMerges, says: "is not among the merged traces"},
	{name: "a merged trace twice", warehouse: `INSERT INTO ice.merged_traces SELECT * FROM ice.merged_traces WHERE generation = «strict» AND trace_key = «retry»`,
		check: checkMerges, says: "more than one row"},
	{name: "a trace merged too early", warehouse: `UPDATE ice.merged_traces SET trace_key = «late» WHERE generation = «strict» AND trace_key = «retry»`,
		check: checkMerges, says: "came after batch"},
	{name: "a merge beyond what is drained", warehouse: `UPDATE ice.generations SET through_batch = 9999 WHERE generation = «strict»`,
		check: checkMerges, says: "merged through batch 9999"},
	{name: "a generation twice", warehouse: `INSERT INTO ice.generations SELECT * FROM ice.generations WHERE generation = «strict»`,
		check: checkMerges, says: "recorded 2 times"},
	{name: "a generation dropped", warehouse: `DELETE FROM ice.generations WHERE generation = «strict»`,
		check: checkMerges, says: "which does not exist"},
	{name: "a policy that is none", warehouse: `UPDATE ice.generations SET policy = 'magic' WHERE generation = «strict»`,
		check: checkMerges, says: "magic: is no policy"},
	{name: "a wrong length", warehouse: `UPDATE ice.trajectories SET length = length + 1 WHERE generation = «strict» AND row_index = 0`,
		check: checkMerges, says: "row 0 has length"},
	{name: "another trajectory id", warehouse: `UPDATE ice.trajectories SET trajectory_id = 'tr_00' WHERE generation = «strict» AND row_index = 0`,
		check: checkMerges, says: "its name gives"},
	{name: "another naming call", warehouse: `UPDATE ice.trajectories SET naming_key = «retry» WHERE generation = «strict» AND row_index = 0`,
		check: checkMerges, says: "does not name it"},
	{name: "a row dropped", warehouse: `DELETE FROM ice.trajectories WHERE generation = «strict» AND row_index = 0`,
		check: checkMerges, says: "not numbered"},
	{name: "the last row dropped", warehouse: `DELETE FROM ice.trajectories WHERE generation = «single» AND row_index = (SELECT max(row_index) FROM ice.trajectories WHERE generation = «single»)`,
		check: checkPolicy, says: "the law makes"},
	{name: "a wrong policy version", warehouse: `UPDATE ice.trajectories SET policy_version_min = 1 WHERE generation = «strict» AND last_key = «b»`,
		check: checkMerges, says: "of policy versions 1 to 5, its spans of 3 to 5"},
	{name: "a wrong count of traces", warehouse: `UPDATE ice.generations SET traces = traces + 1 WHERE generation = «strict»`,
		check: checkMerges, says: "counts"},
	{name: "a row that cannot be rebuilt", warehouse: `UPDATE ice.merged_traces SET previous_key = «b» WHERE generation = «strict» AND trace_key = «a»`,
		check: checkMerges, says: "cannot be rebuilt"},
	{name: "a parent lost", warehouse: `UPDATE ice.merged_traces SET previous_key = NULL WHERE generation = «strict» AND trace_key = «b»`,
		check: checkFaithful, says: "its span starts at 9006, its response lies at 3"},
	{name: "a span shifted", warehouse: `UPDATE ice.merged_traces SET span_start = span_start + 1 WHERE generation = «strict» AND trace_key = «a»`,
		check: checkFaithful, says: "its span starts at 4"},
	{name: "a rewritten history denied", warehouse: `UPDATE ice.trajectories SET history_rewritten = false WHERE generation = «polar» AND history_rewritten`,
		check: checkFaithful, says: "is not its prompt"},
	{name: "a cut moved", warehouse: `UPDATE ice.merged_traces SET cut = cut - 1, span_start = span_start + 1 WHERE generation = «strict» AND trace_key = «b»`,
		check: checkFaithful, says: "is not its prompt"},
	{name: "a cut into a response", warehouse: `UPDATE ice.merged_traces SET cut = 1000000 WHERE generation = «strict» AND trace_key = «b»`,
		check: checkFaithful, says: "begins at 1000000"},
	{name: "trained in another row", warehouse: `UPDATE ice.merged_traces SET row_index = row_index + 1 WHERE generation = «strict» AND trace_key = «a»`,
		check: checkConserved, says: "trainable in no row"},
	{name: "trained though it is not", warehouse: `UPDATE ice.merged_traces SET row_index = 0, span_start = 1 WHERE generation = «strict» AND trace_key = «cut»`,
		check: checkConserved, says: "but trainable in row 0"},
	{name: "sampled tokens miscounted", warehouse: `UPDATE ice.generations SET sampled_tokens = sampled_tokens + 1 WHERE generation = «strict»`,
		check: checkConserved, says: "sampled tokens"},
	{name: "trained tokens miscounted", warehouse: `UPDATE ice.generations SET trained_tokens = trained_tokens + 1 WHERE generation = «strict»`,
		check: checkConserved, says: "trained tokens"},
	{name: "trained tokens of a row miscounted", warehouse: `UPDATE ice.trajectories SET trained_tokens = trained_tokens + 1 WHERE generation = «strict» AND row_index = 0`,
		check: checkConserved, says: "row 0 counts"},
	{name: "a wrong disposition", warehouse: `UPDATE ice.merged_traces SET disposition = 'unobserved' WHERE generation = «strict» AND trace_key = «cut»`,
		check: checkPolicy, says: "disposition is unobserved, by the law abandoned_retry"},
	{name: "a wrong boundary", warehouse: `UPDATE ice.merged_traces SET boundary = 'rewinds' WHERE generation = «strict» AND trace_key = «b»`,
		check: checkPolicy, says: "boundary is rewinds, by the law extends"},
	{name: "a wrong nearest call", warehouse: `UPDATE ice.merged_traces SET nearest_key = «cut» WHERE generation = «strict» AND trace_key = «b»`,
		check: checkPolicy, says: "nearest call"},
	{name: "a wrong share", warehouse: `UPDATE ice.merged_traces SET shared = shared - 1 WHERE generation = «strict» AND trace_key = «b»`,
		check: checkPolicy, says: "what is shared"},
	{name: "a rewritten history not told", warehouse: `UPDATE ice.trajectories SET history_rewritten = NOT history_rewritten WHERE generation = «polar» AND row_index = 0`,
		check: checkPolicy, says: "rewritten"},
	{name: "rows in another order", warehouse: `UPDATE ice.trajectories SET row_index = 1 - row_index WHERE generation = «single» AND row_index < 2;
		UPDATE ice.merged_traces SET row_index = 1 - row_index WHERE generation = «single» AND row_index < 2`,
		check: checkPolicy, says: "the row of its span"},

	// Learners' log-probs. Posts 1, 2 and 3 are by versions 7, 7 and 8.
	{name: "a learner's log-prob changed", warehouse: `UPDATE ice.learner_logprob_chunks SET logprobs = list_transform(logprobs, lambda x: x - 1) WHERE post_key = 2 AND start = 4096`,
		check: checkLearner, says: "content hash"},
	{name: "a learner's chunk dropped", warehouse: `DELETE FROM ice.learner_logprob_chunks WHERE post_key = 2 AND start = 4096`,
		check: checkLearner, says: "before place 8192 of the span at 3 are missing"},
	{name: "a learner's last chunk dropped", warehouse: `DELETE FROM ice.learner_logprob_chunks WHERE post_key = 2 AND start = 8192`,
		check: checkLearner, says: "whose response has 9000 ids"},
	{name: "a learner's chunk cut", warehouse: `UPDATE ice.learner_logprob_chunks SET logprobs = logprobs[:4000] WHERE post_key = 2 AND start = 0`,
		check: checkLearner, says: "the chunk at 0 of trace a holds 4000"},
	{name: "a learner's chunk twice", warehouse: `INSERT INTO ice.learner_logprob_chunks SELECT * FROM ice.learner_logprob_chunks WHERE post_key = 2 AND start = 4096`,
		check: checkLearner, says: "are missing"},
	{name: "a learner's span lost", warehouse: `DELETE FROM ice.learner_logprob_chunks WHERE post_key = 2 AND trace_key = «b»`,
		check: checkLearner, says: "holds 9000 log-probs"},
	{name: "a learner's span moved", warehouse: `UPDATE ice.learner_logprob_chunks SET span_start = 5 WHERE post_key = 2 AND trace_key = «b»`,
		check: checkLearner, says: "begins inside the one before"},
	{name: "a learner's span of another rollout", warehouse: `UPDATE ice.learner_logprob_chunks SET trace_key = 999999 WHERE post_key = 2 AND trace_key = «b»`,
		check: checkLearner, says: "is not of the rollout"},
	{name: "log-probs without a post", warehouse: `DELETE FROM ice.learner_posts WHERE post_key = 1`,
		check: checkLearner, says: "belong to no post"},
	{name: "a post twice", warehouse: `INSERT INTO ice.learner_posts SELECT * FROM ice.learner_posts WHERE post_key = 1`,
		check: checkLearner, says: "post_key 1 2 times"},
	{name: "a post that ends too early", warehouse: `UPDATE ice.learner_posts SET length = 9000 WHERE post_key = 2`,
		check: checkLearner, says: "a span ends at 9008 of 9000"},
	{name: "a post of other versions", warehouse: `UPDATE ice.learner_posts SET policy_version_max = 4 WHERE post_key = 2`,
		check: checkLearner, says: "says that versions"},
	{name: "a post of another rollout", warehouse: `UPDATE ice.learner_posts SET rollout_id = 'x' WHERE post_key = 2`,
		check: checkLearner, says: "says that its rollout is"},
	{name: "an older post counts", control: `UPDATE learner_posts SET post_key = 1 WHERE policy_version = 7`,
		check: checkLearner, says: "counts in the warehouse, and post 1 in the index"},
	{name: "a post not indexed", control: `DELETE FROM learner_posts WHERE policy_version = 8`,
		check: checkLearner, says: "post 3 of"},
	{name: "a post indexed alone", control: `INSERT INTO learner_posts VALUES ('tr_x', 1, x'00', 1, 1)`,
		check: checkLearner, says: "but the warehouse does not hold it"},
	{name: "the next post's key in use", control: `UPDATE meta SET value = 2 WHERE key = 'next_post'`,
		check: checkCounters, says: "next_post is 2"},
}

func hexKey(id string) string {
	const digits = "0123456789abcdef"
	var out []byte
	for _, c := range []byte(indexKey(id)) {
		out = append(out, digits[c>>4], digits[c&15])
	}
	return string(out)
}

func TestCorruptionIsFound(t *testing.T) {
	x := small.make(t)
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) {
			dir := x.closed
			if c.killed {
				dir = x.killed
			}
			src := copied(t, dir)
			ctx := context.Background()
			var key string
			require.NoError(t, src.Control.QueryRow(`SELECT CAST(rollout_key AS TEXT) FROM rollouts WHERE rollout_id = 'made'`).Scan(&key))
			if c.control != "" {
				res, err := src.Control.Exec(c.control)
				require.NoError(t, err)
				n, err := res.RowsAffected()
				require.NoError(t, err)
				require.NotZero(t, n, "nothing was planted")
			}
			for s := range strings.SplitSeq(c.warehouse, ";") {
				if s == "" {
					continue
				}
				res, err := src.Warehouse.Exec(expand(s, key))
				require.NoError(t, err, s)
				n, err := res.RowsAffected()
				require.NoError(t, err)
				require.NotZero(t, n, "nothing was planted")
			}
			r, err := Run(ctx, src, Options{})
			require.NoError(t, err)
			require.False(t, r.OK())
			for _, f := range r.Findings {
				if f.Check == c.check && strings.Contains(f.Message, c.says) {
					return
				}
			}
			t.Fatalf("no finding of %s says %q:\n%s", c.check, c.says, text(t, r))
		})
	}
}
