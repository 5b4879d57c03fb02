package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ExtendLease makes a lease last for so many seconds from now; 0: as many as it
// was opened with. It revives one that expired, unless another lease was given
// one of its groups: ErrLeaseLost. So is one that was returned: whoever has its id
// gave it up.
func (s *Store) ExtendLease(ctx context.Context, id string, seconds int) (*Lease, error) {
	return s.renewLease(ctx, id, seconds, false)
}

// ReviveLease is ExtendLease for who asks for the lease anew, by its key: a
// returned one whose delay is over is revived too.
func (s *Store) ReviveLease(ctx context.Context, id string, seconds int) (*Lease, error) {
	return s.renewLease(ctx, id, seconds, true)
}

func (s *Store) renewLease(ctx context.Context, id string, seconds int, returned bool) (*Lease, error) {
	return s.changeLease(ctx, id, func(ctx context.Context, k *commit, l *Lease) (refused, err error) {
		switch {
		case l.State == LeaseAcknowledged:
			return ErrLeaseAcked, nil
		case l.SettledAt != 0, l.State == LeaseReturned && (!returned || l.ExpiresAt > k.now):
			return ErrLeaseLost, nil
		case seconds == 0:
			seconds = l.Seconds
		}
		return nil, k.exec(ctx, "extend lease", `UPDATE leases SET state = 'open', expires_at = ? WHERE lease_id = ?`,
			k.now+int64(seconds)*second, id)
	})
}

// AckLease acknowledges shards of a lease; nil: all. A group is acknowledged
// when all shards that have its rows are, and then no lease of the consumer gets
// it again. An expired lease is acknowledged as if it had not, unless another
// was given one of its groups. metrics is kept with the first shard that this
// acknowledges.
func (s *Store) AckLease(ctx context.Context, id string, shards []int, metrics []byte) (*Lease, error) {
	return s.changeLease(ctx, id, func(ctx context.Context, k *commit, l *Lease) (refused, err error) {
		for _, shard := range shards {
			if shard < 0 || shard >= l.Shards {
				return fmt.Errorf("acknowledge lease %s: shard %d of %d: %w", id, shard, l.Shards, ErrNoShard), nil
			}
		}
		fresh := newlyAcked(l, shards)
		switch {
		case len(fresh) == 0:
			return nil, nil // again, or late but done
		case l.SettledAt != 0 || l.State == LeaseReturned:
			return ErrLeaseLost, nil
		}
		for i, shard := range fresh {
			var kept any
			if i == 0 {
				kept = null(string(metrics))
			}
			if err := k.exec(ctx, "acknowledge shard", `INSERT INTO lease_shards (lease_key, shard, acked_at, metrics)
				VALUES (?,?,?,?)`, l.rowKey, shard, k.now, kept); err != nil {
				return nil, err
			}
		}
		return nil, k.ackGroups(ctx, l, len(l.Acked)+len(fresh) == l.Shards)
	})
}

// newlyAcked gives the wanted shards (nil: all) that are not acknowledged yet.
func newlyAcked(l *Lease, wanted []int) (fresh []int) {
	if wanted == nil {
		for i := range l.Shards {
			wanted = append(wanted, i)
		}
	}
	wanted = slices.Clone(wanted)
	slices.Sort(wanted)
	for _, shard := range slices.Compact(wanted) {
		if !slices.Contains(l.Acked, shard) {
			fresh = append(fresh, shard)
		}
	}
	return fresh
}

// ackGroups acknowledges the groups of which all shards are; whole: all shards
// of the lease are.
func (k *commit) ackGroups(ctx context.Context, l *Lease, whole bool) error {
	missing := ""
	if !whole {
		missing = ` AND NOT EXISTS (SELECT 1 FROM json_each(deliveries.shards) j WHERE j.value NOT IN
			(SELECT shard FROM lease_shards WHERE lease_key = ?1))`
	}
	n, err := k.change(ctx, "acknowledge groups",
		`UPDATE deliveries SET state = 'acked' WHERE lease_key = ?1 AND state = 'held'`+missing, l.rowKey)
	if err != nil {
		return err
	}
	if err := k.exec(ctx, "acknowledge groups", `UPDATE leases SET acked_groups = acked_groups + ? WHERE lease_key = ?`, n, l.rowKey); err != nil {
		return err
	}
	k.count(ackedGroups, n)
	k.ready = k.ready || n > 0 // a rollout of theirs may have moved to a group that waits for it
	if !whole {
		return nil
	}
	k.count(LeaseAcknowledged, 1)
	return k.exec(ctx, "acknowledge lease", `UPDATE leases SET state = 'acknowledged', settled_at = ?, plan = NULL
		WHERE lease_key = ?`, k.now, l.rowKey)
}

// ReturnLease gives the groups of a lease that are not acknowledged back to the
// queue, after a delay. Doing it again changes nothing.
func (s *Store) ReturnLease(ctx context.Context, id string, delay time.Duration, reason string) (*Lease, error) {
	return s.changeLease(ctx, id, func(ctx context.Context, k *commit, l *Lease) (refused, err error) {
		switch {
		case l.State == LeaseReturned:
			return nil, nil
		case l.State == LeaseAcknowledged:
			return ErrLeaseAcked, nil
		case l.SettledAt != 0:
			return ErrLeaseLost, nil
		}
		k.ready = true
		k.count(LeaseReturned, 1)
		return nil, k.exec(ctx, "return lease", `UPDATE leases SET state = 'returned', expires_at = ?, reason = ? WHERE lease_key = ?`,
			k.now+delay.Microseconds(), null(reason), l.rowKey)
	})
}

// changeLease lets do change a lease inside a group commit, and gives it as it
// is afterwards.
func (s *Store) changeLease(ctx context.Context, id string,
	do func(context.Context, *commit, *Lease) (refused, err error)) (*Lease, error) {
	var lease *Lease
	err := s.decide(ctx, func(ctx context.Context, k *commit) (refused, err error) {
		l, err := k.lease(ctx, `l.lease_id = ?`, id)
		if errors.Is(err, ErrNotFound) {
			return ErrNotFound, nil
		}
		if err != nil {
			return nil, err
		}
		if refused, err = do(ctx, k, l); refused != nil || err != nil {
			return refused, err
		}
		lease, err = k.lease(ctx, `l.lease_key = ?`, l.rowKey)
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return lease, nil
}
