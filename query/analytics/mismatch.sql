-- What learners' log-probs (l) say against the sampler's (b), by the keys asked
-- for: d = l - b. The first row, of which total is true, is over everything
-- selected; keys that were not asked for are NULL.
WITH asked AS (
  SELECT
    $1::JSON::VARCHAR[] AS keys,      -- '["harness"]'; also harness_version, model, task_id, group_id, split, kind, merge_policy, policy_version, learner_version, decile
    $2::VARCHAR AS merge_policy,      -- 'strict_tree'; NULL: all
    $3::JSON::VARCHAR[] AS harnesses, -- only these: '["codex", "pi"]'; NULL: all
    $4::JSON::VARCHAR[] AS models,
    $5::JSON::VARCHAR[] AS task_ids,
    $6::JSON::VARCHAR[] AS group_ids,
    $7::JSON::VARCHAR[] AS splits,
    $8::BIGINT AS version_min,        -- only trajectories whose trained tokens were all sampled by this version or a newer one; NULL: all
    $9::BIGINT AS version_max,        -- … by this one or an older one
    $10::BIGINT AS learner_min,       -- only posts of this version of the learner or a newer one; NULL: all
    $11::BIGINT AS learner_max,       -- … of this one or an older one
    $12::TIMESTAMPTZ AS since,        -- only what was posted then or later; NULL: all
    $13::TIMESTAMPTZ AS until,        -- … before then
    $14::DOUBLE AS tis_low,           -- weights exp(d) are clipped below here: 0
    $15::DOUBLE AS tis_high,          -- … and above here: 2
    $16::DOUBLE AS icepop_low,        -- tokens with a weight below here are left out: 0.5
    $17::DOUBLE AS icepop_high,       -- … or above here: 5
    $18::DOUBLE AS sequence_high,     -- trajectories with a weight above here are left out: 3
    $19::BIGINT AS row_limit          -- rows at most, the total besides
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
  SELECT post, kind, comparable, learner_version, response_length, policy_version AS dispatched, policy_version_spans AS spans,
    unnest(range(start, start + len(learner_logprobs))) AS place,
    unnest(behaviour_logprobs)::DOUBLE AS b, unnest(learner_logprobs)::DOUBLE AS l
  FROM v1.mismatch_chunks WHERE post IN (SELECT post FROM posts)
),
-- d is NULL where there is nothing to compare, and where it is not finite. Before
-- an exp everything is clamped to ±20 (of which least and greatest make a number
-- even where there is none).
ratios AS (
  SELECT post, kind, comparable, learner_version, 10 * place // response_length AS decile, b, l,
    CASE WHEN spans IS NULL THEN dispatched
      ELSE coalesce(list_filter(spans, lambda s: s."start" <= place)[-1]."version", dispatched) END AS policy_version,
    CASE WHEN isfinite(l - b) THEN l - b END AS d,
    CASE WHEN isfinite(l - b) THEN exp(greatest(-20, least(20, l - b))) END AS w,
    CASE WHEN isfinite(l - b) THEN exp(least(20, b)) END AS pb,
    CASE WHEN isfinite(l - b) THEN exp(least(20, l)) END AS pl
  FROM tokens
),
-- One row per post and per what of the keys differs inside it, with sums.
parts AS MATERIALIZED (
  SELECT post, CASE WHEN list_contains(keys, 'kind') THEN kind END AS kind,
    CASE WHEN list_contains(keys, 'policy_version') THEN policy_version END AS policy_version,
    CASE WHEN list_contains(keys, 'decile') THEN decile END AS decile,
    count(*) AS trained, count(d) AS compared,
    count(*) FILTER (b IS NULL OR isnan(b)) AS without_behaviour, count(*) FILTER (l IS NULL) AS without_learner,
    count(*) FILTER (b IS NULL OR isnan(b) OR l IS NULL) AS missing, count(*) FILTER (comparable) AS comparable,
    sum(d) AS d, sum(d * d) AS dd, sum(abs(d)) AS abs_d, max(abs(d)) AS abs_max,
    sum(w) AS w, sum(w * w) AS ww, sum(w - d - 1) AS k3, sum(exp(least(20, abs(d)))) FILTER (d IS NOT NULL) AS mult,
    sum(abs(pl - pb)) AS gap, max(abs(pl - pb)) AS gap_max, sum(pl) AS pl, sum(pb) AS pb, sum(pl * pl) AS pll, sum(pb * pb) AS pbb, sum(pl * pb) AS plb,
    count(*) FILTER (w < tis_low OR w > tis_high) AS clipped, count(*) FILTER (w < icepop_low OR w > icepop_high) AS popped,
    count(policy_version) AS versioned, sum(learner_version::DOUBLE - policy_version) AS stale, max(learner_version - policy_version) AS stale_max
  FROM ratios, asked
  GROUP BY ALL
),
-- Each with the number of its row of the answer, from 1. In what follows, row 0
-- is the total.
placed AS (
  SELECT dense_rank() OVER (ORDER BY k) AS cell, * FROM (
    SELECT {
        harness: CASE WHEN list_contains(a.keys, 'harness') THEN p.harness END,
        harness_version: CASE WHEN list_contains(a.keys, 'harness_version') THEN p.harness_version END,
        model: CASE WHEN list_contains(a.keys, 'model') THEN p.model END,
        task_id: CASE WHEN list_contains(a.keys, 'task_id') THEN p.task_id END,
        group_id: CASE WHEN list_contains(a.keys, 'group_id') THEN p.group_id END,
        split: CASE WHEN list_contains(a.keys, 'split') THEN p.split END,
        kind: x.kind,
        merge_policy: CASE WHEN list_contains(a.keys, 'merge_policy') THEN p.merge_policy END,
        policy_version: x.policy_version,
        learner_version: CASE WHEN list_contains(a.keys, 'learner_version') THEN p.learner_version END,
        decile: x.decile
      } AS k, x.* EXCLUDE (kind, policy_version, decile)
    FROM parts x JOIN posts p USING (post), asked a)
),
-- What of one trajectory lies in one row of the answer.
sequences AS (
  SELECT coalesce(cell, 0) AS cell, any_value(k) AS k, post,
    sum(trained)::BIGINT AS trained, sum(compared)::BIGINT AS compared, sum(without_behaviour)::BIGINT AS without_behaviour,
    sum(without_learner)::BIGINT AS without_learner, sum(missing)::BIGINT AS missing, sum(comparable)::BIGINT AS comparable,
    sum(d) AS d, sum(dd) AS dd, sum(abs_d) AS abs_d, max(abs_max) AS abs_max, sum(w) AS w, sum(ww) AS ww, sum(k3) AS k3, sum(mult) AS mult,
    sum(gap) AS gap, max(gap_max) AS gap_max, sum(pl) AS pl, sum(pb) AS pb, sum(pll) AS pll, sum(pbb) AS pbb, sum(plb) AS plb,
    sum(clipped)::BIGINT AS clipped, sum(popped)::BIGINT AS popped,
    sum(versioned)::BIGINT AS versioned, sum(stale) AS stale, max(stale_max) AS stale_max,
    (0 - sum(d)) / sum(compared) AS log_ppl, CASE WHEN sum(compared) > 0 THEN greatest(-20, least(20, sum(d))) END AS log_weight
  FROM placed GROUP BY GROUPING SETS ((cell, post), (post))
),
cells AS (
  SELECT cell, any_value(k) AS k, count(*) AS trajectories, count(log_weight) AS compared_trajectories,
    sum(trained)::BIGINT AS trained_tokens, sum(compared)::BIGINT AS compared_tokens,
    sum(without_behaviour)::BIGINT AS without_behaviour, sum(without_learner)::BIGINT AS without_learner,
    sum(missing)::BIGINT AS missing_tokens, sum(comparable)::BIGINT AS comparable_tokens, nullif(compared_tokens, 0) AS n,
    (0 - sum(d)) / n AS k1, sum(dd) / 2 / n AS k2, sum(k3) / n AS k3, sum(abs_d) / n AS abs_mean, max(abs_max) AS abs_max,
    sum(gap) / n AS probability_gap_mean, max(gap_max) AS probability_gap_max,
    -- NULL where one of them does not vary by more than rounding does.
    CASE WHEN sum(pll) - sum(pl) ** 2 / n > 1e-12 * sum(pll) AND sum(pbb) - sum(pb) ** 2 / n > 1e-12 * sum(pbb)
      THEN (sum(plb) - sum(pl) * sum(pb) / n) / sqrt((sum(pll) - sum(pl) ** 2 / n) * (sum(pbb) - sum(pb) ** 2 / n)) END AS probability_pearson,
    sum(mult) / n AS multiplicative_error, avg(log_ppl) AS log_ppl_difference, avg(exp(greatest(-20, least(20, log_ppl)))) FILTER (log_ppl IS NOT NULL) AS ppl_ratio,
    sum(ww) / n - 1 AS chi2_token, avg(exp(2 * log_weight)) - 1 AS chi2_sequence,
    sum(w) ** 2 / n / sum(ww) AS effective_sample_size, avg(exp(log_weight)) ** 2 / avg(exp(2 * log_weight)) AS effective_sequences,
    sum(clipped) / n AS tis_clipped, sum(popped) / n AS icepop_out,
    count(*) FILTER (exp(log_weight) > sequence_high) / nullif(count(log_weight), 0) AS sequence_out,
    sum(versioned)::BIGINT AS versioned_tokens, sum(stale) / nullif(sum(versioned), 0) AS stale_mean, max(stale_max) AS stale_max
  FROM sequences, asked GROUP BY cell
)
SELECT cell = 0 AS total, count(*) OVER () - 1 AS row_count, CASE WHEN cell > 0 THEN k END AS keys, * EXCLUDE (cell, k, n)
FROM cells ORDER BY cell LIMIT 1 + (SELECT row_limit FROM asked)
