-- The trajectories on which learner and sampler agree least: the first by k3, and
-- the first by mean |d|. Their places in both orders stand with them.
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
    $13::BIGINT AS worst              -- how many of each
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
  SELECT post, unnest(behaviour_logprobs)::DOUBLE AS b, unnest(learner_logprobs)::DOUBLE AS l
  FROM v1.mismatch_chunks WHERE post IN (SELECT post FROM posts)
),
sums AS (
  SELECT post, count(*) AS compared_tokens, sum(d) AS log_weight, avg(abs(d)) AS abs_mean, max(abs(d)) AS abs_max,
    avg(exp(greatest(-20, least(20, d))) - d - 1) AS k3
  FROM (SELECT post, l - b AS d FROM tokens WHERE isfinite(l - b)) GROUP BY post
),
ranked AS (
  SELECT *, row_number() OVER (ORDER BY k3 DESC, post) AS by_k3, row_number() OVER (ORDER BY abs_mean DESC, post) AS by_abs FROM sums
)
SELECT trajectory_id, rollout_id, harness, model, task_id, group_id, p.merge_policy, learner_version, policy_version_min, policy_version_max,
  trained_tokens, compared_tokens, k3, abs_mean, abs_max, log_weight, by_k3, by_abs
FROM ranked JOIN posts p USING (post), asked WHERE by_k3 <= worst OR by_abs <= worst ORDER BY by_k3
