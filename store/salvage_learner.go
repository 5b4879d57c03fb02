package store

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// learnerPosts takes out of the journal the posts of learners that speak of
// traces which are lost: those traces get new keys when they are sent again.
func (s *salvager) learnerPosts(ctx context.Context, batches []int64) error {
	about := map[int64][]int64{} // posts, by trace
	each := func(t *table, do func(rec arrow.RecordBatch, row int) bool) error {
		for _, batch := range batches {
			if err := s.filter(ctx, batch, t, do); err != nil {
				return err
			}
		}
		return nil
	}
	err := each(tableLearnerChunks, func(rec arrow.RecordBatch, row int) bool {
		key := cell(rec, row, "trace_key")
		about[key] = append(about[key], cell(rec, row, "post_key"))
		return true
	})
	if err != nil || len(about) == 0 {
		return err
	}
	// What the journal still holds of traces is what can be read.
	err = each(tableTraces, func(rec arrow.RecordBatch, row int) bool {
		delete(about, cell(rec, row, "trace_key"))
		return true
	})
	if err != nil {
		return err
	}
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(about)), loadKeys) {
		err := s.s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
			delete(about, c.i64())
			return nil
		}), `SELECT trace_key FROM ice.traces WHERE `+keysWhere("trace_key", keys))
		if err != nil {
			return err
		}
	}
	lost := map[int64]bool{}
	for _, posts := range about {
		for _, p := range posts {
			lost[p] = true
		}
	}
	if len(lost) == 0 {
		return nil
	}
	s.s.log.Error("log-probs of learners in the journal speak of traces that are lost; they are no longer known", "posts", len(lost))
	keep := func(rec arrow.RecordBatch, row int) bool { return !lost[cell(rec, row, "post_key")] }
	if err := each(tableLearnerPosts, keep); err != nil {
		return err
	}
	return each(tableLearnerChunks, keep)
}

// learnerPosts fills the index of what learners posted.
func (b *rebuilder) learnerPosts(ctx context.Context) error {
	if err := b.exec(ctx, `DELETE FROM learner_posts`); err != nil {
		return err
	}
	put := func(post int64, trajectory string, version int64, content []byte, batch int64) error {
		return b.exec(ctx, `INSERT INTO learner_posts (post_key, trajectory_id, policy_version, content_hash, batch)
			VALUES (?,?,?,?,?) ON CONFLICT (trajectory_id, policy_version) DO UPDATE SET post_key = excluded.post_key,
			content_hash = excluded.content_hash, batch = excluded.batch WHERE excluded.post_key > post_key`,
			post, trajectory, version, content, batch)
	}
	err := b.s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		return put(c.i64(), c.str(), c.i64(), c.blob(), c.i64())
	}), `SELECT post_key, trajectory_id, policy_version, content_hash, batch FROM ice.counted_posts`)
	if err != nil {
		return err
	}
	batches, err := b.batches(ctx)
	if err != nil {
		return err
	}
	for _, batch := range batches {
		var failed error
		err := b.filter(ctx, batch, tableLearnerPosts, func(rec arrow.RecordBatch, row int) bool {
			column := func(name string) arrow.Array { return rec.Column(rec.Schema().FieldIndices(name)[0]) }
			failed = errors.Join(failed, put(cell(rec, row, "post_key"), column("trajectory_id").(*array.String).Value(row),
				cell(rec, row, "policy_version"), column("content_hash").(*array.Binary).Value(row), batch))
			return true
		})
		if err = errors.Join(err, failed); err != nil {
			return err
		}
	}
	return nil
}
