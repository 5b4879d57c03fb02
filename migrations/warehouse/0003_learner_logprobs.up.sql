-- Log-probs that learners computed for trajectories they trained on. A post is
-- what one version of the learner said of one trajectory; of several the newest
-- counts. rows lie as those of logprob_chunks do, so that what the sampler and
-- what the learner said of a token are joined by (trace_key, start) and lie side
-- by side.

-- length is that of the trajectory as it was posted; policy_version is the
-- learner's; policy_version_min and _max are those that sampled what it trained
-- on. The trajectory's merge may be superseded since: nothing here needs it.
CREATE TABLE ice.learner_posts (
  post_key           BIGINT NOT NULL,
  rollout_key        BIGINT NOT NULL,
  rollout_id         VARCHAR NOT NULL,
  trajectory_id      VARCHAR NOT NULL,
  policy             VARCHAR NOT NULL,
  policy_version     BIGINT NOT NULL,
  content_hash       BLOB NOT NULL,
  length             INTEGER NOT NULL,
  trained_tokens     INTEGER NOT NULL,
  known_tokens       INTEGER NOT NULL,
  policy_version_min BIGINT,
  policy_version_max BIGINT,
  posted_at          TIMESTAMPTZ NOT NULL,
  batch              BIGINT NOT NULL
);

-- start counts from the first response id of the trace, which stands at
-- span_start in the trajectory. A NULL element: not known at this position.
CREATE TABLE ice.learner_logprob_chunks (
  post_key    BIGINT NOT NULL,
  rollout_key BIGINT NOT NULL,
  trace_key   BIGINT NOT NULL,
  span_start  INTEGER NOT NULL,
  start       INTEGER NOT NULL,
  logprobs    FLOAT[] NOT NULL,
  batch       BIGINT NOT NULL
);

CREATE VIEW ice.counted_posts AS
SELECT * FROM ice.learner_posts
QUALIFY row_number() OVER (PARTITION BY trajectory_id, policy_version ORDER BY post_key DESC) = 1;

-- Whether a learner can be expected to compute the same log-probs: not when they
-- were taken before a temperature was applied (or nobody said), nor when they
-- were taken after top-p or top-k had left tokens out.
CREATE VIEW ice.trace_sampling AS
SELECT trace_key, NOT (CASE WHEN mode IN ('processed', 'processed_logprobs')
    THEN coalesce(top_p < 1, false) OR coalesce(top_k > 0, false)
    ELSE coalesce(temperature <> 1, false) END) AS comparable
FROM (SELECT trace_key, json_extract_string(sampling, '$.logprobs_mode') AS mode,
    try_cast(json_extract_string(sampling, '$.temperature') AS DOUBLE) AS temperature,
    try_cast(json_extract_string(sampling, '$.top_p') AS DOUBLE) AS top_p,
    try_cast(json_extract_string(sampling, '$.top_k') AS DOUBLE) AS top_k
  FROM ice.traces);

CREATE VIEW v1.learner_logprobs AS
SELECT p.post_key AS post, p.trajectory_id, p.rollout_id, r.group_id, r.task_id, r.split, r.harness, r.harness_version, r.model,
  p.policy AS merge_policy, p.policy_version AS learner_version, p.policy_version_min, p.policy_version_max,
  p.policy_version - p.policy_version_min AS staleness, p.length, p.trained_tokens, p.known_tokens, p.posted_at
FROM ice.counted_posts p LEFT JOIN ice.rollout_attributes r ON r.rollout_key = p.rollout_key;

CREATE VIEW v1.mismatch_chunks AS
SELECT p.post_key AS post, p.trajectory_id, p.rollout_id, t.trace_id, l.start, l.span_start + l.start AS position, t.response_length,
  b.logprobs AS behaviour_logprobs, l.logprobs AS learner_logprobs,
  t.policy_version, t.policy_version_spans, p.policy_version AS learner_version, s.comparable, t.kind, t.finish_reason,
  r.group_id, r.task_id, r.split, r.harness, r.harness_version, r.model, p.policy AS merge_policy
FROM ice.counted_posts p
JOIN ice.learner_logprob_chunks l ON l.post_key = p.post_key
JOIN ice.traces t ON t.trace_key = l.trace_key
LEFT JOIN ice.logprob_chunks b ON b.trace_key = l.trace_key AND b.start = l.start
LEFT JOIN ice.trace_sampling s ON s.trace_key = l.trace_key
LEFT JOIN ice.rollout_attributes r ON r.rollout_key = p.rollout_key;

CREATE VIEW v1.mismatch AS
SELECT post, trajectory_id, rollout_id, trace_id, response_position, position, 10 * response_position // response_length AS decile,
  behaviour_logprob, learner_logprob,
  -- NaN: one of them is, or both are the same infinity.
  CASE WHEN NOT isnan(learner_logprob - behaviour_logprob) THEN learner_logprob - behaviour_logprob END AS log_ratio,
  policy_version, learner_version, learner_version - policy_version AS staleness, comparable, kind, finish_reason,
  group_id, task_id, split, harness, harness_version, model, merge_policy
FROM (
  SELECT * EXCLUDE (policy_version, policy_version_spans),
    CASE WHEN policy_version_spans IS NULL THEN policy_version
      ELSE coalesce(list_filter(policy_version_spans, lambda s: s."start" <= response_position)[-1]."version", policy_version) END AS policy_version
  FROM (
    SELECT post, trajectory_id, rollout_id, trace_id, response_length, policy_version, policy_version_spans, learner_version,
      comparable, kind, finish_reason, group_id, task_id, split, harness, harness_version, model, merge_policy,
      unnest(range(start, start + len(learner_logprobs)))::INTEGER AS response_position,
      unnest(range(position, position + len(learner_logprobs)))::INTEGER AS position,
      unnest(behaviour_logprobs)::DOUBLE AS behaviour_logprob, unnest(learner_logprobs)::DOUBLE AS learner_logprob
    FROM v1.mismatch_chunks));

CREATE VIEW main.learner_logprobs AS FROM v1.learner_logprobs;
CREATE VIEW main.mismatch_chunks AS FROM v1.mismatch_chunks;
CREATE VIEW main.mismatch AS FROM v1.mismatch;

COMMENT ON VIEW v1.learner_logprobs IS 'One row per trajectory and version of a learner that posted log-probabilities of it: the newest post.';
COMMENT ON COLUMN v1.learner_logprobs.post IS 'number of the post; a newer one has a greater';
COMMENT ON COLUMN v1.learner_logprobs.trajectory_id IS 'as it was leased or exported; a newer merge may have replaced it';
COMMENT ON COLUMN v1.learner_logprobs.group_id IS 'of the rollout';
COMMENT ON COLUMN v1.learner_logprobs.model IS 'of the rollout';
COMMENT ON COLUMN v1.learner_logprobs.merge_policy IS 'that made the trajectory';
COMMENT ON COLUMN v1.learner_logprobs.learner_version IS 'policy version of the learner when it computed them';
COMMENT ON COLUMN v1.learner_logprobs.policy_version_min IS 'oldest version that sampled a trained token';
COMMENT ON COLUMN v1.learner_logprobs.policy_version_max IS 'newest version that sampled a trained token';
COMMENT ON COLUMN v1.learner_logprobs.staleness IS 'learner_version less policy_version_min';
COMMENT ON COLUMN v1.learner_logprobs.length IS 'tokens of the trajectory, as it was posted';
COMMENT ON COLUMN v1.learner_logprobs.trained_tokens IS 'of them kept';
COMMENT ON COLUMN v1.learner_logprobs.known_tokens IS 'of those with a value';
COMMENT ON COLUMN v1.learner_logprobs.posted_at IS 'icecore took it in';
COMMENT ON VIEW v1.mismatch_chunks IS 'What sampler and learner said of the same tokens, side by side in pieces of at most 4,096: for statistics over many.';
COMMENT ON COLUMN v1.mismatch_chunks.post IS 'of learner_logprobs';
COMMENT ON COLUMN v1.mismatch_chunks.trace_id IS 'the call that sampled the tokens';
COMMENT ON COLUMN v1.mismatch_chunks.start IS 'position in the response of the first';
COMMENT ON COLUMN v1.mismatch_chunks.position IS 'position in the trajectory of the first';
COMMENT ON COLUMN v1.mismatch_chunks.response_length IS 'of the whole response';
COMMENT ON COLUMN v1.mismatch_chunks.behaviour_logprobs IS 'the sampler''s; an element is NULL where not known; NULL: the call brought none';
COMMENT ON COLUMN v1.mismatch_chunks.learner_logprobs IS 'the learner''s; an element is NULL where not known';
COMMENT ON COLUMN v1.mismatch_chunks.policy_version IS 'version of the weights at dispatch';
COMMENT ON COLUMN v1.mismatch_chunks.policy_version_spans IS 'when several sampled the response: list of (start, version), start counted in the response';
COMMENT ON COLUMN v1.mismatch_chunks.learner_version IS 'of the learner';
COMMENT ON COLUMN v1.mismatch_chunks.comparable IS 'a learner can be expected to agree: not raw (or who knows) at a temperature other than 1, not processed with top-p or top-k';
COMMENT ON COLUMN v1.mismatch_chunks.kind IS 'of the call: agent or auxiliary';
COMMENT ON COLUMN v1.mismatch_chunks.finish_reason IS 'of the call';
COMMENT ON COLUMN v1.mismatch_chunks.model IS 'of the rollout';
COMMENT ON VIEW v1.mismatch IS 'One row per trained token of which a version of a learner posted a log-probability, beside the sampler''s.';
COMMENT ON COLUMN v1.mismatch.post IS 'of learner_logprobs';
COMMENT ON COLUMN v1.mismatch.trace_id IS 'the call that sampled the token';
COMMENT ON COLUMN v1.mismatch.response_position IS 'in the response, from 0';
COMMENT ON COLUMN v1.mismatch.position IS 'in the trajectory, from 0';
COMMENT ON COLUMN v1.mismatch.decile IS 'tenth of the response: 0 to 9';
COMMENT ON COLUMN v1.mismatch.behaviour_logprob IS 'the sampler''s; NULL: not known';
COMMENT ON COLUMN v1.mismatch.learner_logprob IS 'the learner''s; NULL: not known';
COMMENT ON COLUMN v1.mismatch.log_ratio IS 'd: learner_logprob less behaviour_logprob; NULL: one of them is not known or NaN; infinite where one is';
COMMENT ON COLUMN v1.mismatch.policy_version IS 'version of the weights that sampled this token';
COMMENT ON COLUMN v1.mismatch.learner_version IS 'of the learner';
COMMENT ON COLUMN v1.mismatch.staleness IS 'learner_version less policy_version';
COMMENT ON COLUMN v1.mismatch.comparable IS 'a learner can be expected to agree: not raw (or who knows) at a temperature other than 1, not processed with top-p or top-k';
COMMENT ON COLUMN v1.mismatch.kind IS 'of the call: agent or auxiliary';
COMMENT ON COLUMN v1.mismatch.finish_reason IS 'of the call';
COMMENT ON COLUMN v1.mismatch.model IS 'of the rollout';
