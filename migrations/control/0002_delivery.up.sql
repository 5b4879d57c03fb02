-- Delivery: which groups there are, and how far each consumer is with them.
-- Primary, like all of this database: nothing else knows what was acknowledged.

-- One row per group_id, and one per finished rollout that has none
-- (rollout_key). The numbers are sums over rollouts and rewards, made when
-- somebody asks; stale says that they must be made again. Rows are never
-- deleted, so a key is never used twice.
CREATE TABLE groups (
  group_key     INTEGER PRIMARY KEY,
  group_id      TEXT,
  rollout_key   INTEGER,
  stale         INTEGER NOT NULL DEFAULT 1,
  declared      INTEGER,
  known         INTEGER NOT NULL DEFAULT 0,
  finished      INTEGER NOT NULL DEFAULT 0,
  settled       INTEGER NOT NULL DEFAULT 0,
  finished_at   INTEGER NOT NULL DEFAULT 0,
  newest_at     INTEGER NOT NULL DEFAULT 0,
  incomplete_at INTEGER NOT NULL DEFAULT 0,
  -- What all its rollouts say alike; '' when none says anything, NULL when they
  -- differ.
  split         TEXT,
  harness       TEXT,
  model         TEXT,
  task_id       TEXT,
  CHECK ((group_id IS NULL) <> (rollout_key IS NULL))
) STRICT;
CREATE UNIQUE INDEX groups_id      ON groups (group_id)    WHERE group_id IS NOT NULL;
CREATE UNIQUE INDEX groups_rollout ON groups (rollout_key) WHERE rollout_key IS NOT NULL;
CREATE INDEX        groups_stale   ON groups (group_key)   WHERE stale = 1;

-- taken_key: deliveries has a row for each group up to it. A seek sets one of
-- the bounds, or none.
CREATE TABLE consumers (
  consumer_key        INTEGER PRIMARY KEY,
  name                TEXT    NOT NULL UNIQUE,
  created_at          INTEGER NOT NULL,
  taken_key           INTEGER NOT NULL DEFAULT 0,
  from_time           INTEGER,
  from_policy_version INTEGER,
  redelivered         INTEGER NOT NULL DEFAULT 0
) STRICT;

-- A lease past expires_at no longer holds its groups, though nobody may have
-- noticed. settled_at: when nothing could become of it any more, 0 before.
CREATE TABLE leases (
  lease_key      INTEGER PRIMARY KEY,
  lease_id       TEXT    NOT NULL UNIQUE,
  consumer_key   INTEGER NOT NULL,
  key            TEXT    NOT NULL,
  state          TEXT    NOT NULL CHECK (state IN ('open','acknowledged','returned','cancelled','expired')),
  shards         INTEGER NOT NULL,
  seconds        INTEGER NOT NULL,
  groups         INTEGER NOT NULL,
  acked_groups   INTEGER NOT NULL DEFAULT 0,
  rollouts       INTEGER NOT NULL,
  rows           INTEGER NOT NULL,
  tokens         INTEGER NOT NULL,
  trained_tokens INTEGER NOT NULL,
  created_at     INTEGER NOT NULL,
  expires_at     INTEGER NOT NULL,
  settled_at     INTEGER NOT NULL DEFAULT 0,
  reason         TEXT,
  request        BLOB,
  plan           BLOB,
  UNIQUE (consumer_key, key)
) STRICT;
CREATE INDEX leases_unsettled ON leases (consumer_key, expires_at) WHERE settled_at = 0;

-- The shards that were acknowledged.
CREATE TABLE lease_shards (
  lease_key INTEGER NOT NULL,
  shard     INTEGER NOT NULL,
  acked_at  INTEGER NOT NULL,
  metrics   TEXT,
  PRIMARY KEY (lease_key, shard)
) STRICT, WITHOUT ROWID;

-- What each consumer did with each group. held and acked name the lease, and
-- the shards of it that have the group's rows (a JSON list). times counts the
-- leases it was in.
CREATE TABLE deliveries (
  consumer_key       INTEGER NOT NULL,
  group_key          INTEGER NOT NULL,
  state              TEXT    NOT NULL CHECK (state IN ('waiting','held','acked','skipped')),
  lease_key          INTEGER,
  shards             TEXT,
  reason             TEXT,
  policy_version_min INTEGER,
  times              INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (consumer_key, group_key),
  CHECK ((lease_key IS NOT NULL) = (state IN ('held','acked'))),
  CHECK ((reason IS NOT NULL) = (state = 'skipped'))
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_open    ON deliveries (consumer_key, group_key) WHERE state IN ('waiting','held');
CREATE INDEX deliveries_skipped ON deliveries (consumer_key, reason)    WHERE state = 'skipped';
CREATE INDEX deliveries_lease   ON deliveries (lease_key)               WHERE lease_key IS NOT NULL;

-- What of each rollout a lease delivers: calls up to last_batch, and the reward
-- that counted. A pin stays when its lease is settled; reopened and rewarded
-- say what changed since.
CREATE TABLE pins (
  rollout_key  INTEGER NOT NULL,
  consumer_key INTEGER NOT NULL,
  lease_key    INTEGER NOT NULL,
  group_key    INTEGER NOT NULL,
  last_batch   INTEGER NOT NULL,
  reward_id    TEXT,
  reopened     INTEGER NOT NULL DEFAULT 0,
  rewarded     INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (rollout_key, consumer_key, lease_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX pins_changed ON pins (consumer_key) WHERE reopened = 1 OR rewarded = 1;

INSERT INTO groups (group_id)
  SELECT group_id FROM rollouts WHERE group_id IS NOT NULL GROUP BY group_id ORDER BY min(rollout_key);
INSERT INTO groups (rollout_key)
  SELECT rollout_key FROM rollouts WHERE group_id IS NULL AND status IS NOT NULL ORDER BY rollout_key;
