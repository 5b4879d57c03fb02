-- The tokens on which learner and sampler agree least, by |d|. Where one of them
-- says that the token cannot be, d is infinite.
WITH asked AS (
  SELECT
    $1::VARCHAR AS merge_policy,      -- 'strict_tree'; NULL: all
    $2::JSON::VARCHAR[] AS harnesses, -- only these: '["codex", "pi"]'; NULL: all
    $3::JSON::VARCHAR[] AS models,
    $4::JSON::VARCHAR[] AS task_ids,
    $5::JSON::VARCHAR[] AS group_ids,
    $6::JSON::VARCHAR[] AS splits,
    $7::BIGINT AS version_min,        -- only trajectories whose trained tokens were all sampled by this version or a newer one; NULL: all
    $8::BIGINT AS version_max,        -- … by this one or an older one
    $9::BIGINT AS learner_min,       -- only posts of this version of the learner or a newer one; NULL: all
    $10::BIGINT AS learner_max,       -- … of this one or an older one
    $11::TIMESTAMPTZ AS since,        -- only what was posted then or later; NULL: all
    $12::TIMESTAMPTZ AS until,        -- … before then
    $13::BIGINT AS worst              -- how many
),
posts AS MATERIALIZED (
  SELECT p.* FROM v1.learner_logprobs p, asked a
  WHERE (a.merge_policy IS NULL OR p.merge_policy = a.merge_policy)
    AND (a.harnesses IS NULL OR list_contains(a.harnesses, p.harness))
    AND (a.models IS NULL OR list_contains(a.models, p.model))
    AND (a.task_ids IS NULL OR list_contains(a.task_ids, p.task_id))
    AND (a.group_ids IS NULL OR list_contains(a.group_ids, p.group_id))
    AND (a.splits IS NULL OR list_contains(a.splits, p.split))
    AND (a.version_min IS NULL OR p.policy_version_min >= a.version_min)
    AND (a.version_max IS NULL OR p.policy_version_max <= a.version_max)
    AND (a.learner_min IS NULL OR p.learner_version >= a.learner_min)
    AND (a.learner_max IS NULL OR p.learner_version <= a.learner_max)
    AND (a.since IS NULL OR p.posted_at >= a.since)
    AND (a.until IS NULL OR p.posted_at < a.until)
),
tokens AS (
  SELECT post, trace_id, start, position, policy_version AS dispatched, policy_version_spans AS spans, comparable, finish_reason,
    unnest(range(len(learner_logprobs))) AS i, unnest(behaviour_logprobs)::DOUBLE AS b, unnest(learner_logprobs)::DOUBLE AS l
  FROM v1.mismatch_chunks WHERE post IN (SELECT post FROM posts)
),
worst_tokens AS (
  SELECT * FROM tokens WHERE NOT isnan(l - b)
  ORDER BY abs(l - b) DESC, post, position + i LIMIT (SELECT worst FROM asked)
)
SELECT p.trajectory_id, p.rollout_id, p.harness, p.model, p.task_id, p.merge_policy, p.learner_version,
  t.trace_id, start + i AS response_position, t.position + i AS position, b AS behaviour_logprob, l AS learner_logprob, l - b AS log_ratio,
  CASE WHEN spans IS NULL THEN dispatched
    ELSE coalesce(list_filter(spans, lambda s: s."start" <= start + i)[-1]."version", dispatched) END AS policy_version, comparable, finish_reason
FROM worst_tokens t JOIN posts p USING (post)
ORDER BY abs(l - b) DESC, post, t.position + i
