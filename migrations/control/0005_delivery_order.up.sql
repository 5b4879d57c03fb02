-- A lease reads as many groups as it gives out, however many wait: each consumer's
-- groups stand in an index in the order in which they are given out.

-- How far a group is by its counts: 2 when as many rollouts are settled as it
-- needs, 1 when as many are finished, else 0.
ALTER TABLE groups ADD COLUMN stage INTEGER GENERATED ALWAYS AS (
  CASE WHEN settled  >= max(coalesce(declared, known), 1) THEN 2
       WHEN finished >= max(coalesce(declared, known), 1) THEN 1
       ELSE 0 END) VIRTUAL;

-- stage and finished_at of the group, as they were when it was summed.
ALTER TABLE deliveries ADD COLUMN stage INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
UPDATE deliveries SET stage = g.stage, place = g.finished_at FROM groups g WHERE g.group_key = deliveries.group_key;
CREATE INDEX deliveries_ready ON deliveries (consumer_key, stage, place, group_key) WHERE state = 'waiting' AND stage > 0;
