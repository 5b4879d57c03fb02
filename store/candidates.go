package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

// Candidates lists all groups that a consumer may be given now or later, ready or
// not: those of which nothing is finished, then those that finished longest ago
// first. It counts those that its leases hold, and leaves out what lies before the
// time that a seek set. Its cost grows with what is listed: leases go by
// ReadyGroups. A consumer that is not known is made.
func (s *Store) Candidates(ctx context.Context, consumer string) (list []Candidate, held int, err error) {
	r, err := s.ReadyGroups(ctx, consumer, Asked{})
	if err != nil {
		return nil, 0, err
	}
	rows, err := s.control.read.QueryContext(ctx, `SELECT `+candidateColumns+`, `+isHeld+openGroups+` ORDER BY g.finished_at, g.group_key`,
		r.now, r.consumer)
	if err != nil {
		return nil, 0, fmt.Errorf("list candidates: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	for rows.Next() {
		var c Candidate
		var leased bool
		if err := rows.Scan(&c.Key, &c.GroupID, &c.Declared, &c.Known, &c.Finished, &c.Settled, &c.FinishedAt, &c.NewestAt,
			&c.IncompleteAt, &leased); err != nil {
			return nil, 0, fmt.Errorf("list candidates: %w", err)
		}
		if leased {
			held++
			continue
		}
		list = append(list, c)
	}
	if err := rows.Err(); err != nil {
		return nil, 0, fmt.Errorf("list candidates: %w", err)
	}
	return list, held, nil
}

// openGroups are what waits or is held for the consumer with key ?2, that a seek does
// not pass over; isHeld says that a lease holds one at time ?1.
const (
	openGroups = ` FROM consumers c CROSS JOIN deliveries d INDEXED BY deliveries_open CROSS JOIN groups g ON g.group_key = d.group_key
			LEFT JOIN leases l ON l.lease_key = d.lease_key
		WHERE c.consumer_key = ?2 AND d.consumer_key = c.consumer_key AND d.state IN ('waiting','held') AND g.known > 0
			AND (d.state = 'held' OR g.finished = 0 OR g.finished_at >= coalesce(c.from_time, 0))`
	isHeld = `(d.state = 'held' AND l.expires_at > ?1)`
)

// takeAtOnce bounds the groups that one commit takes in for a consumer.
const takeAtOnce = 4096

// refreshGroups brings sums up to date and takes new groups in for the
// consumer, in commits that are small, so that ingest can go on between them. A
// consumer that is not known is made.
func (s *Store) refreshGroups(ctx context.Context, consumer string) error {
	var needed bool
	err := s.control.read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM groups WHERE stale = 1)
		OR coalesce((SELECT taken_key FROM consumers WHERE name = ?), -1) < coalesce((SELECT max(group_key) FROM groups), 0)`,
		consumer).Scan(&needed)
	if err != nil {
		return fmt.Errorf("look for changed groups: %w", err)
	}
	for needed {
		err := s.decide(ctx, func(ctx context.Context, k *commit) (refused, err error) {
			key, err := k.needConsumer(ctx, consumer)
			if err != nil {
				return nil, err
			}
			// Sums first: a group that is taken in with them is written once.
			if summed, err := k.sumGroups(ctx, sumAtOnce); err != nil || summed == sumAtOnce {
				return nil, err
			}
			taken, err := k.takeGroups(ctx, key)
			needed = taken == takeAtOnce
			return nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// decide runs fn inside a group commit. What fn refuses concerns its caller
// alone, and then it must have written nothing; its other error undoes the whole
// group.
func (s *Store) decide(ctx context.Context, fn func(context.Context, *commit) (refused, err error)) error {
	var refused error
	_, err := s.committer.submit(ctx, itemBytes, func(ctx context.Context, k *commit) (err error) {
		refused, err = fn(ctx, k)
		return err
	})
	if err != nil {
		return err
	}
	return refused
}

// consumerKey finds a consumer; 0: there is none.
func (k *commit) consumerKey(ctx context.Context, name string) (key int64, err error) {
	err = k.c.conn.QueryRowContext(ctx, `SELECT consumer_key FROM consumers WHERE name = ?`, name).Scan(&key)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look up consumer %s: %w", name, err)
	}
	return key, nil
}

func (k *commit) needConsumer(ctx context.Context, name string) (int64, error) {
	if err := k.exec(ctx, "make consumer "+name, `INSERT INTO consumers (name, created_at) VALUES (?,?)
		ON CONFLICT (name) DO NOTHING`, name, k.now); err != nil {
		return 0, err
	}
	return k.consumerKey(ctx, name)
}

// takeGroups gives the consumer a row for groups that it has none for.
func (k *commit) takeGroups(ctx context.Context, consumer int64) (int64, error) {
	n, err := k.change(ctx, "take groups in", `INSERT INTO deliveries (consumer_key, group_key, state, stage, place)
		SELECT c.consumer_key, g.group_key, 'waiting', g.stage, g.finished_at FROM consumers c JOIN groups g ON g.group_key > c.taken_key
		WHERE c.consumer_key = ? ORDER BY g.group_key LIMIT ?`, consumer, takeAtOnce)
	if err != nil || n == 0 {
		return n, err
	}
	return n, k.exec(ctx, "take groups in", `UPDATE consumers SET
		taken_key = (SELECT max(group_key) FROM deliveries WHERE consumer_key = ?1) WHERE consumer_key = ?1`, consumer)
}

// exec runs a statement of the commit; what says for whom.
func (k *commit) exec(ctx context.Context, what, text string, args ...any) error {
	_, err := k.change(ctx, what, text, args...)
	return err
}

// change runs a statement and says how many rows it touched.
func (k *commit) change(ctx context.Context, what, text string, args ...any) (int64, error) {
	res, err := k.c.conn.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return n, nil
}

// GroupRollouts reads the rollouts of groups, by group_key, in the order in
// which they were opened. A group that has none is left out.
func (s *Store) GroupRollouts(ctx context.Context, groups []int64) (map[int64][]Rollout, error) {
	out := map[int64][]Rollout{}
	for at := 0; at < len(groups); at += loadKeys {
		keys := inList(groups[at:min(at+loadKeys, len(groups))])
		// The second half is for rollouts that are a group by themselves.
		err := s.groupRollouts(ctx, out, `SELECT (SELECT group_key FROM groups WHERE groups.group_id = rollouts.group_id), `+rolloutColumns+`
			FROM rollouts WHERE group_id IN (SELECT group_id FROM groups WHERE group_key IN `+keys+`)
			UNION ALL
			SELECT (SELECT group_key FROM groups WHERE groups.rollout_key = rollouts.rollout_key), `+rolloutColumns+`
			FROM rollouts WHERE rollout_key IN (SELECT rollout_key FROM groups WHERE group_key IN `+keys+`) AND group_id IS NULL
			ORDER BY 2`)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Store) groupRollouts(ctx context.Context, out map[int64][]Rollout, text string) error {
	rows, err := s.control.read.QueryContext(ctx, text)
	if err != nil {
		return fmt.Errorf("list the rollouts of groups: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	for rows.Next() {
		var key int64
		r, err := scanRollout(withKey{rows, &key})
		if err != nil {
			return err
		}
		out[key] = append(out[key], *r)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("list the rollouts of groups: %w", err)
	}
	return nil
}

// withKey reads a column before those that its user knows of.
type withKey struct {
	scanner
	key *int64
}

// Scan reads a row.
func (w withKey) Scan(dest ...any) error { return w.scanner.Scan(append([]any{w.key}, dest...)...) }

// Given says which of the rollouts the consumer's leases hold or acknowledged, in
// whatever group: until when a lease holds it, in microseconds; 0: it is
// acknowledged.
func (s *Store) Given(ctx context.Context, consumer string, rollouts []int64) (map[int64]int64, error) {
	list, err := json.Marshal(rollouts)
	if err != nil {
		return nil, fmt.Errorf("look up what was given out: %w", err)
	}
	out := map[int64]int64{}
	rows, err := s.control.read.QueryContext(ctx, `SELECT p.rollout_key, CASE d.state WHEN 'acked' THEN 0 ELSE l.expires_at END
		FROM consumers c CROSS JOIN json_each(?1) j CROSS JOIN pins p ON p.rollout_key = j.value AND p.consumer_key = c.consumer_key
			JOIN deliveries d ON d.consumer_key = p.consumer_key AND d.group_key = p.group_key AND d.lease_key = p.lease_key
			JOIN leases l ON l.lease_key = d.lease_key
		WHERE c.name = ?2 AND (d.state = 'acked' OR l.expires_at > ?3)`, string(list), consumer, s.now())
	if err != nil {
		return nil, fmt.Errorf("look up what was given out: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	for rows.Next() {
		var rollout, until int64
		if err := rows.Scan(&rollout, &until); err != nil {
			return nil, fmt.Errorf("look up what was given out: %w", err)
		}
		out[rollout] = until
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look up what was given out: %w", err)
	}
	return out, nil
}
