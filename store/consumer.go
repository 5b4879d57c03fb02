package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// SeekConsumer makes a consumer go on from elsewhere: its leases that are not
// settled are cancelled, and groups that lie at or after the place, also
// acknowledged and skipped ones, may be given out (again). Those before it stay
// as they are and are not given out. It says how many open leases were
// cancelled.
func (s *Store) SeekConsumer(ctx context.Context, name string, to Seek) (cancelled int, err error) {
	err = s.decide(ctx, func(ctx context.Context, k *commit) (refused, err error) {
		key, err := k.consumerKey(ctx, name)
		if err != nil {
			return nil, err
		}
		if key == 0 {
			return ErrNotFound, nil
		}
		if cancelled, err = k.cancelLeases(ctx, key); err != nil {
			return nil, err
		}
		// The place is looked for in sums, so they must be those of now.
		if _, err := k.sumGroups(ctx, -1); err != nil {
			return nil, err
		}
		return nil, k.seek(ctx, key, to)
	})
	return cancelled, err
}

func (k *commit) cancelLeases(ctx context.Context, consumer int64) (open int, err error) {
	if err := k.exec(ctx, "give groups back", `UPDATE deliveries SET state = 'waiting', lease_key = NULL, shards = NULL,
		policy_version_min = NULL WHERE state = 'held' AND lease_key IN (SELECT lease_key FROM leases WHERE consumer_key = ? AND settled_at = 0)`, consumer); err != nil {
		return 0, err
	}
	err = k.c.conn.QueryRowContext(ctx, `SELECT count(*) FROM leases WHERE consumer_key = ? AND settled_at = 0 AND state = 'open'
		AND expires_at > ?`, consumer, k.now).Scan(&open)
	if err != nil {
		return 0, fmt.Errorf("count open leases: %w", err)
	}
	n, err := k.change(ctx, "cancel leases", `UPDATE leases SET state = 'cancelled', settled_at = ?, plan = NULL
		WHERE consumer_key = ? AND settled_at = 0`, k.now, consumer)
	k.count(LeaseCancelled, n)
	return open, err
}

func (k *commit) seek(ctx context.Context, consumer int64, to Seek) error {
	k.ready = true
	free := `UPDATE deliveries SET state = 'waiting', lease_key = NULL, shards = NULL, reason = NULL, policy_version_min = NULL
		WHERE consumer_key = ?1 AND state IN ('acked','skipped')`
	bounds := func(time, version any) error {
		return k.exec(ctx, "set where a consumer goes on", `UPDATE consumers SET from_time = ?, from_policy_version = ?
			WHERE consumer_key = ?`, time, version, consumer)
	}
	switch {
	case to.End:
		// A finish of this very microsecond lies before the end.
		var last int64
		err := k.c.conn.QueryRowContext(ctx, `SELECT coalesce(max(finished_at), 0) FROM groups`).Scan(&last)
		if err != nil {
			return fmt.Errorf("look up the newest finish: %w", err)
		}
		return bounds(max(k.now, last+1), nil)
	case to.Time != nil:
		if err := bounds(*to.Time, nil); err != nil {
			return err
		}
		return k.exec(ctx, "free groups", free+` AND (SELECT finished_at FROM groups g WHERE g.group_key = deliveries.group_key) >= ?2`,
			consumer, *to.Time)
	case to.PolicyVersion != nil:
		if err := bounds(nil, *to.PolicyVersion); err != nil {
			return err
		}
		return k.exec(ctx, "free groups", free+` AND policy_version_min >= ?2`, consumer, *to.PolicyVersion)
	}
	if err := bounds(nil, nil); err != nil {
		return err
	}
	return k.exec(ctx, "free groups", free, consumer)
}

// DropConsumer forgets a consumer and everything that it was given.
func (s *Store) DropConsumer(ctx context.Context, name string) error {
	return s.decide(ctx, func(ctx context.Context, k *commit) (refused, err error) {
		key, err := k.consumerKey(ctx, name)
		if err != nil {
			return nil, err
		}
		if key == 0 {
			return ErrNotFound, nil
		}
		k.ready = true // whoever waits for it should notice
		for _, text := range []string{
			`DELETE FROM lease_shards WHERE lease_key IN (SELECT lease_key FROM leases WHERE consumer_key = ?)`,
			`DELETE FROM pins WHERE consumer_key = ?`,
			`DELETE FROM deliveries WHERE consumer_key = ?`,
			`DELETE FROM leases WHERE consumer_key = ?`,
			`DELETE FROM consumers WHERE consumer_key = ?`,
		} {
			if err := k.exec(ctx, "drop consumer "+name, text, key); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
}

// Consumer says how far a consumer is. ErrNotFound: there is none.
func (s *Store) Consumer(ctx context.Context, name string) (*ConsumerState, error) {
	c := &ConsumerState{Name: name, Skipped: map[string]int64{}}
	var key int64
	err := s.control.read.QueryRowContext(ctx, `SELECT consumer_key, created_at, from_time, from_policy_version, redelivered
		FROM consumers WHERE name = ?`, name).Scan(&key, &c.CreatedAt, &c.FromTime, &c.FromPolicyVersion, &c.RedeliveredGroups)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read consumer %s: %w", name, err)
	}
	if c.OpenLeases, err = s.openLeases(ctx, name); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context, int64, *ConsumerState) error{s.countLeases, s.countChanged, s.countLate, s.countSkipped} {
		if err := read(ctx, key, c); err != nil {
			return nil, fmt.Errorf("read consumer %s: %w", name, err)
		}
	}
	return c, nil
}

// Consumers lists all consumers by name.
func (s *Store) Consumers(ctx context.Context) ([]ConsumerState, error) {
	names, err := s.consumerNames(ctx)
	if err != nil {
		return nil, err
	}
	list := []ConsumerState{}
	for _, name := range names {
		c, err := s.Consumer(ctx, name)
		if errors.Is(err, ErrNotFound) {
			continue // dropped meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, *c)
	}
	return list, nil
}

func (s *Store) consumerNames(ctx context.Context) (names []string, err error) {
	rows, err := s.control.read.QueryContext(ctx, `SELECT name FROM consumers ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("list consumers: %w", err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	return names, nil
}

func (s *Store) countLeases(ctx context.Context, consumer int64, c *ConsumerState) error {
	a := &c.Acknowledged
	err := s.control.read.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE done), coalesce(sum(acked_groups), 0),
			coalesce(sum(rollouts) FILTER (WHERE done), 0), coalesce(sum(rows) FILTER (WHERE done), 0),
			coalesce(sum(tokens) FILTER (WHERE done), 0), coalesce(sum(trained_tokens) FILTER (WHERE done), 0),
			count(*) FILTER (WHERE state = 'expired' OR state = 'open' AND expires_at <= ?1), count(*) FILTER (WHERE state = 'returned')
		FROM (SELECT *, state = 'acknowledged' AS done FROM leases WHERE consumer_key = ?2)`, s.now(), consumer).
		Scan(&a.Leases, &a.Groups, &a.Rollouts, &a.Rows, &a.Tokens, &a.Trained, &c.ExpiredLeases, &c.ReturnedLeases)
	if err != nil {
		return fmt.Errorf("count leases: %w", err)
	}
	return nil
}

func (s *Store) countChanged(ctx context.Context, consumer int64, c *ConsumerState) error {
	err := s.control.read.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(p.reopened), 0), coalesce(sum(p.rewarded), 0)
		FROM pins p INDEXED BY pins_changed
			JOIN deliveries d ON d.consumer_key = p.consumer_key AND d.group_key = p.group_key AND d.lease_key = p.lease_key
			JOIN leases l ON l.lease_key = d.lease_key
		WHERE p.consumer_key = ?1 AND (p.reopened = 1 OR p.rewarded = 1)
			AND (d.state = 'acked' OR l.state = 'open' AND l.expires_at > ?2)`, consumer, s.now()).
		Scan(&c.Changed.Rollouts, &c.Changed.Reopened, &c.Changed.RewardedAnew)
	if err != nil {
		return fmt.Errorf("count what changed after its lease: %w", err)
	}
	return nil
}

// planning bounds the time, in microseconds, between the look at a group's
// rollouts and the lease that gives them out: what finishes meanwhile is late.
const planning = 60 * second

// countLate counts rollouts that no lease of the consumer has, though their group
// is given out. What was left out on purpose, because it had failed or had no
// reward, is not late.
func (s *Store) countLate(ctx context.Context, consumer int64, c *ConsumerState) error {
	err := s.control.read.QueryRowContext(ctx, `SELECT count(*)
		FROM deliveries d CROSS JOIN leases l ON l.lease_key = d.lease_key CROSS JOIN groups g ON g.group_key = d.group_key
			CROSS JOIN rollouts r ON r.group_id = g.group_id
		WHERE d.consumer_key = ?1 AND (d.state = 'acked' OR d.state = 'held' AND l.state = 'open' AND l.expires_at > ?2)
			AND (g.stale = 1 OR g.finished_at >= l.created_at - ?3) AND r.status IS NOT NULL
			AND (r.finished_at >= l.created_at OR r.finished_at >= l.created_at - ?3 AND r.status = 'succeeded' AND r.open_intents = 0
				AND `+outcomeOf("r.rollout_key")+` IS NOT NULL)
			AND NOT EXISTS (SELECT 1 FROM pins p WHERE p.rollout_key = r.rollout_key AND p.consumer_key = ?1)`,
		consumer, s.now(), planning).Scan(&c.Changed.Late)
	if err != nil {
		return fmt.Errorf("count rollouts that came late: %w", err)
	}
	return nil
}

func (s *Store) countSkipped(ctx context.Context, consumer int64, c *ConsumerState) error {
	rows, err := s.control.read.QueryContext(ctx, `SELECT reason, count(*) FROM deliveries
		WHERE consumer_key = ? AND state = 'skipped' GROUP BY reason`, consumer)
	if err != nil {
		return fmt.Errorf("count skipped groups: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	for rows.Next() {
		var reason string
		var n int64
		if err := rows.Scan(&reason, &n); err != nil {
			return fmt.Errorf("count skipped groups: %w", err)
		}
		c.Skipped[reason] = n
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("count skipped groups: %w", err)
	}
	return nil
}
