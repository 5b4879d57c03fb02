-- The SQL face: what users query, documented in docs/sql.md. Schema v1 is a
-- contract: its columns keep their names and meanings; a change that breaks a
-- query makes a schema v2. Schema main holds the newest version under plain
-- names. The tables of schema ice are nobody's contract.
--
-- Tokens, masks, log-probs and bodies are columns made by the functions ice_*
-- of the store: DuckDB evaluates them after filters and limits, and not at all
-- when a query does not select them.

-- The state of each rollout that counts: the newest.
CREATE VIEW ice.rollout_states AS
SELECT rollout_key, rollout_id,
  arg_max_null(task_id, batch) AS task_id, arg_max_null(group_id, batch) AS group_id,
  arg_max_null(group_size, batch) AS group_size, arg_max_null(sample_index, batch) AS sample_index,
  arg_max_null(split, batch) AS split, arg_max_null(harness, batch) AS harness,
  arg_max_null(harness_version, batch) AS harness_version, arg_max_null(model, batch) AS model,
  arg_max_null(policy_version, batch) AS policy_version, arg_max_null(metadata, batch) AS metadata,
  arg_max_null(status, batch) AS status, arg_max_null(error, batch) AS error,
  arg_max_null(finished_at, batch) AS finished_at, arg_max_null(reopened, batch) AS reopened,
  arg_max_null(open_intents, batch) AS open_intents, arg_max_null(created_at, batch) AS created_at,
  arg_max_null(updated_at, batch) AS updated_at
FROM ice.rollouts GROUP BY rollout_key, rollout_id;

-- The same, unique by rollout_key alone: a join that nothing is taken from is
-- then left out by DuckDB.
CREATE VIEW ice.rollout_attributes AS
SELECT rollout_key,
  arg_max_null(task_id, batch) AS task_id, arg_max_null(group_id, batch) AS group_id,
  arg_max_null(sample_index, batch) AS sample_index, arg_max_null(split, batch) AS split,
  arg_max_null(harness, batch) AS harness, arg_max_null(harness_version, batch) AS harness_version,
  arg_max_null(model, batch) AS model, arg_max_null(policy_version, batch) AS policy_version,
  arg_max_null(status, batch) AS status, arg_max_null(open_intents, batch) AS open_intents,
  arg_max_null(group_size, batch) AS group_size
FROM ice.rollouts GROUP BY rollout_key;

-- The reward that learners train on: the newest revision of the rollout's own
-- 'outcome'; of several sources the highest revision, then the first by name.
CREATE VIEW ice.outcomes AS
SELECT rollout_key, first(value ORDER BY revision DESC, coalesce(source, '')) AS reward
FROM ice.rewards WHERE name = 'outcome' AND trace_id IS NULL GROUP BY rollout_key;

-- Merges of a policy that was dropped. Nothing that begins now finds them, but
-- statements that began before may still read their rows, which go later.
CREATE TABLE ice.dropped_generations (
  generation  BIGINT NOT NULL,
  rollout_key BIGINT NOT NULL,
  policy      VARCHAR NOT NULL,
  dropped_at  TIMESTAMPTZ NOT NULL
);

-- The merge of each rollout and policy that counts: the newest.
CREATE VIEW ice.published AS
SELECT rollout_key, policy, max(generation) AS generation FROM ice.generations GROUP BY ALL;

-- A trace with policy_version_spans was sampled by the versions in them, one
-- without by the version at dispatch. The CASE is for speed: most have none.
CREATE VIEW ice.trace_sums AS
SELECT rollout_key, count(*) AS traces, sum(response_length)::BIGINT AS sampled_tokens,
  sum(prompt_length)::BIGINT AS prompt_tokens,
  min(CASE WHEN policy_version_spans IS NULL THEN policy_version
    ELSE coalesce(list_min(list_transform(policy_version_spans, lambda s: s."version")), policy_version) END) AS policy_version_min,
  max(CASE WHEN policy_version_spans IS NULL THEN policy_version
    ELSE coalesce(list_max(list_transform(policy_version_spans, lambda s: s."version")), policy_version) END) AS policy_version_max,
  min(started_at) AS first_started_at, max(finished_at) AS last_finished_at
FROM ice.traces GROUP BY rollout_key;

-- Tokens that a rollout's tapes keep, each once: a tape ends where the longest
-- trace on it ends.
CREATE VIEW ice.kept_sums AS
SELECT e.rollout_key, sum(e.stop - t.fork)::BIGINT AS kept_tokens
FROM (SELECT rollout_key, tape_key, max(coalesce(prompt_length, 0) + coalesce(response_length, 0)) AS stop
  FROM ice.traces GROUP BY rollout_key, tape_key) e
JOIN ice.tapes t ON t.tape_key = e.tape_key
GROUP BY e.rollout_key;

CREATE SCHEMA v1;

CREATE VIEW v1.traces AS
SELECT t.trace_id, t.rollout_id, t.seq, t.kind, t.status, t.finish_reason,
  t.prompt_length, t.response_length, lower(hex(t.prompt_hash)) AS prompt_hash, lower(hex(t.content_hash)) AS content_hash,
  t.has_logprobs, t.ids_incomplete, t.text_repaired, t.policy_version, t.policy_version_spans,
  t.choice_group, t.choice_index,
  r.task_id, r.group_id, r.sample_index, r.split, r.harness, r.harness_version,
  t.model, t.tokenizer, t.api, t.parent_rollout_id, t.chat_template_hash, t.tools_hash,
  t.sampling, t.usage, t.metadata, t.extra, t.error,
  t.started_at, t.first_token_at, t.finished_at, t.received_at, t.request_bytes, t.response_bytes,
  ice_tape_ids(t.tape_key, 0, t.prompt_length) AS prompt_token_ids,
  ice_tape_ids(t.tape_key, coalesce(t.prompt_length, 0), coalesce(t.prompt_length, 0) + t.response_length) AS response_token_ids,
  CASE WHEN t.has_logprobs THEN ice_trace_logprobs(t.trace_key, t.response_length) END AS response_logprobs
FROM ice.traces t LEFT JOIN ice.rollout_attributes r ON r.rollout_key = t.rollout_key;

CREATE VIEW v1.logprob_chunks AS
SELECT t.trace_id, t.rollout_id, c.start, c.logprobs, t.response_length, t.policy_version, t.kind, r.harness, r.task_id, r.split, t.model
FROM ice.logprob_chunks c
JOIN ice.traces t ON t.trace_key = c.trace_key
LEFT JOIN ice.rollout_attributes r ON r.rollout_key = t.rollout_key;

CREATE VIEW v1.trace_bodies AS
SELECT trace_id, rollout_id, request_bytes, response_bytes,
  ice_body_request(rollout_key, trace_key) AS request,
  ice_body_response(rollout_key, trace_key) AS response
FROM ice.traces WHERE request_bytes IS NOT NULL OR response_bytes IS NOT NULL;

CREATE VIEW v1.rollouts AS
SELECT r.rollout_id, r.task_id, r.group_id, r.group_size, r.sample_index, r.split, r.harness, r.harness_version, r.model,
  coalesce(r.policy_version, s.policy_version_max) AS policy_version, s.policy_version_min, s.policy_version_max,
  r.status, r.error, r.finished_at, r.reopened, r.open_intents,
  r.status IS NOT NULL AND r.open_intents = 0 AS complete,
  o.reward, coalesce(s.traces, 0) AS traces, coalesce(s.sampled_tokens, 0) AS sampled_tokens,
  coalesce(s.prompt_tokens, 0) AS prompt_tokens, coalesce(k.kept_tokens, 0) AS kept_tokens,
  s.first_started_at, s.last_finished_at, r.metadata, r.created_at, r.updated_at
FROM ice.rollout_states r
LEFT JOIN ice.outcomes o ON o.rollout_key = r.rollout_key
LEFT JOIN ice.trace_sums s ON s.rollout_key = r.rollout_key
LEFT JOIN ice.kept_sums k ON k.rollout_key = r.rollout_key;

CREATE VIEW v1.reward_revisions AS
SELECT reward_id, rollout_id, trace_id, name, source, revision, value, rewarded_at, metadata, stored_at,
  row_number() OVER (PARTITION BY rollout_key, trace_id, name, source ORDER BY revision DESC) = 1 AS newest
FROM ice.rewards;

CREATE VIEW v1.rewards AS
SELECT reward_id, rollout_id, trace_id, name, source, revision, value, rewarded_at, metadata, stored_at
FROM ice.rewards
QUALIFY row_number() OVER (PARTITION BY rollout_key, rollout_id, trace_id, name, source ORDER BY revision DESC) = 1;

CREATE VIEW v1.groups AS
SELECT group_id, any_value(task_id) AS task_id, any_value(split) AS split, max(group_size) AS group_size,
  count(*) AS rollouts, count(status) AS finished, count(reward) AS rewarded,
  count(*) FILTER (WHERE status IS NOT NULL AND status <> 'succeeded') AS not_succeeded,
  -- Sums of squares must fit a double; stddev_samp fails where they do not.
  CASE WHEN max(abs(reward)) <= 1e150 THEN avg(reward) END AS reward_mean,
  CASE WHEN max(abs(reward)) <= 1e150 THEN stddev_samp(reward) FILTER (abs(reward) <= 1e150) END AS reward_std,
  min(reward) AS reward_min, max(reward) AS reward_max,
  count(*) FILTER (WHERE complete AND reward IS NOT NULL) >= coalesce(max(group_size), count(*)) AS complete,
  count(reward) >= 2 AND max(reward) - min(reward) <= 1e-9 * greatest(1, abs(min(reward)), abs(max(reward))) AS zero_advantage,
  min(created_at) AS created_at
FROM (
  SELECT r.group_id, r.task_id, r.split, r.group_size, r.status, o.reward, r.status IS NOT NULL AND r.open_intents = 0 AS complete,
    r.created_at
  FROM ice.rollout_states r LEFT JOIN ice.outcomes o ON o.rollout_key = r.rollout_key
  WHERE r.group_id IS NOT NULL)
GROUP BY group_id;

CREATE VIEW v1.trajectories AS
SELECT t.trajectory_id, s.rollout_id, s.group_id, s.task_id, s.split, s.harness, s.model, s.sample_index, s.group_size,
  t.policy AS merge_policy, t.row_index AS row_in_rollout, t.length, t.trained_tokens, t.length - t.trained_tokens AS context_tokens,
  t.policy_version_min, t.policy_version_max, t.history_rewritten,
  s.status AS rollout_status, s.status IS NOT NULL AND s.open_intents = 0 AS complete, o.reward,
  ice_row_ids(t.generation, t.rollout_key, t.row_index, t.last_key, t.length) AS token_ids,
  ice_row_mask(t.generation, t.rollout_key, t.row_index, t.last_key, t.length) AS loss_mask,
  ice_row_logprobs(t.generation, t.rollout_key, t.row_index, t.last_key, t.length) AS logprobs,
  ice_row_spans(t.generation, t.rollout_key, t.row_index, t.last_key, t.length) AS spans
FROM ice.trajectories t
JOIN ice.published p ON p.generation = t.generation
JOIN ice.rollout_states s ON s.rollout_key = t.rollout_key
LEFT JOIN ice.outcomes o ON o.rollout_key = t.rollout_key;

CREATE VIEW v1.trajectory_spans AS
SELECT trajectory_id, rollout_id, merge_policy, row_in_rollout, span.trace_id, span.start, span."end", span.trainable, span.policy_version
FROM (SELECT trajectory_id, rollout_id, merge_policy, row_in_rollout, unnest(spans) AS span FROM v1.trajectories);

CREATE VIEW v1.dispositions AS
SELECT t.rollout_id, t.trace_id, m.policy AS merge_policy, m.disposition, coalesce(t.response_length, 0) AS sampled_tokens,
  m.row_index AS row_in_rollout, m.span_start, m.boundary, t.kind, t.status, t.policy_version, r.harness, r.task_id, r.split, t.model
FROM ice.merged_traces m
JOIN ice.published p ON p.generation = m.generation
JOIN ice.traces t ON t.trace_key = m.trace_key
LEFT JOIN ice.rollout_attributes r ON r.rollout_key = t.rollout_key;

CREATE VIEW v1.boundaries AS
SELECT t.rollout_id, t.trace_id, m.policy AS merge_policy, m.boundary AS kind, n.trace_id AS nearest, m.shared,
  t.prompt_length, r.harness, r.task_id, r.split, t.model
FROM ice.merged_traces m
JOIN ice.published p ON p.generation = m.generation
JOIN ice.traces t ON t.trace_key = m.trace_key
LEFT JOIN ice.traces n ON n.trace_key = m.nearest_key
LEFT JOIN ice.rollout_attributes r ON r.rollout_key = t.rollout_key
WHERE m.boundary IS NOT NULL;

CREATE VIEW v1.policy_versions AS
SELECT policy_version, count(*) AS traces, count(DISTINCT rollout_key) AS rollouts,
  coalesce(sum(response_length), 0)::BIGINT AS sampled_tokens, min(started_at) AS first_started_at, max(finished_at) AS last_finished_at
FROM ice.traces GROUP BY policy_version;

CREATE VIEW v1.merge_policies AS
SELECT policy AS merge_policy, count(*) AS rollouts,
  (SELECT count(DISTINCT rollout_key) FROM ice.traces) AS rollouts_total,
  sum(trajectories)::BIGINT AS trajectories, sum(sampled_tokens)::BIGINT AS sampled_tokens, sum(trained_tokens)::BIGINT AS trained_tokens
FROM (FROM ice.generations QUALIFY row_number() OVER (PARTITION BY rollout_key, policy ORDER BY generation DESC) = 1)
GROUP BY policy;

CREATE VIEW main.traces AS FROM v1.traces;
CREATE VIEW main.logprob_chunks AS FROM v1.logprob_chunks;
CREATE VIEW main.trace_bodies AS FROM v1.trace_bodies;
CREATE VIEW main.rollouts AS FROM v1.rollouts;
CREATE VIEW main.rewards AS FROM v1.rewards;
CREATE VIEW main.reward_revisions AS FROM v1.reward_revisions;
CREATE VIEW main.groups AS FROM v1.groups;
CREATE VIEW main.trajectories AS FROM v1.trajectories;
CREATE VIEW main.trajectory_spans AS FROM v1.trajectory_spans;
CREATE VIEW main.dispositions AS FROM v1.dispositions;
CREATE VIEW main.boundaries AS FROM v1.boundaries;
CREATE VIEW main.policy_versions AS FROM v1.policy_versions;
CREATE VIEW main.merge_policies AS FROM v1.merge_policies;

-- What docs/sql-columns.md and `icecore query` say of them.
COMMENT ON VIEW v1.traces IS 'One row per model call, as it crossed the model boundary.';
COMMENT ON COLUMN v1.traces.trace_id IS 'the call';
COMMENT ON COLUMN v1.traces.rollout_id IS 'the rollout it belongs to';
COMMENT ON COLUMN v1.traces.seq IS 'order in the rollout as the capturer saw it; NULL: not said';
COMMENT ON COLUMN v1.traces.kind IS 'agent or auxiliary';
COMMENT ON COLUMN v1.traces.status IS 'ok, aborted, client_gone or upstream_error';
COMMENT ON COLUMN v1.traces.finish_reason IS 'stop, length, tool_calls, content_filter or abort; NULL: not said';
COMMENT ON COLUMN v1.traces.prompt_length IS 'prompt ids; NULL: ids not known';
COMMENT ON COLUMN v1.traces.response_length IS 'sampled ids; NULL: ids not known';
COMMENT ON COLUMN v1.traces.prompt_hash IS 'SHA-256 of the prompt ids as little-endian int32, in hex';
COMMENT ON COLUMN v1.traces.content_hash IS 'hash of all that was meant by the trace, in hex';
COMMENT ON COLUMN v1.traces.has_logprobs IS 'log-probs came with it';
COMMENT ON COLUMN v1.traces.ids_incomplete IS 'the engine reported more tokens than ids: never trained';
COMMENT ON COLUMN v1.traces.text_repaired IS 'a text had bytes that are not UTF-8, which were replaced';
COMMENT ON COLUMN v1.traces.policy_version IS 'version of the weights at dispatch';
COMMENT ON COLUMN v1.traces.policy_version_spans IS 'when several sampled the response: list of (start, version), start counted in the response';
COMMENT ON COLUMN v1.traces.choice_group IS 'calls declared as n > 1 samples of one request share it';
COMMENT ON COLUMN v1.traces.choice_index IS 'place in the choice group';
COMMENT ON COLUMN v1.traces.task_id IS 'of the rollout';
COMMENT ON COLUMN v1.traces.group_id IS 'of the rollout';
COMMENT ON COLUMN v1.traces.sample_index IS 'of the rollout';
COMMENT ON COLUMN v1.traces.split IS 'train or eval, of the rollout';
COMMENT ON COLUMN v1.traces.harness IS 'of the rollout';
COMMENT ON COLUMN v1.traces.harness_version IS 'of the rollout';
COMMENT ON COLUMN v1.traces.model IS 'as the call named it';
COMMENT ON COLUMN v1.traces.api IS 'provider API that the harness spoke';
COMMENT ON COLUMN v1.traces.parent_rollout_id IS 'rollout that started this one';
COMMENT ON COLUMN v1.traces.sampling IS 'sampling parameters, JSON';
COMMENT ON COLUMN v1.traces.usage IS 'usage as the engine counted it, JSON';
COMMENT ON COLUMN v1.traces.metadata IS 'the capturer''s own, JSON';
COMMENT ON COLUMN v1.traces.extra IS 'fields that are not of the contract, JSON';
COMMENT ON COLUMN v1.traces.started_at IS 'call began';
COMMENT ON COLUMN v1.traces.first_token_at IS 'first token came';
COMMENT ON COLUMN v1.traces.finished_at IS 'call ended';
COMMENT ON COLUMN v1.traces.received_at IS 'icecore took it in';
COMMENT ON COLUMN v1.traces.request_bytes IS 'of the kept request; NULL: none kept';
COMMENT ON COLUMN v1.traces.response_bytes IS 'of the kept response; NULL: none kept';
COMMENT ON COLUMN v1.traces.prompt_token_ids IS 'the whole prompt, assembled from tapes';
COMMENT ON COLUMN v1.traces.response_token_ids IS 'ids that were sampled';
COMMENT ON COLUMN v1.traces.response_logprobs IS 'behaviour log-probabilities, natural logarithm; an element is NULL where not known';
COMMENT ON VIEW v1.logprob_chunks IS 'Log-probabilities as they are stored, in pieces of at most 4,096: for statistics over many responses.';
COMMENT ON COLUMN v1.logprob_chunks.start IS 'position in the response of the first';
COMMENT ON COLUMN v1.logprob_chunks.logprobs IS 'behaviour log-probabilities, natural logarithm; an element is NULL where not known';
COMMENT ON COLUMN v1.logprob_chunks.response_length IS 'of the whole response';
COMMENT ON COLUMN v1.logprob_chunks.policy_version IS 'version of the weights at dispatch';
COMMENT ON VIEW v1.trace_bodies IS 'What crossed the wire, for calls of which it was kept.';
COMMENT ON COLUMN v1.trace_bodies.request IS 'as sent, JSON; NULL also when it is not UTF-8';
COMMENT ON COLUMN v1.trace_bodies.response IS 'as sent, JSON; NULL also when it is not UTF-8';
COMMENT ON VIEW v1.rollouts IS 'One row per rollout: attributes, state, reward, sums over its calls.';
COMMENT ON COLUMN v1.rollouts.task_id IS 'what was attempted';
COMMENT ON COLUMN v1.rollouts.group_id IS 'rollouts compared with each other';
COMMENT ON COLUMN v1.rollouts.group_size IS 'declared size of the group';
COMMENT ON COLUMN v1.rollouts.sample_index IS 'place in the group';
COMMENT ON COLUMN v1.rollouts.split IS 'train or eval';
COMMENT ON COLUMN v1.rollouts.harness IS 'the agent program';
COMMENT ON COLUMN v1.rollouts.policy_version IS 'as declared, else the newest that sampled a call';
COMMENT ON COLUMN v1.rollouts.policy_version_min IS 'oldest version that sampled a call: of its policy_version_spans, else at dispatch';
COMMENT ON COLUMN v1.rollouts.policy_version_max IS 'newest version that sampled a call: of its policy_version_spans, else at dispatch';
COMMENT ON COLUMN v1.rollouts.status IS 'succeeded, failed, timeout, error or cancelled; NULL: not finished';
COMMENT ON COLUMN v1.rollouts.reopened IS 'a trace came after the finish';
COMMENT ON COLUMN v1.rollouts.open_intents IS 'announced calls whose trace has not come';
COMMENT ON COLUMN v1.rollouts.complete IS 'finished, and no announced call is missing';
COMMENT ON COLUMN v1.rollouts.reward IS 'newest revision of its own reward ''outcome''; NULL: never given';
COMMENT ON COLUMN v1.rollouts.traces IS 'calls';
COMMENT ON COLUMN v1.rollouts.sampled_tokens IS 'sum of response_length';
COMMENT ON COLUMN v1.rollouts.prompt_tokens IS 'sum of prompt_length: what was sent to the engine';
COMMENT ON COLUMN v1.rollouts.kept_tokens IS 'distinct tokens on its tapes: each once';
COMMENT ON COLUMN v1.rollouts.first_started_at IS 'first call began';
COMMENT ON COLUMN v1.rollouts.last_finished_at IS 'last call ended';
COMMENT ON COLUMN v1.rollouts.metadata IS 'JSON';
COMMENT ON COLUMN v1.rollouts.created_at IS 'first heard of';
COMMENT ON COLUMN v1.rollouts.updated_at IS 'state last changed';
COMMENT ON VIEW v1.rewards IS 'Rewards that count: the newest revision of each (rollout, trace, name, source).';
COMMENT ON COLUMN v1.rewards.trace_id IS 'NULL: of the whole rollout';
COMMENT ON COLUMN v1.rewards.name IS 'outcome is what learners train on';
COMMENT ON COLUMN v1.rewards.revision IS 'the highest counts';
COMMENT ON COLUMN v1.rewards.rewarded_at IS 'as the sender said';
COMMENT ON COLUMN v1.rewards.metadata IS 'JSON';
COMMENT ON COLUMN v1.rewards.stored_at IS 'icecore took it in';
COMMENT ON VIEW v1.reward_revisions IS 'All revisions of all rewards.';
COMMENT ON COLUMN v1.reward_revisions.newest IS 'this revision counts';
COMMENT ON VIEW v1.groups IS 'One row per group: rollouts sampled for one task under one dispatch.';
COMMENT ON COLUMN v1.groups.group_size IS 'as declared; NULL: never';
COMMENT ON COLUMN v1.groups.rollouts IS 'rollouts known';
COMMENT ON COLUMN v1.groups.finished IS 'of them finished';
COMMENT ON COLUMN v1.groups.rewarded IS 'of them with a reward';
COMMENT ON COLUMN v1.groups.not_succeeded IS 'finished otherwise than succeeded';
COMMENT ON COLUMN v1.groups.reward_std IS 'sample standard deviation, n - 1';
COMMENT ON COLUMN v1.groups.complete IS 'as many rollouts as declared (else all known) are complete and rewarded';
COMMENT ON COLUMN v1.groups.zero_advantage IS 'at least two rewards, all equal (to 1e-9 of their size): nothing to learn for GRPO';
COMMENT ON COLUMN v1.groups.created_at IS 'when the first of its rollouts was first heard of';
COMMENT ON VIEW v1.trajectories IS 'One row per trainable sequence that a merge policy made, of the newest merge.';
COMMENT ON COLUMN v1.trajectories.model IS 'of the rollout';
COMMENT ON COLUMN v1.trajectories.merge_policy IS 'strict_tree, per_request or polar_compat, with parameters';
COMMENT ON COLUMN v1.trajectories.row_in_rollout IS 'from 0, within rollout and policy';
COMMENT ON COLUMN v1.trajectories.length IS 'tokens';
COMMENT ON COLUMN v1.trajectories.trained_tokens IS 'sum of loss_mask';
COMMENT ON COLUMN v1.trajectories.context_tokens IS 'the others';
COMMENT ON COLUMN v1.trajectories.policy_version_min IS 'oldest version over all spans';
COMMENT ON COLUMN v1.trajectories.policy_version_max IS 'newest version over all spans';
COMMENT ON COLUMN v1.trajectories.history_rewritten IS 'the row holds a history that no call had (polar_compat only)';
COMMENT ON COLUMN v1.trajectories.complete IS 'of the rollout';
COMMENT ON COLUMN v1.trajectories.reward IS 'of the rollout';
COMMENT ON COLUMN v1.trajectories.token_ids IS 'the whole sequence, unpadded';
COMMENT ON COLUMN v1.trajectories.loss_mask IS '1 where trained, else 0';
COMMENT ON COLUMN v1.trajectories.logprobs IS 'behaviour log-probability of the token at the same place; NULL where not sampled or not known';
COMMENT ON COLUMN v1.trajectories.spans IS 'list of (trace_id, start, end, trainable, policy_version)';
COMMENT ON VIEW v1.trajectory_spans IS 'One row per span: the positions of a trajectory that one call sampled.';
COMMENT ON COLUMN v1.trajectory_spans.start IS 'first position';
COMMENT ON COLUMN v1.trajectory_spans."end" IS 'behind the last';
COMMENT ON COLUMN v1.trajectory_spans.trainable IS 'each trained call has one trainable span, in one trajectory';
COMMENT ON COLUMN v1.trajectory_spans.policy_version IS 'at dispatch';
COMMENT ON VIEW v1.dispositions IS 'What each merge policy did with each call.';
COMMENT ON COLUMN v1.dispositions.disposition IS 'trained, duplicate, abandoned_retry, unresolved_retry, unchosen, unobserved, empty_response, untokenized or dropped_by_policy';
COMMENT ON COLUMN v1.dispositions.sampled_tokens IS 'of the call';
COMMENT ON COLUMN v1.dispositions.row_in_rollout IS 'trajectory in which it is trained';
COMMENT ON COLUMN v1.dispositions.span_start IS 'first position there';
COMMENT ON COLUMN v1.dispositions.boundary IS 'kind of its boundary; NULL: it has none';
COMMENT ON VIEW v1.boundaries IS 'How each call''s prompt relates to the rollout''s earlier sequences.';
COMMENT ON COLUMN v1.boundaries.kind IS 'first, same_prompt, extends, rewinds, diverges_in_prompt, diverges_in_response or disjoint';
COMMENT ON COLUMN v1.boundaries.nearest IS 'trace of the earlier sequence';
COMMENT ON COLUMN v1.boundaries.shared IS 'ids shared with it';
COMMENT ON VIEW v1.policy_versions IS 'One row per version of the weights, by dispatch.';
COMMENT ON COLUMN v1.policy_versions.policy_version IS 'NULL: not said';
COMMENT ON VIEW v1.merge_policies IS 'One row per merge policy that merged a rollout: how much of everything its rows are.';
COMMENT ON COLUMN v1.merge_policies.merge_policy IS 'strict_tree, per_request or polar_compat, with parameters';
COMMENT ON COLUMN v1.merge_policies.rollouts IS 'that it has merged';
COMMENT ON COLUMN v1.merge_policies.rollouts_total IS 'that have calls: when more, the policy''s rows are of a part';
COMMENT ON COLUMN v1.merge_policies.trajectories IS 'that it made of them';
COMMENT ON COLUMN v1.merge_policies.sampled_tokens IS 'of the calls that it saw';
COMMENT ON COLUMN v1.merge_policies.trained_tokens IS 'of them trained';
