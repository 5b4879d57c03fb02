package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

const leaseColumns = `l.lease_key, l.lease_id, c.name, l.key, l.request, l.plan, l.state, l.shards, l.seconds, l.groups, l.rollouts,
	l.rows, l.tokens, l.trained_tokens, l.created_at, l.expires_at, l.settled_at,
	(SELECT json_group_array(shard) FROM (SELECT shard FROM lease_shards s WHERE s.lease_key = l.lease_key ORDER BY shard))`

const leaseTables = ` FROM leases l JOIN consumers c ON c.consumer_key = l.consumer_key `

// scanLease reads a lease as it is at a time (microseconds).
func scanLease(s scanner, now int64) (*Lease, error) {
	var l Lease
	var acked []byte
	err := s.Scan(&l.rowKey, &l.ID, &l.Consumer, &l.Key, &l.Request, &l.Plan, &l.State, &l.Shards, &l.Seconds, &l.Groups, &l.Rollouts,
		&l.Rows, &l.Tokens, &l.Trained, &l.CreatedAt, &l.ExpiresAt, &l.SettledAt, &acked)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err == nil {
		err = json.Unmarshal(acked, &l.Acked)
	}
	if err != nil {
		return nil, fmt.Errorf("read lease: %w", err)
	}
	if l.State == LeaseOpen && l.ExpiresAt <= now {
		l.State = LeaseExpired
	}
	return &l, nil
}

// lease reads a lease inside the commit.
func (k *commit) lease(ctx context.Context, where string, args ...any) (*Lease, error) {
	return scanLease(k.c.conn.QueryRowContext(ctx, `SELECT `+leaseColumns+leaseTables+`WHERE `+where, args...), k.now)
}

// Lease reads a lease by its id. ErrNotFound: there is none.
func (s *Store) Lease(ctx context.Context, id string) (*Lease, error) {
	return scanLease(s.control.read.QueryRowContext(ctx, `SELECT `+leaseColumns+leaseTables+`WHERE l.lease_id = ?`, id), s.now())
}

// LeaseByKey reads the lease that a consumer opened with a key. ErrNotFound:
// there is none, or no such consumer.
func (s *Store) LeaseByKey(ctx context.Context, consumer, key string) (*Lease, error) {
	return scanLease(s.control.read.QueryRowContext(ctx, `SELECT `+leaseColumns+leaseTables+`WHERE c.name = ? AND l.key = ?`,
		consumer, key), s.now())
}

// openLeases lists the leases that hold groups now, oldest first.
func (s *Store) openLeases(ctx context.Context, consumer string) (list []Lease, err error) {
	now := s.now()
	rows, err := s.control.read.QueryContext(ctx, `SELECT `+leaseColumns+leaseTables+`
		WHERE c.name = ? AND l.settled_at = 0 AND l.state = 'open' AND l.expires_at > ? ORDER BY l.lease_key`, consumer, now)
	if err != nil {
		return nil, fmt.Errorf("list open leases: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	for rows.Next() {
		l, err := scanLease(rows, now)
		if err != nil {
			return nil, err
		}
		l.Request, l.Plan = nil, nil
		list = append(list, *l)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list open leases: %w", err)
	}
	return list, nil
}
