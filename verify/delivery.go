package verify

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
)

// delivery checks what the control database says of groups, leases and what
// consumers were given, in one moment.
func (v *run) delivery(ctx context.Context, q querier) error {
	// A database of an older version, that nobody has opened since, has none.
	known, err := q.int(ctx, `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'deliveries'`)
	if err != nil || known == 0 {
		return err
	}
	for _, step := range []func(context.Context, querier) error{v.groups, v.leases, v.deliveries, v.places, v.pins} {
		if err := step(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// leases checks each lease against its shards and the groups that name it.
func (v *run) leases(ctx context.Context, q querier) error {
	return q.each(ctx, func(s scan) error {
		var id, state string
		var shards, groups, ackedGroups, settled, acked, strange, held, have int64
		var plan, consumer bool
		if err := s(&id, &state, &shards, &groups, &ackedGroups, &settled, &plan, &consumer, &acked, &strange, &held, &have); err != nil {
			return err
		}
		v.checked(checkLeases, 1)
		fail := func(format string, args ...any) {
			v.fail(checkLeases, "", "", "lease %s, %s: "+format, append([]any{id, state}, args...)...)
		}
		if !consumer {
			fail("its consumer does not exist")
		}
		if strange > 0 {
			fail("%d shards are acknowledged that it does not have", strange)
		}
		if (acked >= shards) != (state == "acknowledged") {
			fail("%d of %d shards are acknowledged", acked, shards)
		}
		if over := state != "open" && state != "returned"; over && settled == 0 {
			fail("it is not settled")
		} else if state == "open" && settled != 0 {
			fail("it is settled")
		}
		switch {
		case settled != 0 && held > 0:
			fail("it is settled, and holds %d groups", held)
		case settled != 0 && plan:
			fail("it is settled, and its plan is kept")
		case settled == 0 && have != groups:
			fail("it was opened with %d groups and has %d: the others went elsewhere", groups, have)
		case settled == 0 && have-held != ackedGroups, ackedGroups > groups:
			fail("it says that %d groups are acknowledged, of %d where %d still wait for it", ackedGroups, groups, held)
		}
		return nil
	}, `SELECT l.lease_id, l.state, l.shards, l.groups, l.acked_groups, l.settled_at, l.plan IS NOT NULL,
			l.consumer_key IN (SELECT consumer_key FROM consumers),
			(SELECT count(*) FROM lease_shards s WHERE s.lease_key = l.lease_key),
			(SELECT count(*) FROM lease_shards s WHERE s.lease_key = l.lease_key AND s.shard NOT BETWEEN 0 AND l.shards - 1),
			(SELECT count(*) FROM deliveries d WHERE d.lease_key = l.lease_key AND d.state = 'held'),
			(SELECT count(*) FROM deliveries d WHERE d.lease_key = l.lease_key)
		FROM leases l ORDER BY l.lease_key`)
}

// deliveries checks that a group is acknowledged when all shards with its rows
// are, and only then.
func (v *run) deliveries(ctx context.Context, q querier) error {
	return q.each(ctx, func(s scan) error {
		var consumer, group int64
		var state string
		var lease, shards, acked sql.NullString
		var known, own bool
		if err := s(&consumer, &group, &state, &shards, &known, &lease, &own, &acked); err != nil {
			return err
		}
		v.checked(checkDeliveries, 1)
		fail := func(format string, args ...any) {
			v.fail(checkDeliveries, "", "", "group %d, %s for consumer %d: "+format, append([]any{group, state, consumer}, args...)...)
		}
		if !known {
			fail("there is no such group or consumer")
		}
		if state != "held" && state != "acked" {
			return nil
		}
		if !lease.Valid || !own {
			fail("its lease does not exist, or is another consumer's")
			return nil
		}
		in, err := shardList(shards)
		if err != nil || len(in) == 0 {
			fail("its shards cannot be read: %s", quoted(shards))
			return nil //nolint:nilerr // it is told as a finding
		}
		done, err := shardList(acked)
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(in), func(shard int64) bool { return slices.Contains(done, shard) })
		switch {
		case state == "acked" && len(missing) > 0:
			fail("shards %v of lease %s, which have its rows, are not acknowledged", missing, lease.String)
		case state == "held" && len(missing) == 0:
			fail("all shards of lease %s that have its rows, %v, are acknowledged", lease.String, in)
		}
		return nil
	}, `SELECT d.consumer_key, d.group_key, d.state, d.shards, g.group_key IS NOT NULL AND c.consumer_key IS NOT NULL,
			l.lease_id, l.consumer_key IS d.consumer_key,
			CASE WHEN d.lease_key IS NOT NULL THEN
				(SELECT json_group_array(shard) FROM lease_shards s WHERE s.lease_key = d.lease_key) END
		FROM deliveries d LEFT JOIN groups g ON g.group_key = d.group_key LEFT JOIN consumers c ON c.consumer_key = d.consumer_key
			LEFT JOIN leases l ON l.lease_key = d.lease_key ORDER BY d.consumer_key, d.group_key`)
}

// places checks that groups stand for each consumer where their sums put them: a
// group that stands elsewhere would be given out late, early or never.
func (v *run) places(ctx context.Context, q querier) error {
	// A database of an older version, that nobody has opened since, has none.
	known, err := q.int(ctx, `SELECT count(*) FROM pragma_table_info('deliveries') WHERE name = 'place'`)
	if err != nil || known == 0 {
		return err
	}
	return q.each(ctx, func(s scan) error {
		var consumer, group, stage, place, wantStage, wantPlace int64
		if err := s(&consumer, &group, &stage, &place, &wantStage, &wantPlace); err != nil {
			return err
		}
		v.checked(checkDeliveries, 1)
		if stage != wantStage || place != wantPlace {
			v.fail(checkDeliveries, "", "", "group %d stands at stage %d and time %d for consumer %d, where its sums make it stage %d and time %d",
				group, stage, place, consumer, wantStage, wantPlace)
		}
		return nil
	}, `SELECT d.consumer_key, d.group_key, d.stage, d.place,
			(g.settled >= n) + (g.finished >= n OR g.settled >= n), g.finished_at
		FROM deliveries d JOIN (SELECT *, max(coalesce(declared, known), 1) AS n FROM groups) g USING (group_key)`)
}

func shardList(text sql.NullString) (list []int64, err error) {
	if err := json.Unmarshal([]byte(text.String), &list); err != nil {
		return nil, fmt.Errorf("read shards %s: %w", quoted(text), err)
	}
	return list, nil
}

// pins checks that what was delivered exists, that no rollout counts in two
// leases of a consumer, and what is said to have changed since.
func (v *run) pins(ctx context.Context, q querier) error {
	outcomes := map[int64]outcome{}
	err := q.each(ctx, func(s scan) error {
		var rollout int64
		var o outcome
		if err := s(&rollout, &o.id, &o.source, &o.revision); err != nil {
			return err
		}
		best, ok := outcomes[rollout]
		if !ok || o.revision > best.revision || o.revision == best.revision && o.source < best.source {
			outcomes[rollout] = o
		}
		return nil
	}, `SELECT rollout_key, reward_id, source, revision FROM rewards WHERE trace_id = '' AND name = 'outcome'
		AND rollout_key IN (SELECT rollout_key FROM pins)`)
	if err != nil {
		return err
	}
	type holder struct{ rollout, consumer int64 }
	holders := map[holder]string{}
	return q.each(ctx, func(s scan) error {
		var rollout, consumer, batch int64
		var id, lease, reward sql.NullString
		var last sql.NullInt64
		var reopened, rewarded, counts bool
		if err := s(&rollout, &consumer, &batch, &reward, &reopened, &rewarded, &id, &last, &lease, &counts); err != nil {
			return err
		}
		v.checked(checkPins, 1)
		switch {
		case !id.Valid:
			v.fail(checkPins, "key "+itoa(rollout), "", "a lease of consumer %d delivered it, and it does not exist", consumer)
			return nil
		case !lease.Valid:
			v.fail(checkPins, id.String, "", "the lease of consumer %d that delivered it does not exist", consumer)
			return nil
		}
		if is := last.Int64 > batch; is != reopened {
			v.fail(checkPins, id.String, "", "lease %s delivered it up to batch %d, it goes on to %d, and is said reopened: %t", lease.String, batch, last.Int64, reopened)
		}
		if o, ok := outcomes[rollout]; (ok != reward.Valid || o.id != reward.String) != rewarded {
			v.fail(checkPins, id.String, "", "lease %s delivered it with reward %s, %q counts, and it is said rewarded anew: %t", lease.String, quoted(reward), o.id, rewarded)
		}
		if !counts {
			return nil
		}
		if other := holders[holder{rollout, consumer}]; other != "" {
			v.fail(checkPins, id.String, "", "leases %s and %s of one consumer both have it", other, lease.String)
		}
		holders[holder{rollout, consumer}] = lease.String
		return nil
	}, `SELECT p.rollout_key, p.consumer_key, p.last_batch, p.reward_id, p.reopened, p.rewarded, r.rollout_id, r.last_batch,
			l.lease_id, d.lease_key IS p.lease_key
		FROM pins p LEFT JOIN rollouts r ON r.rollout_key = p.rollout_key
			LEFT JOIN leases l ON l.lease_key = p.lease_key AND l.consumer_key = p.consumer_key
			LEFT JOIN deliveries d ON d.consumer_key = p.consumer_key AND d.group_key = p.group_key
		ORDER BY p.consumer_key, p.rollout_key, p.lease_key`)
}

// outcome is a reward that may be the one that counts.
type outcome struct {
	id, source string
	revision   int64
}
