-- The gateway: calls are numbered here, keys open rollouts, and trainers say which
-- weights are served.

-- The highest seq that any trace or announced call of the rollout has. What older
-- traces have is taken from the warehouse at the next start.
ALTER TABLE rollouts ADD COLUMN last_seq INTEGER NOT NULL DEFAULT 0;

-- Keys that harnesses call the gateway with. Only their SHA-256 is kept.
CREATE TABLE gateway_keys (
  key_hash    BLOB    PRIMARY KEY,
  key_id      TEXT    NOT NULL UNIQUE,
  rollout_key INTEGER NOT NULL,
  label       TEXT,
  created_at  INTEGER NOT NULL,
  expires_at  INTEGER,
  revoked_at  INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX gateway_keys_rollout ON gateway_keys (rollout_key);

-- The policy version that was announced last for each model; '' stands for every
-- model that has no row. at is since when it is served, told_at when that was said.
CREATE TABLE policy_versions (
  model          TEXT    PRIMARY KEY,
  policy_version INTEGER NOT NULL,
  at             INTEGER NOT NULL,
  told_at        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
