-- One page of groups, in the order in which they were first heard of. Without
-- groups there is one row, which holds the total alone.
WITH asked AS (
  SELECT
    $1::JSON::VARCHAR[] AS group_ids, -- only these: '["step-1"]'; NULL: all
    $2::JSON::VARCHAR[] AS task_ids,
    $3::JSON::VARCHAR[] AS splits,
    $4::JSON::VARCHAR[] AS harnesses, -- groups with a rollout of one of these; NULL: all
    $5::JSON::VARCHAR[] AS models,
    $6::BOOLEAN AS complete,          -- NULL: all
    $7::BOOLEAN AS zero_advantage,
    $8::TIMESTAMPTZ AS after_time,    -- behind this place; NULL: from the beginning
    $9::VARCHAR AS after_id,
    $10::BIGINT AS row_limit
),
members AS (
  SELECT group_id, list(DISTINCT harness ORDER BY harness) FILTER (harness IS NOT NULL) AS harnesses,
    list(DISTINCT model ORDER BY model) FILTER (model IS NOT NULL) AS models
  FROM v1.rollouts WHERE group_id IS NOT NULL GROUP BY group_id
),
chosen AS MATERIALIZED (
  SELECT g.*, coalesce(m.harnesses, []) AS harnesses, coalesce(m.models, []) AS models
  FROM v1.groups g JOIN members m USING (group_id), asked a
  WHERE (a.group_ids IS NULL OR list_contains(a.group_ids, g.group_id))
    AND (a.task_ids IS NULL OR list_contains(a.task_ids, g.task_id))
    AND (a.splits IS NULL OR list_contains(a.splits, g.split))
    AND (a.harnesses IS NULL OR list_has_any(a.harnesses, m.harnesses))
    AND (a.models IS NULL OR list_has_any(a.models, m.models))
    AND (a.complete IS NULL OR g.complete = a.complete)
    AND (a.zero_advantage IS NULL OR g.zero_advantage = a.zero_advantage)
)
SELECT page.*, total
FROM (SELECT count(*) AS total FROM chosen) LEFT JOIN (
  SELECT c.* FROM chosen c, asked a
  WHERE a.after_time IS NULL OR (c.created_at, c.group_id) > (a.after_time, a.after_id)
  ORDER BY c.created_at, c.group_id LIMIT (SELECT row_limit FROM asked)) page ON true
ORDER BY created_at, group_id
