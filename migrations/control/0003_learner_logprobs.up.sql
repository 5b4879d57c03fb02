-- The newest post of each trajectory and version of the learner: what tells a
-- repeated one. Like trace_index it can be made again from warehouse and journal.
CREATE TABLE learner_posts (
  trajectory_id  TEXT    NOT NULL,
  policy_version INTEGER NOT NULL,
  content_hash   BLOB    NOT NULL,
  post_key       INTEGER NOT NULL,
  batch          INTEGER NOT NULL,
  PRIMARY KEY (trajectory_id, policy_version)
) STRICT, WITHOUT ROWID;
