-- The warehouse: append-only tables without keys or indexes. Integer keys come
-- from the control database. Rows are short by construction (no list is longer
-- than 4,096 elements), so that a vector of 2,048 rows stays small.

CREATE SCHEMA ice;

-- One row per trace. Its prompt is the first prompt_length ids of tape
-- tape_key, its response the response_length ids after them. A NULL length:
-- those ids are not known; such ids as are known lie on a tape of their own.
CREATE TABLE ice.traces (
  trace_key          BIGINT NOT NULL,
  rollout_key        BIGINT NOT NULL,
  batch              BIGINT NOT NULL,
  trace_id           VARCHAR NOT NULL,
  rollout_id         VARCHAR NOT NULL,
  content_hash       BLOB NOT NULL,
  seq                BIGINT,
  tape_key           BIGINT NOT NULL,
  prompt_length      INTEGER,
  response_length    INTEGER,
  prompt_hash        BLOB,
  has_logprobs       BOOLEAN NOT NULL,
  ids_incomplete     BOOLEAN NOT NULL,
  policy_version     BIGINT,
  policy_version_spans STRUCT("start" BIGINT, "version" BIGINT)[],
  status             VARCHAR NOT NULL,
  finish_reason      VARCHAR,
  choice_group       VARCHAR,
  choice_index       BIGINT,
  kind               VARCHAR NOT NULL,
  task_id            VARCHAR,
  group_id           VARCHAR,
  sample_index       BIGINT,
  harness            VARCHAR,
  harness_version    VARCHAR,
  model              VARCHAR,
  tokenizer          VARCHAR,
  api                VARCHAR,
  parent_rollout_id  VARCHAR,
  chat_template_hash VARCHAR,
  tools_hash         VARCHAR,
  sampling           VARCHAR,
  usage              VARCHAR,
  metadata           VARCHAR,
  extra              VARCHAR,
  error              VARCHAR,
  started_at         TIMESTAMPTZ,
  first_token_at     TIMESTAMPTZ,
  finished_at        TIMESTAMPTZ,
  received_at        TIMESTAMPTZ NOT NULL,
  request_bytes      INTEGER,
  response_bytes     INTEGER,
  text_repaired      BOOLEAN NOT NULL
);

-- A tape begins with the first fork ids of its parent (0: no parent).
CREATE TABLE ice.tapes (
  tape_key    BIGINT NOT NULL,
  rollout_key BIGINT NOT NULL,
  parent_key  BIGINT NOT NULL,
  fork        INTEGER NOT NULL,
  batch       BIGINT NOT NULL
);

-- The tape's own ids. start counts from the beginning of the tape, the part
-- taken from its parent included.
CREATE TABLE ice.tape_chunks (
  tape_key    BIGINT NOT NULL,
  rollout_key BIGINT NOT NULL,
  start       INTEGER NOT NULL,
  token_ids   INTEGER[] NOT NULL,
  batch       BIGINT NOT NULL
);

-- Behaviour log-probabilities of a trace's response; start counts from the
-- first response id. A NULL element: not known at this position.
CREATE TABLE ice.logprob_chunks (
  trace_key   BIGINT NOT NULL,
  rollout_key BIGINT NOT NULL,
  start       INTEGER NOT NULL,
  logprobs    FLOAT[] NOT NULL,
  batch       BIGINT NOT NULL
);

-- What crossed the wire. data is zstd with the body of base_key (0: none) as
-- its dictionary; side is 'request' or 'response'.
CREATE TABLE ice.bodies (
  trace_key   BIGINT NOT NULL,
  rollout_key BIGINT NOT NULL,
  side        VARCHAR NOT NULL,
  base_key    BIGINT NOT NULL,
  raw_bytes   INTEGER NOT NULL,
  data        BLOB NOT NULL,
  batch       BIGINT NOT NULL
);

-- Every state that a rollout has had; the newest batch counts. open_intents is
-- kept up from the moment a rollout is finished.
CREATE TABLE ice.rollouts (
  rollout_key     BIGINT NOT NULL,
  rollout_id      VARCHAR NOT NULL,
  task_id         VARCHAR,
  group_id        VARCHAR,
  group_size      BIGINT,
  sample_index    BIGINT,
  split           VARCHAR,
  harness         VARCHAR,
  harness_version VARCHAR,
  model           VARCHAR,
  policy_version  BIGINT,
  metadata        VARCHAR,
  status          VARCHAR,
  error           VARCHAR,
  finished_at     TIMESTAMPTZ,
  reopened        BOOLEAN NOT NULL,
  open_intents    BIGINT NOT NULL,
  created_at      TIMESTAMPTZ NOT NULL,
  updated_at      TIMESTAMPTZ NOT NULL,
  batch           BIGINT NOT NULL
);

CREATE TABLE ice.rewards (
  reward_id   VARCHAR NOT NULL,
  rollout_key BIGINT NOT NULL,
  rollout_id  VARCHAR NOT NULL,
  trace_id    VARCHAR,
  name        VARCHAR NOT NULL,
  source      VARCHAR,
  revision    BIGINT NOT NULL,
  value       DOUBLE NOT NULL,
  rewarded_at TIMESTAMPTZ,
  metadata    VARCHAR,
  stored_at   TIMESTAMPTZ NOT NULL,
  batch       BIGINT NOT NULL
);

-- The batches that this file holds: all up to the greatest last_batch.
CREATE TABLE ice.drains (
  last_batch BIGINT NOT NULL,
  drained_at TIMESTAMPTZ NOT NULL
);

-- Merge results. A generation is one merge of one rollout by one policy over
-- the traces of all batches up to through_batch; the newest one is published.
CREATE TABLE ice.generations (
  generation    BIGINT NOT NULL,
  rollout_key   BIGINT NOT NULL,
  policy        VARCHAR NOT NULL,
  through_batch BIGINT NOT NULL,
  traces        INTEGER NOT NULL,
  trajectories  INTEGER NOT NULL,
  sampled_tokens BIGINT NOT NULL,
  trained_tokens BIGINT NOT NULL,
  merged_at     TIMESTAMPTZ NOT NULL
);

-- What a merge made of each trace. previous_key is the call before it in its
-- row, cut the place in its prompt and response where its share of the row
-- begins, span_start the row position of its first sampled token, row_index the
-- row in which that span is trainable. boundary is NULL for traces that are no
-- node of strict_tree.
CREATE TABLE ice.merged_traces (
  generation   BIGINT NOT NULL,
  rollout_key  BIGINT NOT NULL,
  policy       VARCHAR NOT NULL,
  trace_key    BIGINT NOT NULL,
  disposition  VARCHAR NOT NULL,
  previous_key BIGINT,
  cut          INTEGER NOT NULL,
  span_start   INTEGER,
  row_index    INTEGER,
  boundary     VARCHAR,
  nearest_key  BIGINT,
  shared       INTEGER
);

-- The rows that a merge made. Tokens and spans follow from last_key back over
-- merged_traces.previous_key.
CREATE TABLE ice.trajectories (
  generation         BIGINT NOT NULL,
  rollout_key        BIGINT NOT NULL,
  policy             VARCHAR NOT NULL,
  row_index          INTEGER NOT NULL,
  trajectory_id      VARCHAR NOT NULL,
  naming_key         BIGINT NOT NULL,
  last_key           BIGINT NOT NULL,
  length             INTEGER NOT NULL,
  trained_tokens     INTEGER NOT NULL,
  policy_version_min BIGINT,
  policy_version_max BIGINT,
  history_rewritten  BOOLEAN NOT NULL
);
