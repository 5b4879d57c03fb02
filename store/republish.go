package store

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"icecore/trace"
)

// republish journals what the control database knows, where the warehouse lost
// it or knew something else: the state of every rollout, and the rewards that no
// batch holds.
func (b *rebuilder) republish(ctx context.Context) error {
	if !b.lost && !b.stale {
		return nil
	}
	batch, err := metaOn(ctx, b.tx, "next_batch")
	if err != nil {
		return err
	}
	rollouts, rewards := tableRollouts.rows(), tableRewards.rows()
	defer rollouts.b.Release()
	defer rewards.b.Release()
	ids, err := b.rolloutRows(ctx, rollouts, batch)
	if err != nil {
		return err
	}
	if err := b.rewardRows(ctx, rewards, ids, batch); err != nil {
		return err
	}
	for _, r := range []*rows{rollouts, rewards} {
		n := r.n
		if n == 0 {
			continue
		}
		rec := r.record()
		payload, err := encodeRecord(rec)
		rec.Release()
		if err != nil {
			return err
		}
		if err := b.exec(ctx, `INSERT INTO journal (batch, part, rows, payload) VALUES (?,?,?,?)`, batch, r.name, n, payload); err != nil {
			return err
		}
	}
	return b.exec(ctx, setMetaText, "next_batch", batch+1)
}

func (b *rebuilder) rolloutRows(ctx context.Context, to *rows, batch int64) (map[int64]string, error) {
	ids := map[int64]string{}
	rs, err := b.tx.QueryContext(ctx, `SELECT `+rolloutColumns+` FROM rollouts ORDER BY rollout_key`)
	if err != nil {
		return nil, fmt.Errorf("read rollouts: %w", err)
	}
	defer rs.Close() //nolint:errcheck // Err below says what went wrong
	for rs.Next() {
		r, err := scanRollout(rs)
		if err != nil {
			return nil, err
		}
		ids[r.Key] = r.ID
		r.row(to, batch)
	}
	return ids, rs.Err()
}

func (b *rebuilder) rewardRows(ctx context.Context, to *rows, ids map[int64]string, batch int64) error {
	have, err := b.rewardsHeld(ctx)
	if err != nil {
		return err
	}
	rs, err := b.tx.QueryContext(ctx, `SELECT reward_id, rollout_key, trace_id, name, source, revision, value, at,
		coalesce(metadata, ''), stored_at FROM rewards`)
	if err != nil {
		return fmt.Errorf("read rewards: %w", err)
	}
	defer rs.Close() //nolint:errcheck // Err below says what went wrong
	for rs.Next() {
		var w trace.Reward
		var key, storedAt int64
		if err := rs.Scan(&w.RewardID, &key, &w.TraceID, &w.Name, &w.Source, &w.Revision, &w.Value, &w.At, &w.Metadata, &storedAt); err != nil {
			return fmt.Errorf("read rewards: %w", err)
		}
		if !have[w.RewardID] {
			rewardRow(to, &w, key, ids[key], storedAt, batch)
		}
	}
	return rs.Err()
}

// rewardsHeld are the rewards that warehouse or journal hold.
func (b *rebuilder) rewardsHeld(ctx context.Context) (map[string]bool, error) {
	have := map[string]bool{}
	err := b.s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		have[c.str()] = true
		return nil
	}), `SELECT reward_id FROM ice.rewards`)
	if err != nil {
		return nil, err
	}
	batches, err := b.batches(ctx)
	if err != nil {
		return nil, err
	}
	for _, batch := range batches {
		err := b.filter(ctx, batch, tableRewards, func(rec arrow.RecordBatch, row int) bool {
			have[rec.Column(0).(*array.String).Value(row)] = true
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return have, nil
}
