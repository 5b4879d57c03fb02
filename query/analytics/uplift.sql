-- Solve rate and reward of the same tasks under two ranges of policy versions.
-- Only tasks that were scored in both count, each alike: its mean in the one
-- range, its mean in the other, and the difference. One row per key.
WITH asked AS (
  SELECT
    $1::JSON::VARCHAR[] AS keys,      -- '["harness"]'; also harness_version, model, split
    $2::DOUBLE AS solved_at,          -- a reward of at least this counts as solved
    -- The range to start from and the one to compare with it, both ends in it; NULL: no end.
    coalesce($3::BIGINT, 0) AS base_min, coalesce($4::BIGINT, 9223372036854775807) AS base_max,
    coalesce($5::BIGINT, 0) AS against_min, coalesce($6::BIGINT, 9223372036854775807) AS against_max,
    $7::JSON::VARCHAR[] AS harnesses, -- only these: '["codex", "pi"]'; NULL: all
    $8::JSON::VARCHAR[] AS models,
    $9::JSON::VARCHAR[] AS task_ids,
    $10::JSON::VARCHAR[] AS group_ids,
    $11::JSON::VARCHAR[] AS splits,
    $12::TIMESTAMPTZ AS since,        -- only rollouts that began then or later; NULL: all
    $13::TIMESTAMPTZ AS until,        -- … before then
    $14::BIGINT AS row_limit          -- rows at most
),
chosen AS (
  SELECT r.*, coalesce(r.first_started_at, r.created_at) AS began,
    least(r.policy_version, r.policy_version_min) AS oldest, greatest(r.policy_version, r.policy_version_max) AS newest
  FROM v1.rollouts r, asked a
  WHERE (a.harnesses IS NULL OR list_contains(a.harnesses, r.harness))
    AND (a.models IS NULL OR list_contains(a.models, r.model))
    AND (a.task_ids IS NULL OR list_contains(a.task_ids, r.task_id))
    AND (a.group_ids IS NULL OR list_contains(a.group_ids, r.group_id))
    AND (a.splits IS NULL OR list_contains(a.splits, r.split))
    AND (a.since IS NULL OR began >= a.since)
    AND (a.until IS NULL OR began < a.until)
),
-- A rollout is of a range when all its policy versions are in it. One that is
-- partly in a range was sampled by two kinds of weights: it counts as mixed.
sided AS (
  SELECT {
      harness: CASE WHEN list_contains(a.keys, 'harness') THEN harness END,
      harness_version: CASE WHEN list_contains(a.keys, 'harness_version') THEN harness_version END,
      model: CASE WHEN list_contains(a.keys, 'model') THEN model END,
      split: CASE WHEN list_contains(a.keys, 'split') THEN split END
    } AS k,
    task_id, reward, CASE WHEN reward IS NOT NULL THEN (reward >= solved_at)::INTEGER END AS solved,
    CASE
      WHEN oldest IS NULL THEN 'unversioned'
      WHEN oldest >= base_min AND newest <= base_max THEN 'base'
      WHEN oldest >= against_min AND newest <= against_max THEN 'against'
      WHEN newest >= base_min AND oldest <= base_max OR newest >= against_min AND oldest <= against_max THEN 'mixed'
      ELSE 'outside'
    END AS side
  FROM chosen, asked a
),
tasks AS (
  SELECT k, task_id, max(abs(reward)) FILTER (side IN ('base', 'against')) AS size,
    count(*) FILTER (side = 'base') AS base_rollouts, count(*) FILTER (side = 'against') AS against_rollouts,
    count(reward) FILTER (side = 'base') AS base_rewarded, count(reward) FILTER (side = 'against') AS against_rewarded,
    avg(solved) FILTER (side = 'base') AS base_solved, avg(solved) FILTER (side = 'against') AS against_solved,
    avg(reward) FILTER (side = 'base') AS base_reward, avg(reward) FILTER (side = 'against') AS against_reward
  FROM sided WHERE task_id IS NOT NULL GROUP BY k, task_id
),
pairs AS (
  SELECT *, 100 * (against_solved - base_solved) AS points, against_reward - base_reward AS gain
  FROM tasks WHERE base_rewarded > 0 AND against_rewarded > 0
),
compared AS (
  SELECT k, count(*) AS tasks, sum(base_rewarded)::BIGINT AS base_rollouts, sum(against_rewarded)::BIGINT AS against_rollouts,
    count(*) FILTER (points > 0) AS improved, count(*) FILTER (points < 0) AS worsened,
    avg(base_solved) AS base_solve_rate, avg(against_solved) AS against_solve_rate,
    avg(points) AS points_mean, stddev_samp(points) AS points_std,
    -- Sums of squares must fit a double: rewards beyond 1e150 leave these NULL.
    CASE WHEN max(size) <= 1e150 THEN avg(base_reward) END AS base_reward,
    CASE WHEN max(size) <= 1e150 THEN avg(against_reward) END AS against_reward,
    CASE WHEN max(size) <= 1e150 THEN avg(gain) END AS gain_mean,
    CASE WHEN max(size) <= 1e150 THEN stddev_samp(gain) FILTER (size <= 1e150) END AS gain_std
  FROM pairs GROUP BY k
),
-- Why the other tasks and rollouts are not in it.
dropped AS (
  SELECT k,
    count(*) FILTER (base_rollouts > 0 AND against_rollouts = 0) AS tasks_only_in_base,
    count(*) FILTER (base_rollouts = 0 AND against_rollouts > 0) AS tasks_only_in_against,
    count(*) FILTER (base_rollouts > 0 AND against_rollouts > 0 AND least(base_rewarded, against_rewarded) = 0) AS tasks_unrewarded
  FROM tasks GROUP BY k
),
unused AS (
  SELECT k, count(*) FILTER (side = 'mixed') AS rollouts_mixed, count(*) FILTER (side = 'unversioned') AS rollouts_unversioned,
    count(*) FILTER (side IN ('base', 'against') AND task_id IS NULL) AS rollouts_without_task,
    count(*) FILTER (side IN ('base', 'against') AND task_id IS NOT NULL AND reward IS NULL) AS rollouts_unrewarded
  FROM sided GROUP BY k
)
SELECT count(*) OVER () AS row_count, u.k AS keys, coalesce(tasks, 0) AS tasks,
  coalesce(base_rollouts, 0) AS base_rollouts, coalesce(against_rollouts, 0) AS against_rollouts,
  coalesce(improved, 0) AS improved, coalesce(worsened, 0) AS worsened,
  base_solve_rate, against_solve_rate, points_mean, points_std, base_reward, against_reward, gain_mean, gain_std,
  coalesce(tasks_only_in_base, 0) AS tasks_only_in_base, coalesce(tasks_only_in_against, 0) AS tasks_only_in_against,
  coalesce(tasks_unrewarded, 0) AS tasks_unrewarded,
  rollouts_mixed, rollouts_unversioned, rollouts_without_task, rollouts_unrewarded
FROM unused u LEFT JOIN compared USING (k) LEFT JOIN dropped USING (k)
ORDER BY u.k LIMIT (SELECT row_limit FROM asked)
