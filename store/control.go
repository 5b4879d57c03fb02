package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // the "sqlite" driver
)

// control is the control database: one connection that writes, owned by the
// committer, and a pool that reads.
type control struct {
	path  string
	write *sql.DB
	read  *sql.DB
}

// controlPragmas hold for every connection.
var controlPragmas = []string{
	"journal_mode(WAL)",
	// FULL makes a commit durable before it returns; anything less would
	// acknowledge what a power cut can take back.
	"synchronous(FULL)",
	"busy_timeout(10000)",
	"foreign_keys(1)",
	"cache_size(-65536)",
	// The committer must not stop for a checkpoint of the write-ahead log: a
	// goroutine of its own does them.
	"wal_autocheckpoint(0)",
	"journal_size_limit(67108864)",
}

// creationPragma counts only before the first table is made.
const creationPragma = "auto_vacuum(INCREMENTAL)"

func controlDSN(path, mode string) string {
	v := url.Values{"_pragma": controlPragmas, "mode": {mode}}
	if mode == "rwc" {
		v["_pragma"] = append([]string{creationPragma}, controlPragmas...)
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + v.Encode()
}

func openControl(path string) (*control, error) {
	c := &control{path: path}
	var err error
	if c.write, err = sql.Open("sqlite", controlDSN(path, "rwc")); err != nil {
		return nil, fmt.Errorf("open control database: %w", err)
	}
	c.write.SetMaxOpenConns(1)
	if c.read, err = sql.Open("sqlite", controlDSN(path, "ro")); err != nil {
		_ = c.write.Close()
		return nil, fmt.Errorf("open control database: %w", err)
	}
	c.read.SetMaxOpenConns(8)
	c.read.SetMaxIdleConns(8)
	return c, nil
}

func (c *control) close() error { return errors.Join(c.read.Close(), c.write.Close()) }

// checkpoint moves the write-ahead log into the database without stopping the
// committer; full also empties the log, for which the committer has to wait.
func (c *control) checkpoint(ctx context.Context, db *sql.DB, full bool) error {
	mode := "PASSIVE"
	if full {
		mode = "TRUNCATE"
	}
	var busy, log, done int
	err := db.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &log, &done)
	if err != nil {
		return fmt.Errorf("checkpoint control database: %w", err)
	}
	return nil
}

// statements are the committer's, prepared once.
type statements struct {
	findTrace, putTrace, dropIntent, putIntent, findIntent *sql.Stmt
	findRollout, addRollout, setRollout                    *sql.Stmt
	putJournal, setMeta                                    *sql.Stmt
	findReward, findRevision, putReward                    *sql.Stmt
	findLearnerPost, putLearnerPost                        *sql.Stmt
	markGroup, markSingle, unmarkSingle                    *sql.Stmt
	reopenPins, rewardPins                                 *sql.Stmt

	all []*sql.Stmt
}

// close gives the statements up. SQLite moves its log into the database file
// only when the last connection has none left.
func (s *statements) close() error {
	var errs []error
	for _, st := range s.all {
		errs = append(errs, st.Close())
	}
	return errors.Join(errs...)
}

func prepareOn(ctx context.Context, db *sql.Conn) (*statements, error) {
	s := &statements{}
	for _, p := range []struct {
		to   **sql.Stmt
		text string
	}{
		{&s.findTrace, `SELECT content_hash, rollout_key, trace_key FROM trace_index WHERE trace_hash = ?`},
		{&s.putTrace, `INSERT INTO trace_index (trace_hash, content_hash, trace_key, rollout_key, batch) VALUES (?,?,?,?,?)`},
		{&s.dropIntent, `DELETE FROM intents WHERE trace_hash = ? RETURNING rollout_key`},
		{&s.findIntent, `SELECT rollout_key, seq, started_at FROM intents WHERE trace_hash = ?`},
		{&s.putIntent, `INSERT INTO intents (trace_hash, trace_id, rollout_key, seq, started_at) VALUES (?,?,?,?,?)`},
		{&s.findRollout, `SELECT ` + rolloutColumns + ` FROM rollouts WHERE rollout_id = ?`},
		{&s.addRollout, `INSERT INTO rollouts (rollout_key, rollout_id, created_at, updated_at) VALUES (?,?,?,?)`},
		{&s.setRollout, `UPDATE rollouts SET put=?, from_traces=?, task_id=?, group_id=?, group_size=?, sample_index=?,
			split=?, harness=?, harness_version=?, model=?, policy_version=?, metadata=?, status=?, error=?, finished_at=?,
			reopened=?, traces=?, last_batch=?, open_intents=?, last_seq=?, updated_at=? WHERE rollout_key=?`},
		{&s.putJournal, `INSERT INTO journal (batch, part, rows, payload) VALUES (?,?,?,?)`},
		{&s.setMeta, `INSERT INTO meta (key, value) VALUES (?,?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`},
		{&s.findReward, `SELECT rollout_key, trace_id, name, source, revision, value, at, coalesce(metadata, '') FROM rewards WHERE reward_id = ?`},
		{&s.findRevision, `SELECT reward_id, value FROM rewards WHERE rollout_key=? AND trace_id=? AND name=? AND source=? AND revision=?`},
		{&s.putReward, `INSERT INTO rewards (reward_id, rollout_key, trace_id, name, source, revision, value, at, metadata, stored_at)
			VALUES (?,?,?,?,?,?,?,?,?,?)`},
		{&s.findLearnerPost, `SELECT content_hash FROM learner_posts WHERE trajectory_id = ? AND policy_version = ?`},
		{&s.putLearnerPost, `INSERT OR REPLACE INTO learner_posts (trajectory_id, policy_version, content_hash, post_key, batch) VALUES (?,?,?,?,?)`},
		{&s.markGroup, markGroupText},
		{&s.markSingle, markSingleText},
		{&s.unmarkSingle, unmarkSingleText},
		{&s.reopenPins, reopenPinsText},
		{&s.rewardPins, rewardPinsText},
	} {
		st, err := db.PrepareContext(ctx, p.text)
		if err != nil {
			return nil, fmt.Errorf("prepare control statement: %w", err)
		}
		*p.to = st
		s.all = append(s.all, st)
	}
	return s, nil
}

// metaOn reads a counter; absent gives 0.
func metaOn(ctx context.Context, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, key string) (int64, error) {
	var v int64
	err := db.QueryRowContext(ctx, `SELECT value FROM meta WHERE key = ?`, key).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read control counter %s: %w", key, err)
	}
	return v, nil
}
