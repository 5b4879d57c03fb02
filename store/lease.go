package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// OpenLease gives groups to a consumer until the lease expires, and settles
// those that were skipped on the way. A key that names a lease already gives
// that lease, as it is, and changes nothing. When a group of the plan, or a
// rollout that is pinned in it, went elsewhere meanwhile: ErrGroupTaken.
// Expired and returned leases that hold one of the groups lose them all.
func (s *Store) OpenLease(ctx context.Context, n NewLease) (*Lease, error) {
	if len(n.Groups) == 0 || n.Shards < 1 || n.Seconds < 1 {
		return nil, fmt.Errorf("open lease of %s: groups, shards and seconds must be given", n.Consumer)
	}
	id, err := newLeaseID()
	if err != nil {
		return nil, err
	}
	if n.Key == "" {
		n.Key = id
	}
	groups, pins, err := planJSON(&n)
	if err != nil {
		return nil, err
	}
	var lease *Lease
	err = s.decide(ctx, func(ctx context.Context, k *commit) (refused, err error) {
		consumer, err := k.consumerKey(ctx, n.Consumer)
		if err != nil || consumer == 0 {
			return ErrGroupTaken, err
		}
		lease, err = k.lease(ctx, `l.consumer_key = ? AND l.key = ?`, consumer, n.Key)
		if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		lost, taken, err := k.inTheWay(ctx, consumer, groups, pins)
		if err != nil {
			return nil, err
		}
		if taken {
			return ErrGroupTaken, nil
		}
		if err := k.loseLeases(ctx, lost); err != nil {
			return nil, err
		}
		key, err := k.addLease(ctx, consumer, id, &n)
		if err != nil {
			return nil, err
		}
		if err := k.holdGroups(ctx, consumer, key, groups, pins); err != nil {
			return nil, err
		}
		if err := k.skipGroups(ctx, consumer, n.Skips); err != nil {
			return nil, err
		}
		k.count("opened", 1)
		lease, err = k.lease(ctx, `l.lease_key = ?`, key)
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func newLeaseID() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make a lease id: %w", err)
	}
	return "ls_" + hex.EncodeToString(b[:]), nil
}

// planJSON writes groups as [key, shards, version] and pins as [rollout, group,
// batch, reward], for SQLite to read: one statement for all is several times
// faster than one for each.
func planJSON(n *NewLease) (groups, pins string, err error) {
	gs, ps := [][]any{}, [][]any{}
	for i := range n.Groups {
		g := &n.Groups[i]
		for _, shard := range g.Shards {
			if shard < 0 || shard >= n.Shards {
				return "", "", fmt.Errorf("open lease of %s: group %d: shard %d: %w", n.Consumer, g.Key, shard, ErrNoShard)
			}
		}
		if len(g.Shards) == 0 {
			return "", "", fmt.Errorf("open lease of %s: group %d is in no shard", n.Consumer, g.Key)
		}
		shards, err := json.Marshal(g.Shards)
		if err != nil {
			return "", "", fmt.Errorf("open lease of %s: %w", n.Consumer, err)
		}
		gs = append(gs, []any{g.Key, string(shards), g.PolicyVersionMin})
		for _, p := range g.Pins {
			ps = append(ps, []any{p.Rollout, g.Key, p.LastBatch, null(p.RewardID)})
		}
	}
	groupText, err := json.Marshal(gs)
	if err != nil {
		return "", "", fmt.Errorf("open lease of %s: %w", n.Consumer, err)
	}
	pinText, err := json.Marshal(ps)
	if err != nil {
		return "", "", fmt.Errorf("open lease of %s: %w", n.Consumer, err)
	}
	return string(groupText), string(pinText), nil
}

// inTheWay looks at who has the groups and pinned rollouts of a plan: lost are
// the leases whose time is over, taken says that something is given out for
// good, or held.
func (k *commit) inTheWay(ctx context.Context, consumer int64, groups, pins string) (lost []int64, taken bool, err error) {
	err = k.each(ctx, "look up who has the groups", func(row scanner) error {
		var lease sql.NullInt64
		var over bool
		if err := row.Scan(&lease, &over); err != nil {
			return err
		}
		if over {
			lost = append(lost, lease.Int64)
		} else {
			taken = true
		}
		return nil
	}, `SELECT DISTINCT d.lease_key, d.state IS 'held' AND l.expires_at <= ?2
		FROM json_each(?3) j LEFT JOIN deliveries d ON d.consumer_key = ?1 AND d.group_key = j.value ->> 0
			LEFT JOIN leases l ON l.lease_key = d.lease_key
		WHERE d.state IS NOT 'waiting'
		UNION
		SELECT d.lease_key, d.state = 'held' AND l.expires_at <= ?2
		FROM json_each(?4) j CROSS JOIN pins p ON p.rollout_key = j.value ->> 0 AND p.consumer_key = ?1
			JOIN deliveries d ON d.consumer_key = p.consumer_key AND d.group_key = p.group_key AND d.lease_key = p.lease_key
			JOIN leases l ON l.lease_key = d.lease_key
		UNION
		SELECT NULL, 0 FROM json_each(?4) GROUP BY value ->> 0 HAVING count(*) > 1
		UNION
		SELECT NULL, 0 FROM json_each(?3) GROUP BY value ->> 0 HAVING count(*) > 1`, consumer, k.now, groups, pins)
	return lost, taken, err
}

// loseLeases settles leases whose time is over, because a group of theirs is
// given to another. What was acknowledged of them stays.
func (k *commit) loseLeases(ctx context.Context, keys []int64) error {
	for _, key := range keys {
		err := k.exec(ctx, "settle a lease", `UPDATE leases SET state = CASE state WHEN 'open' THEN 'expired' ELSE state END,
			settled_at = ?2, plan = NULL WHERE lease_key = ?1`, key, k.now)
		if err != nil {
			return err
		}
		if err := k.freeGroups(ctx, key); err != nil {
			return err
		}
		k.count("lost", 1)
	}
	return nil
}

// freeGroups gives what a lease still holds back to the queue.
func (k *commit) freeGroups(ctx context.Context, lease int64) error {
	n, err := k.change(ctx, "give groups back", `UPDATE deliveries SET state = 'waiting', lease_key = NULL, shards = NULL,
		policy_version_min = NULL WHERE lease_key = ? AND state = 'held'`, lease)
	k.ready = k.ready || n > 0
	return err
}

func (k *commit) addLease(ctx context.Context, consumer int64, id string, n *NewLease) (key int64, err error) {
	err = k.c.conn.QueryRowContext(ctx, `INSERT INTO leases (lease_id, consumer_key, key, state, shards, seconds, groups, rollouts,
			rows, tokens, trained_tokens, created_at, expires_at, request, plan)
		VALUES (?,?,?,'open',?,?,?,?,?,?,?,?,?,?,?) RETURNING lease_key`, id, consumer, n.Key, n.Shards, n.Seconds, len(n.Groups),
		n.Rollouts, n.Rows, n.Tokens, n.Trained, k.now, k.now+int64(n.Seconds)*second, n.Request, n.Plan).Scan(&key)
	if err != nil {
		return 0, fmt.Errorf("open lease of %s: %w", n.Consumer, err)
	}
	return key, nil
}

const second = 1_000_000 // microseconds

// holdGroups gives the groups to a lease and pins their rollouts. A pin says at
// once whether its rollout changed since the plan was made.
func (k *commit) holdGroups(ctx context.Context, consumer, lease int64, groups, pins string) error {
	err := k.exec(ctx, "count groups given out again", `UPDATE consumers SET redelivered = redelivered + (
		SELECT count(*) FROM json_each(?2) j CROSS JOIN deliveries d ON d.consumer_key = ?1 AND d.group_key = j.value ->> 0
		WHERE d.times > 0) WHERE consumer_key = ?1`, consumer, groups)
	if err != nil {
		return err
	}
	// An upsert, because an update from a list would walk the table instead.
	err = k.exec(ctx, "hold groups", `INSERT INTO deliveries (consumer_key, group_key, state, lease_key, shards, policy_version_min, times)
		SELECT ?1, value ->> 0, 'held', ?2, value ->> 1, value ->> 2, 1 FROM json_each(?3) WHERE true
		ON CONFLICT (consumer_key, group_key) DO UPDATE SET state = 'held', lease_key = excluded.lease_key, shards = excluded.shards,
			policy_version_min = excluded.policy_version_min, times = times + 1`, consumer, lease, groups)
	if err != nil {
		return err
	}
	return k.exec(ctx, "pin rollouts", `INSERT INTO pins (rollout_key, consumer_key, lease_key, group_key, last_batch, reward_id, reopened, rewarded)
		SELECT r.rollout_key, ?1, ?2, j.value ->> 1, j.value ->> 2, j.value ->> 3, r.last_batch > j.value ->> 2,
			(j.value ->> 3) IS NOT `+outcomeOf("r.rollout_key")+`
		FROM json_each(?3) j CROSS JOIN rollouts r ON r.rollout_key = j.value ->> 0`, consumer, lease, pins)
}

// each runs a query of the commit and calls do per row.
func (k *commit) each(ctx context.Context, what string, do func(scanner) error, text string, args ...any) error {
	rows, err := k.c.conn.QueryContext(ctx, text, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	for rows.Next() {
		if err := do(rows); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
