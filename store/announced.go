package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Announced is a call that was announced and whose trace has not come.
type Announced struct {
	RolloutID string
	// StartedAt is in microseconds; nil: not known.
	StartedAt *int64
}

// Announced looks for an announced call whose trace has not come; nil: there is none.
func (s *Store) Announced(ctx context.Context, traceID string) (*Announced, error) {
	a := &Announced{}
	err := s.control.read.QueryRowContext(ctx, `SELECT r.rollout_id, i.started_at FROM intents i JOIN rollouts r USING (rollout_key)
		WHERE i.trace_hash = ?`, traceHash(traceID)).Scan(&a.RolloutID, &a.StartedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up announced call %s: %w", traceID, err)
	}
	return a, nil
}

// WithdrawCalls takes announcements back: no engine was asked for these calls, so no
// trace will come of them. Calls that are not announced are passed over. Their numbers
// are not given again.
func (s *Store) WithdrawCalls(ctx context.Context, traceIDs []string) error {
	_, err := s.committer.submit(ctx, itemBytes*len(traceIDs), func(ctx context.Context, k *commit) error {
		for _, id := range traceIDs {
			if err := k.withdraw(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

func (k *commit) withdraw(ctx context.Context, traceID string) error {
	var in int64
	err := k.c.st.dropIntent.QueryRowContext(ctx, traceHash(traceID)).Scan(&in)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("drop intent: %w", err)
	}
	r, err := k.rolloutByKey(ctx, in)
	if err != nil || r == nil {
		return err
	}
	return k.settleIntent(ctx, in, r)
}
