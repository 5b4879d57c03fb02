package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"icecore/trace"
)

// PutIntents records announced calls, each by itself. An intent whose trace is
// stored already, or that was announced before, is a duplicate.
func (s *Store) PutIntents(ctx context.Context, intents []*trace.Intent) ([]Outcome, int64, error) {
	return each(ctx, s, intents, func(ctx context.Context, k *commit, i *trace.Intent) (Outcome, error) {
		return k.putIntent(ctx, i)
	})
}

// PutRewards stores rewards, each by itself.
func (s *Store) PutRewards(ctx context.Context, rewards []*trace.Reward) ([]Outcome, int64, error) {
	return each(ctx, s, rewards, func(ctx context.Context, k *commit, r *trace.Reward) (Outcome, error) {
		return k.putReward(ctx, r)
	})
}

// itemBytes is what a small item counts for in a group commit.
const itemBytes = 256

func each[T any](ctx context.Context, s *Store, items []T, put func(context.Context, *commit, T) (Outcome, error)) ([]Outcome, int64, error) {
	out := make([]Outcome, len(items))
	batch, err := s.committer.submit(ctx, itemBytes*len(items), func(ctx context.Context, k *commit) error {
		for i, item := range items {
			o, err := put(ctx, k, item)
			if err != nil {
				return err
			}
			out[i] = o
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return out, batch, nil
}

func (k *commit) putIntent(ctx context.Context, i *trace.Intent) (Outcome, error) {
	key := traceHash(i.TraceID)
	stored, err := k.findTrace(ctx, key)
	switch {
	case err != nil:
		return Outcome{}, err
	case stored != nil:
		return Outcome{Status: Duplicate}, nil
	}
	in, seq, err := k.announced(ctx, key)
	switch {
	case err != nil:
		return Outcome{}, err
	case in != nil && (in.ID != i.RolloutID || !same(seq, i.Seq)):
		return refuse(&trace.Error{Code: trace.CodeConflict, Field: "trace_id",
			Message: "is announced already with another rollout_id or seq"}), nil
	case in != nil:
		return Outcome{Status: Duplicate}, nil
	}
	r, err := k.needRollout(ctx, i.RolloutID)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Status: Stored}, k.addIntent(ctx, r, key, i.TraceID, i.Seq, i.StartedAt)
}

// announced gives rollout and seq of an announced call; a nil rollout: there is none.
func (k *commit) announced(ctx context.Context, key []byte) (in *Rollout, seq *int64, err error) {
	var rolloutKey int64
	var started *int64
	err = k.c.st.findIntent.QueryRowContext(ctx, key).Scan(&rolloutKey, &seq, &started)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look up intent: %w", err)
	}
	in, err = k.rolloutByKey(ctx, rolloutKey)
	return in, seq, err
}

func (k *commit) addIntent(ctx context.Context, r *Rollout, key []byte, traceID string, seq, startedAt *int64) error {
	if _, err := k.c.st.putIntent.ExecContext(ctx, key, traceID, r.Key, seq, startedAt); err != nil {
		return fmt.Errorf("store intent %s: %w", traceID, err)
	}
	r.number(seq)
	r.OpenIntents++
	r.dirty = true
	if r.Status != "" {
		r.published = false
	}
	return nil
}

func same(a, b *int64) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

func (k *commit) putReward(ctx context.Context, w *trace.Reward) (Outcome, error) {
	r, err := k.rollout(ctx, w.RolloutID)
	if err != nil {
		return Outcome{}, err
	}
	var have trace.Reward
	var haveRollout int64
	err = k.c.st.findReward.QueryRowContext(ctx, w.RewardID).Scan(&haveRollout, &have.TraceID, &have.Name,
		&have.Source, &have.Revision, &have.Value, &have.At, &have.Metadata)
	switch {
	case err == nil:
		if r != nil && r.Key == haveRollout && sameReward(&have, w) {
			return Outcome{Status: Duplicate}, nil
		}
		return refuse(&trace.Error{Code: trace.CodeConflict, Field: "reward_id",
			Message: "is stored already with other content; send a new reward_id with a higher revision"}), nil
	case !errors.Is(err, sql.ErrNoRows):
		return Outcome{}, fmt.Errorf("look up reward %s: %w", w.RewardID, err)
	}
	var o Outcome
	if r == nil {
		if r, err = k.needRollout(ctx, w.RolloutID); err != nil {
			return Outcome{}, err
		}
		o.Warnings = append(o.Warnings, "rollout_id: no trace of this rollout has come yet")
	}
	var otherID string
	var otherValue float64
	err = k.c.st.findRevision.QueryRowContext(ctx, r.Key, w.TraceID, w.Name, w.Source, w.Revision).Scan(&otherID, &otherValue)
	switch {
	case err == nil && otherValue == w.Value:
		return Outcome{Status: Duplicate}, nil
	case err == nil:
		return refuse(&trace.Error{Code: trace.CodeConflict, Field: "revision",
			Message: fmt.Sprintf("%d of %q is stored already with the value %v (reward_id %s); a new value needs a higher revision",
				w.Revision, w.Name, otherValue, otherID)}), nil
	case !errors.Is(err, sql.ErrNoRows):
		return Outcome{}, fmt.Errorf("look up reward %s: %w", w.RewardID, err)
	}
	var metadata any
	if w.Metadata != nil {
		metadata = string(w.Metadata)
	}
	if _, err := k.c.st.putReward.ExecContext(ctx, w.RewardID, r.Key, w.TraceID, w.Name, w.Source, w.Revision,
		w.Value, w.At, metadata, k.now); err != nil {
		return Outcome{}, fmt.Errorf("store reward %s: %w", w.RewardID, err)
	}
	rewardRow(k.to(tableRewards), w, r.Key, r.ID, k.now, k.batch)
	o.Status = Stored
	return o, k.markRewarded(ctx, r, w)
}

// rewardRow appends a reward to the warehouse's table.
func rewardRow(row *rows, w *trace.Reward, rolloutKey int64, rolloutID string, storedAt, batch int64) {
	row.str(w.RewardID)
	row.i64(rolloutKey)
	row.str(rolloutID)
	row.optStr(w.TraceID)
	row.str(w.Name)
	row.optStr(w.Source)
	row.i64(w.Revision)
	row.f64(w.Value)
	row.optTime(w.At)
	row.optJSON(w.Metadata)
	row.time(storedAt)
	row.i64(batch)
	row.end()
}

func sameReward(a, b *trace.Reward) bool {
	return a.TraceID == b.TraceID && a.Name == b.Name && a.Source == b.Source && a.Revision == b.Revision &&
		a.Value == b.Value && same(a.At, b.At) && bytes.Equal(a.Metadata, b.Metadata)
}

// PatchRollout sets attributes and gives the state after it.
func (s *Store) PatchRollout(ctx context.Context, id string, p *trace.RolloutPatch) (Rollout, int64, error) {
	var after Rollout
	batch, err := s.committer.submit(ctx, itemBytes, func(ctx context.Context, k *commit) error {
		r, err := k.needRollout(ctx, id)
		if err != nil {
			return err
		}
		r.patch(p)
		r.dirty, r.UpdatedAt = true, k.now
		after = *r
		return nil
	})
	return after, batch, err
}

// FinishRollout ends a rollout. Ending it again alike is a duplicate, otherwise
// it is refused.
func (s *Store) FinishRollout(ctx context.Context, id string, f *trace.Finish) (Rollout, Outcome, int64, error) {
	var after Rollout
	var out Outcome
	batch, err := s.committer.submit(ctx, itemBytes, func(ctx context.Context, k *commit) error {
		r, err := k.needRollout(ctx, id)
		if err != nil {
			return err
		}
		switch {
		case r.Status == "":
			r.Status, r.Error, r.FinishedAt = f.Status, f.Error, &k.now
			r.dirty, r.published, r.UpdatedAt = true, false, k.now
			out = Outcome{Status: Stored}
		case r.Status == f.Status && r.Error == f.Error:
			out = Outcome{Status: Duplicate}
		default:
			out = refuse(&trace.Error{Code: trace.CodeConflict, Field: "status",
				Message: fmt.Sprintf("the rollout is finished already as %q", r.Status)})
		}
		after = *r
		return nil
	})
	return after, out, batch, err
}
