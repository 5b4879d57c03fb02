-- The control database: everything that an acknowledgement depends on.

-- Counters and flags. Values are integers or short texts.
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- Encoded batches that the warehouse has not yet put into its checkpointed
-- file. part names the warehouse table; payload is an Arrow IPC stream of its
-- rows.
CREATE TABLE journal (
  batch   INTEGER NOT NULL,
  part    TEXT    NOT NULL,
  rows    INTEGER NOT NULL,
  payload BLOB    NOT NULL,
  PRIMARY KEY (batch, part)
) STRICT;

-- One row per stored trace. trace_hash is the first 16 bytes of SHA-256 of
-- trace_id, content_hash says what was meant by the trace.
CREATE TABLE trace_index (
  trace_hash   BLOB    PRIMARY KEY,
  content_hash BLOB    NOT NULL,
  trace_key    INTEGER NOT NULL,
  rollout_key  INTEGER NOT NULL,
  batch        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per rollout. put holds the attributes set on the rollout itself,
-- from_traces those that its traces carry; the columns hold what counts.
CREATE TABLE rollouts (
  rollout_key     INTEGER PRIMARY KEY,
  rollout_id      TEXT    NOT NULL UNIQUE,
  put             TEXT    NOT NULL DEFAULT '{}',
  from_traces     TEXT    NOT NULL DEFAULT '{}',
  task_id         TEXT,
  group_id        TEXT,
  group_size      INTEGER,
  sample_index    INTEGER,
  split           TEXT,
  harness         TEXT,
  harness_version TEXT,
  model           TEXT,
  policy_version  INTEGER,
  metadata        TEXT,
  status          TEXT,
  error           TEXT,
  finished_at     INTEGER,
  reopened        INTEGER NOT NULL DEFAULT 0,
  traces          INTEGER NOT NULL DEFAULT 0,
  last_batch      INTEGER NOT NULL DEFAULT 0,
  open_intents    INTEGER NOT NULL DEFAULT 0,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL
) STRICT;
CREATE INDEX rollouts_group   ON rollouts (group_id)  WHERE group_id IS NOT NULL;
CREATE INDEX rollouts_task    ON rollouts (task_id)   WHERE task_id IS NOT NULL;
CREATE INDEX rollouts_harness ON rollouts (harness)   WHERE harness IS NOT NULL;

-- Announced calls whose trace has not come.
CREATE TABLE intents (
  trace_hash  BLOB    PRIMARY KEY,
  trace_id    TEXT    NOT NULL,
  rollout_key INTEGER NOT NULL,
  seq         INTEGER,
  started_at  INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX intents_rollout ON intents (rollout_key);

CREATE TABLE rewards (
  reward_id   TEXT    PRIMARY KEY,
  rollout_key INTEGER NOT NULL,
  trace_id    TEXT    NOT NULL DEFAULT '',
  name        TEXT    NOT NULL,
  source      TEXT    NOT NULL DEFAULT '',
  revision    INTEGER NOT NULL,
  value       REAL    NOT NULL,
  at          INTEGER,
  metadata    TEXT,
  stored_at   INTEGER NOT NULL,
  UNIQUE (rollout_key, trace_id, name, source, revision)
) STRICT, WITHOUT ROWID;
