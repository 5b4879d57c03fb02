-- Rollouts, rewards, groups, tokens and calls, by the keys asked for. The first
-- row, of which total is true, is over everything selected; keys that were not
-- asked for are NULL.
WITH asked AS (
  SELECT
    $1::JSON::VARCHAR[] AS keys,      -- '["harness"]'; also harness_version, model, task_id, group_id, split, policy_version, bucket
    $2::VARCHAR AS bucket,            -- of the key bucket: 'hour', 'day' or 'week'
    $3::VARCHAR AS merge_policy,      -- 'strict_tree'
    $4::DOUBLE AS solved_at,          -- a reward of at least this counts as solved
    $5::JSON::BIGINT[] AS ks,         -- '[1, 2, 4, 8]': each k of pass@k
    $6::BIGINT AS current_version,    -- staleness counts from here; NULL: from the newest version seen
    $7::JSON::VARCHAR[] AS harnesses, -- only these: '["codex", "pi"]'; NULL: all
    $8::JSON::VARCHAR[] AS models,
    $9::JSON::VARCHAR[] AS task_ids,
    $10::JSON::VARCHAR[] AS group_ids,
    $11::JSON::VARCHAR[] AS splits,
    $12::BIGINT AS version_min,       -- only rollouts whose policy versions are all at least this; NULL: all
    $13::BIGINT AS version_max,       -- … at most this
    $14::TIMESTAMPTZ AS since,        -- only rollouts that began then or later; NULL: all
    $15::TIMESTAMPTZ AS until,        -- … before then
    $16::BIGINT AS row_limit          -- rows at most, the total besides
),
-- The rollouts selected. One begins with its first call; when no call says when
-- that was, it is when the rollout was first heard of.
chosen AS (
  SELECT r.*, coalesce(r.first_started_at, r.created_at) AS began
  FROM v1.rollouts r, asked a
  WHERE (a.harnesses IS NULL OR list_contains(a.harnesses, r.harness))
    AND (a.models IS NULL OR list_contains(a.models, r.model))
    AND (a.task_ids IS NULL OR list_contains(a.task_ids, r.task_id))
    AND (a.group_ids IS NULL OR list_contains(a.group_ids, r.group_id))
    AND (a.splits IS NULL OR list_contains(a.splits, r.split))
    AND (a.version_min IS NULL OR least(r.policy_version, r.policy_version_min) >= a.version_min)
    AND (a.version_max IS NULL OR greatest(r.policy_version, r.policy_version_max) <= a.version_max)
    AND (a.since IS NULL OR began >= a.since)
    AND (a.until IS NULL OR began < a.until)
),
-- Each with the number of its row, from 1. In what follows, row 0 is the total.
placed AS MATERIALIZED (
  SELECT dense_rank() OVER (ORDER BY k) AS cell, * FROM (
    SELECT {
        harness: CASE WHEN list_contains(a.keys, 'harness') THEN harness END,
        harness_version: CASE WHEN list_contains(a.keys, 'harness_version') THEN harness_version END,
        model: CASE WHEN list_contains(a.keys, 'model') THEN model END,
        task_id: CASE WHEN list_contains(a.keys, 'task_id') THEN task_id END,
        group_id: CASE WHEN list_contains(a.keys, 'group_id') THEN group_id END,
        split: CASE WHEN list_contains(a.keys, 'split') THEN split END,
        policy_version: CASE WHEN list_contains(a.keys, 'policy_version') THEN policy_version END,
        bucket: CASE WHEN list_contains(a.keys, 'bucket') THEN date_trunc(a.bucket, began) END
      } AS k,
      rollout_id, group_id, status, open_intents, reopened, reward, traces, sampled_tokens, prompt_tokens, kept_tokens
    FROM chosen, asked a)
),
rollouts AS (
  SELECT coalesce(cell, 0) AS cell, any_value(k) AS k, count(*) AS rollouts,
    count(*) FILTER (status IS NULL) AS open,
    count(*) FILTER (status = 'succeeded') AS succeeded, count(*) FILTER (status = 'failed') AS failed,
    count(*) FILTER (status = 'timeout') AS timeout, count(*) FILTER (status = 'error') AS error,
    count(*) FILTER (status = 'cancelled') AS cancelled,
    count(*) FILTER (status IS NOT NULL AND open_intents > 0) AS incomplete, count(*) FILTER (reopened) AS reopened,
    count(reward) AS rewarded, count(*) FILTER (reward >= solved_at) AS solved,
    -- Sums of squares must fit a double: rewards beyond 1e150 leave these NULL.
    CASE WHEN max(abs(reward)) <= 1e150 THEN avg(reward) END AS reward_mean,
    CASE WHEN max(abs(reward)) <= 1e150 THEN stddev_samp(reward) FILTER (abs(reward) <= 1e150) END AS reward_std,
    min(reward) AS reward_min, max(reward) AS reward_max,
    sum(prompt_tokens + sampled_tokens)::BIGINT AS sent_tokens, sum(kept_tokens)::BIGINT AS kept_tokens,
    sum(sampled_tokens)::BIGINT AS sampled_tokens
  FROM placed, asked GROUP BY GROUPING SETS ((cell), ())
),
-- Groups, by the rollouts of theirs that are in the row.
grouped AS (
  SELECT coalesce(cell, 0) AS cell, group_id, count(reward) AS n, count(*) FILTER (reward >= solved_at) AS c,
    max(reward) - min(reward) <= 1e-9 * greatest(1, abs(min(reward)), abs(max(reward))) AS alike
  FROM placed, asked WHERE group_id IS NOT NULL
  GROUP BY GROUPING SETS ((cell, group_id), (group_id))
),
groups AS (
  SELECT cell, count(*) AS groups, count(*) FILTER (n >= 2) AS compared, count(*) FILTER (n >= 2 AND alike) AS zero_advantage
  FROM grouped GROUP BY cell
),
-- 1 - C(n-c, k) / C(n, k) in each group of at least k scored rollouts, and the mean of that.
passes AS (
  SELECT cell, list({k: k, groups: groups, pass: pass} ORDER BY k) AS pass_at_k FROM (
    SELECT cell, k, count(*) AS groups, avg(1 - list_product(list_transform(range(k), lambda j: (n - c - j) / (n - j)))) AS pass
    FROM grouped, (SELECT unnest(list_distinct(ks)) AS k FROM asked) WHERE n >= k GROUP BY cell, k)
  GROUP BY cell
),
calls AS (
  SELECT coalesce(cell, 0) AS cell, count(*) AS calls, count(*) FILTER (status <> 'ok') AS failed_calls,
    sum(response_length) FILTER (has_logprobs)::BIGINT AS logprob_tokens,
    count(seconds) AS timed_calls, quantile_cont(seconds, [0.5, 0.95, 0.99]) AS seconds,
    count(first) AS first_token_calls, quantile_cont(first, [0.5, 0.95]) AS first_token_seconds,
    sum(response_length) FILTER (seconds > 0) / sum(seconds) FILTER (response_length IS NOT NULL) AS tokens_per_second
  FROM (
    SELECT p.cell, t.status, t.response_length, t.has_logprobs,
      CASE WHEN t.finished_at >= t.started_at THEN (epoch_us(t.finished_at) - epoch_us(t.started_at)) / 1e6 END AS seconds,
      CASE WHEN t.first_token_at >= t.started_at THEN (epoch_us(t.first_token_at) - epoch_us(t.started_at)) / 1e6 END AS first
    FROM v1.traces t JOIN placed p USING (rollout_id))
  GROUP BY GROUPING SETS ((cell), ())
),
merged AS MATERIALIZED (
  SELECT p.cell, d.disposition, d.boundary, count(*) AS calls, sum(d.sampled_tokens)::BIGINT AS tokens
  FROM v1.dispositions d JOIN placed p USING (rollout_id), asked a WHERE d.merge_policy = a.merge_policy
  GROUP BY ALL
),
dispositions AS (
  SELECT cell, list({disposition: disposition, calls: calls, tokens: tokens} ORDER BY disposition) AS dispositions FROM (
    SELECT coalesce(cell, 0) AS cell, disposition, sum(calls)::BIGINT AS calls, sum(tokens)::BIGINT AS tokens
    FROM merged GROUP BY GROUPING SETS ((cell, disposition), (disposition)))
  GROUP BY cell
),
boundaries AS (
  SELECT cell, list({kind: boundary, calls: calls} ORDER BY boundary) AS boundaries FROM (
    SELECT coalesce(cell, 0) AS cell, boundary, sum(calls)::BIGINT AS calls
    FROM merged WHERE boundary IS NOT NULL GROUP BY GROUPING SETS ((cell, boundary), (boundary)))
  GROUP BY cell
),
newest AS (
  SELECT coalesce((SELECT current_version FROM asked),
    greatest((SELECT max(policy_version) FROM v1.rollouts), (SELECT max(policy_version_max) FROM v1.trajectories))) AS version
),
trajectories AS (
  SELECT coalesce(p.cell, 0) AS cell, count(*) AS trajectories, count(DISTINCT rollout_id) AS merged_rollouts,
    sum(t.length)::BIGINT AS row_tokens, sum(t.trained_tokens)::BIGINT AS trained_tokens,
    count(version - t.policy_version_min) AS versioned, avg(version - t.policy_version_min) AS stale_mean,
    quantile_cont(version - t.policy_version_min, 0.95) AS stale_p95, max(version - t.policy_version_min) AS stale_max
  FROM v1.trajectories t JOIN placed p USING (rollout_id), asked a, newest WHERE t.merge_policy = a.merge_policy
  GROUP BY GROUPING SETS ((p.cell), ())
)
SELECT r.cell = 0 AS total, count(*) OVER () - 1 AS row_count,
  CASE WHEN r.cell > 0 THEN r.k END AS keys, r.* EXCLUDE (cell, k),
  coalesce(groups, 0) AS groups, coalesce(compared, 0) AS groups_compared, coalesce(zero_advantage, 0) AS groups_zero_advantage, pass_at_k,
  coalesce(calls, 0) AS calls, coalesce(failed_calls, 0) AS failed_calls, coalesce(logprob_tokens, 0) AS logprob_tokens,
  coalesce(timed_calls, 0) AS timed_calls, seconds, coalesce(first_token_calls, 0) AS first_token_calls, first_token_seconds, tokens_per_second,
  coalesce(trajectories, 0) AS trajectories, coalesce(merged_rollouts, 0) AS merged_rollouts,
  coalesce(row_tokens, 0) AS row_tokens, coalesce(trained_tokens, 0) AS trained_tokens, dispositions, boundaries,
  newest.version AS current_version, coalesce(versioned, 0) AS versioned_trajectories, stale_mean, stale_p95, stale_max
FROM rollouts r
LEFT JOIN groups g USING (cell) LEFT JOIN passes USING (cell) LEFT JOIN calls USING (cell)
LEFT JOIN dispositions USING (cell) LEFT JOIN boundaries USING (cell) LEFT JOIN trajectories USING (cell), newest
ORDER BY r.cell LIMIT 1 + (SELECT row_limit FROM asked)
