-- Training and evaluation of the same task, side by side. One row per task and
-- key that has rollouts of both splits; a first row, of which total is true,
-- holds the mean over the rows that were scored in both, each row alike.
WITH asked AS (
  SELECT
    $1::JSON::VARCHAR[] AS keys,      -- beside task_id: '["harness"]'; also harness_version, model
    $2::DOUBLE AS solved_at,          -- a reward of at least this counts as solved
    $3::JSON::VARCHAR[] AS harnesses, -- only these: '["codex", "pi"]'; NULL: all
    $4::JSON::VARCHAR[] AS models,
    $5::JSON::VARCHAR[] AS task_ids,
    $6::JSON::VARCHAR[] AS group_ids,
    $7::BIGINT AS version_min,        -- only rollouts whose policy versions are all at least this; NULL: all
    $8::BIGINT AS version_max,        -- … at most this
    $9::TIMESTAMPTZ AS since,         -- only rollouts that began then or later; NULL: all
    $10::TIMESTAMPTZ AS until,        -- … before then
    $11::BIGINT AS row_limit          -- rows at most, the total besides
),
chosen AS (
  SELECT r.*, coalesce(r.first_started_at, r.created_at) AS began
  FROM v1.rollouts r, asked a
  WHERE r.task_id IS NOT NULL AND r.split IS NOT NULL
    AND (a.harnesses IS NULL OR list_contains(a.harnesses, r.harness))
    AND (a.models IS NULL OR list_contains(a.models, r.model))
    AND (a.task_ids IS NULL OR list_contains(a.task_ids, r.task_id))
    AND (a.group_ids IS NULL OR list_contains(a.group_ids, r.group_id))
    AND (a.version_min IS NULL OR least(r.policy_version, r.policy_version_min) >= a.version_min)
    AND (a.version_max IS NULL OR greatest(r.policy_version, r.policy_version_max) <= a.version_max)
    AND (a.since IS NULL OR began >= a.since)
    AND (a.until IS NULL OR began < a.until)
),
-- Sums of squares must fit a double: rewards beyond 1e150 leave mean and std NULL.
tasks AS (
  SELECT {
      task_id: task_id,
      harness: CASE WHEN list_contains(a.keys, 'harness') THEN harness END,
      harness_version: CASE WHEN list_contains(a.keys, 'harness_version') THEN harness_version END,
      model: CASE WHEN list_contains(a.keys, 'model') THEN model END
    } AS k,
    count(*) FILTER (split = 'train') AS train_rollouts, count(*) FILTER (split = 'eval') AS eval_rollouts,
    count(reward) FILTER (split = 'train') AS train_rewarded, count(reward) FILTER (split = 'eval') AS eval_rewarded,
    count(*) FILTER (split = 'train' AND reward >= solved_at) AS train_solved,
    count(*) FILTER (split = 'eval' AND reward >= solved_at) AS eval_solved,
    CASE WHEN max(abs(reward)) <= 1e150 THEN avg(reward) FILTER (split = 'train') END AS train_reward_mean,
    CASE WHEN max(abs(reward)) <= 1e150 THEN avg(reward) FILTER (split = 'eval') END AS eval_reward_mean,
    CASE WHEN max(abs(reward)) <= 1e150 THEN stddev_samp(reward) FILTER (split = 'train' AND abs(reward) <= 1e150) END AS train_reward_std,
    CASE WHEN max(abs(reward)) <= 1e150 THEN stddev_samp(reward) FILTER (split = 'eval' AND abs(reward) <= 1e150) END AS eval_reward_std
  FROM chosen, asked a GROUP BY k
),
both_splits AS (
  SELECT *, 100 * (train_solved / nullif(train_rewarded, 0) - eval_solved / nullif(eval_rewarded, 0)) AS points,
    train_reward_mean - eval_reward_mean AS gap
  FROM tasks WHERE train_rollouts > 0 AND eval_rollouts > 0
),
total AS (
  SELECT true AS total, count(*) AS row_count, count(points) AS pairs, avg(points) AS points_mean, stddev_samp(points) AS points_std,
    CASE WHEN count(gap) = count(points) THEN avg(gap) END AS gap_mean,
    CASE WHEN count(gap) = count(points) THEN stddev_samp(gap) END AS gap_std,
    (SELECT count(*) FROM tasks WHERE eval_rollouts = 0) AS only_in_train,
    (SELECT count(*) FROM tasks WHERE train_rollouts = 0) AS only_in_eval,
    sum(train_rollouts)::BIGINT AS train_rollouts, sum(eval_rollouts)::BIGINT AS eval_rollouts,
    sum(train_rewarded)::BIGINT AS train_rewarded, sum(eval_rewarded)::BIGINT AS eval_rewarded,
    sum(train_solved)::BIGINT AS train_solved, sum(eval_solved)::BIGINT AS eval_solved
  FROM both_splits
)
SELECT * FROM total UNION ALL BY NAME
(SELECT false AS total, k AS keys, points AS points_mean, gap AS gap_mean, * EXCLUDE (k, points, gap) FROM both_splits
  ORDER BY k LIMIT (SELECT row_limit FROM asked))
ORDER BY total DESC, keys
