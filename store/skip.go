package store

import (
	"context"
	"encoding/json"
	"fmt"
)

// SkipGroups settles groups for a consumer without giving them out: only a seek
// brings them back. Groups that went elsewhere meanwhile are left alone.
func (s *Store) SkipGroups(ctx context.Context, consumer string, skips []Skip) error {
	if len(skips) == 0 {
		return nil
	}
	return s.decide(ctx, func(ctx context.Context, k *commit) (refused, err error) {
		key, err := k.consumerKey(ctx, consumer)
		if err != nil || key == 0 {
			return nil, err
		}
		return nil, k.skipGroups(ctx, key, skips)
	})
}

func (k *commit) skipGroups(ctx context.Context, consumer int64, skips []Skip) error {
	if len(skips) == 0 {
		return nil
	}
	list := [][]any{}
	for _, s := range skips {
		list = append(list, []any{s.Key, s.Reason, s.PolicyVersionMin})
	}
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("skip groups: %w", err)
	}
	var lost []int64
	err = k.each(ctx, "look up who has the groups", func(row scanner) error {
		var lease int64
		if err := row.Scan(&lease); err != nil {
			return err
		}
		lost = append(lost, lease)
		return nil
	}, `SELECT DISTINCT d.lease_key FROM json_each(?3) j
			CROSS JOIN deliveries d ON d.consumer_key = ?1 AND d.group_key = j.value ->> 0 AND d.state = 'held'
			CROSS JOIN leases l ON l.lease_key = d.lease_key AND l.expires_at <= ?2`, consumer, k.now, string(text))
	if err != nil {
		return err
	}
	if err := k.loseLeases(ctx, lost); err != nil {
		return err
	}
	return k.exec(ctx, "skip groups", `INSERT INTO deliveries (consumer_key, group_key, state, reason, policy_version_min, times)
		SELECT ?1, d.group_key, 'skipped', j.value ->> 1, j.value ->> 2, 0
		FROM json_each(?2) j CROSS JOIN deliveries d ON d.consumer_key = ?1 AND d.group_key = j.value ->> 0
		WHERE d.state = 'waiting'
		ON CONFLICT (consumer_key, group_key) DO UPDATE SET state = 'skipped', reason = excluded.reason,
			policy_version_min = excluded.policy_version_min`, consumer, string(text))
}
