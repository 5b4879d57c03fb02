package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"icecore/failpoint"
	"icecore/trace"
)

// rebuild makes the trace index anew from warehouse and journal, adds the
// rollouts and rewards that the control database does not know, and moves the
// counters beyond every key in use. It is one transaction: killed halfway, it
// has not happened, and the flag makes the next start do it.
//
// lost says that the warehouse lacks batches that the journal does not hold any
// more, stale that the control database is older than the warehouse.
func (s *Store) rebuild(ctx context.Context, lost, stale bool) error {
	s.log.Warn("rebuilding the trace index from warehouse and journal", "lost", lost, "stale", stale)
	if err := s.markRebuilding(ctx, lost); err != nil {
		return err
	}
	tx, err := s.control.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("rebuild index: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit this does nothing
	b := &rebuilder{s: s, tx: tx, lost: lost, stale: stale}
	for _, step := range []func(context.Context) error{
		b.salvage, b.rollouts, b.rewards, b.traces, b.learnerPosts, b.counts, b.seqs, b.counters, b.groups, b.republish,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("rebuild index: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, setMetaText, "rebuilding", 0); err != nil {
		return fmt.Errorf("rebuild index: %w", err)
	}
	if err := failpoint.Hit("rebuild.before_commit"); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("rebuild index: %w", err)
	}
	s.log.Warn("trace index rebuilt", "traces", b.n)
	return nil
}

const setMetaText = `INSERT INTO meta (key, value) VALUES (?,?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`

// What the counter "rebuilding" says: the next start has to rebuild, and whether
// after a loss.
const (
	rebuildingIndex = 1
	rebuildingLost  = 2
)

func (s *Store) markRebuilding(ctx context.Context, lost bool) error {
	mark := rebuildingIndex
	if lost {
		mark = rebuildingLost
	}
	if _, err := s.control.write.ExecContext(ctx, setMetaText, "rebuilding", mark); err != nil {
		return fmt.Errorf("rebuild index: %w", err)
	}
	return nil
}

type rebuilder struct {
	s     *Store
	tx    *sql.Tx
	lost  bool
	stale bool
	n     int
}

func (b *rebuilder) exec(ctx context.Context, text string, args ...any) error {
	if _, err := b.tx.ExecContext(ctx, text, args...); err != nil {
		return fmt.Errorf("write control database: %w", err)
	}
	return nil
}

// traces fills the index. Rows of the warehouse come first; a journal batch
// that is in both places changes nothing.
func (b *rebuilder) traces(ctx context.Context) error {
	if err := b.exec(ctx, `DELETE FROM trace_index`); err != nil {
		return err
	}
	put, err := b.tx.PrepareContext(ctx, `INSERT OR IGNORE INTO trace_index
		(trace_hash, content_hash, trace_key, rollout_key, batch) VALUES (?,?,?,?,?)`)
	if err != nil {
		return fmt.Errorf("write trace index: %w", err)
	}
	defer put.Close() //nolint:errcheck // it belongs to the transaction
	add := func(rec arrow.RecordBatch, key, rollout, batch, id, content int) error {
		for i := range int(rec.NumRows()) {
			_, err := put.ExecContext(ctx, traceHash(rec.Column(id).(*array.String).Value(i)),
				rec.Column(content).(*array.Binary).Value(i), rec.Column(key).(*array.Int64).Value(i),
				rec.Column(rollout).(*array.Int64).Value(i), rec.Column(batch).(*array.Int64).Value(i))
			if err != nil {
				return fmt.Errorf("write trace index: %w", err)
			}
			b.n++
		}
		return nil
	}
	err = b.s.wh().Query(ctx, func(rec arrow.RecordBatch) error { return add(rec, 0, 1, 2, 3, 4) },
		`SELECT trace_key, rollout_key, batch, trace_id, content_hash FROM ice.traces`)
	if err != nil {
		return err
	}
	return b.journalledTraces(ctx, func(rec arrow.RecordBatch) error { return add(rec, 0, 1, 2, 3, 5) })
}

// journalledTraces goes through the journal's traces.
func (b *rebuilder) journalledTraces(ctx context.Context, do func(arrow.RecordBatch) error) error {
	rs, err := b.tx.QueryContext(ctx, `SELECT payload FROM journal WHERE part = 'traces' ORDER BY batch`)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	defer rs.Close() //nolint:errcheck // Err below says what went wrong
	for rs.Next() {
		var payload []byte
		if err := rs.Scan(&payload); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		recs, err := decodeRecords(payload, tableTraces.schema)
		for _, rec := range recs {
			if err == nil {
				err = do(rec)
			}
			rec.Release()
		}
		if err != nil {
			return err
		}
	}
	return rs.Err()
}

// rollouts adds those that only the warehouse knows; what it knows of them then
// counts as set on the rollout itself. So it does of those that it saw last.
func (b *rebuilder) rollouts(ctx context.Context) error {
	next, err := metaOn(ctx, b.tx, "next_batch")
	if err != nil {
		return err
	}
	return b.s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		r := Rollout{Key: c.i64(), ID: c.str()}
		p := &r.put
		p.TaskID, p.GroupID, p.GroupSize, p.SampleIndex, p.Split = c.optStr(), c.optStr(), c.optI64(), c.optI64(), c.optStr()
		p.Harness, p.HarnessVersion, p.Model, p.PolicyVersion = c.optStr(), c.optStr(), c.optStr(), c.optI64()
		p.Metadata = c.json()
		r.Status, r.Error, r.FinishedAt, r.Reopened = c.str(), c.str(), c.optTime(), c.flag()
		r.CreatedAt, r.UpdatedAt = c.time(), c.time()
		if batch := c.i64(); batch >= max(next, 1) {
			if err := b.exec(ctx, `DELETE FROM rollouts WHERE rollout_key = ?`, r.Key); err != nil {
				return err
			}
		}
		r.settle()
		put, err := json.Marshal(r.put)
		if err != nil {
			return fmt.Errorf("write rollout %s: %w", r.ID, err)
		}
		return b.exec(ctx, `INSERT OR IGNORE INTO rollouts (rollout_key, rollout_id, put, task_id, group_id, group_size,
			sample_index, split, harness, harness_version, model, policy_version, metadata, status, error, finished_at,
			reopened, created_at, updated_at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
			r.Key, r.ID, string(put), null(r.TaskID), null(r.GroupID), r.GroupSize, r.SampleIndex, null(r.Split),
			null(r.Harness), null(r.HarnessVersion), null(r.Model), r.PolicyVersion, null(string(r.Metadata)),
			null(r.Status), null(r.Error), r.FinishedAt, r.Reopened, r.CreatedAt, r.UpdatedAt)
	}), `SELECT rollout_key, rollout_id, task_id, group_id, group_size, sample_index, split, harness, harness_version, model,
			policy_version, metadata, status, error, finished_at, reopened, created_at, updated_at, batch
		FROM ice.rollouts QUALIFY row_number() OVER (PARTITION BY rollout_key ORDER BY batch DESC) = 1`)
}

func (b *rebuilder) rewards(ctx context.Context) error {
	return b.s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		w := trace.Reward{RewardID: c.str()}
		key := c.i64()
		w.TraceID, w.Name, w.Source, w.Revision, w.Value, w.At = c.str(), c.str(), c.str(), c.i64(), c.f64(), c.optTime()
		metadata, storedAt := c.optStr(), c.time()
		return b.exec(ctx, `INSERT OR IGNORE INTO rewards (reward_id, rollout_key, trace_id, name, source, revision, value,
			at, metadata, stored_at) VALUES (?,?,?,?,?,?,?,?,?,?)`, w.RewardID, key, w.TraceID, w.Name, w.Source,
			w.Revision, w.Value, w.At, metadata, storedAt)
	}), `SELECT reward_id, rollout_key, trace_id, name, source, revision, value, rewarded_at, metadata, stored_at
		FROM ice.rewards`)
}

// counts brings what rollouts count in step with the index.
func (b *rebuilder) counts(ctx context.Context) error {
	return b.exec(ctx, `
		DELETE FROM intents WHERE trace_hash IN (SELECT trace_hash FROM trace_index);
		CREATE TEMP TABLE counted AS SELECT rollout_key, count(*) AS traces, max(batch) AS last_batch FROM trace_index GROUP BY rollout_key;
		CREATE INDEX temp.counted_key ON counted (rollout_key);
		UPDATE rollouts SET
			traces = coalesce((SELECT c.traces FROM counted c WHERE c.rollout_key = rollouts.rollout_key), 0),
			last_batch = coalesce((SELECT c.last_batch FROM counted c WHERE c.rollout_key = rollouts.rollout_key), 0),
			open_intents = (SELECT count(*) FROM intents i WHERE i.rollout_key = rollouts.rollout_key);
		DROP TABLE counted`)
}

// counters moves the next keys beyond all that either database has seen.
func (b *rebuilder) counters(ctx context.Context) error {
	for name, text := range map[string]string{
		"next_batch":   `SELECT max(last_batch) FROM ice.drains`,
		"next_trace":   `SELECT max(trace_key) FROM ice.traces`,
		"next_tape":    `SELECT max(tape_key) FROM ice.tapes`,
		"next_rollout": `SELECT max(rollout_key) FROM ice.rollouts`,
		"next_post":    `SELECT max(post_key) FROM ice.learner_posts`,
	} {
		n, err := b.s.wh().Int(ctx, text)
		if err != nil {
			return err
		}
		err = b.exec(ctx, `INSERT INTO meta (key, value) VALUES (?1, ?2)
			ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)`, name, n+1)
		if err != nil {
			return err
		}
	}
	return nil
}
