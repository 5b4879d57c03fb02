package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A merge that no longer counts keeps its rows for a while: statements of users
// that began before may still be reading them, and what they read beside their
// own snapshot must not be gone.

// oldMerges selects generations that are no longer published: those that have
// been dropped, and those in whose place a newer one stands, since when.
const oldMerges = `(SELECT generation, dropped_at AS since FROM ice.dropped_generations
	UNION ALL SELECT generation, since FROM (
		SELECT generation, lead(merged_at) OVER (PARTITION BY rollout_key, policy ORDER BY generation) AS since FROM ice.generations)
	WHERE since IS NOT NULL)`

// DropOld deletes the merges that have not counted for age, and says whether
// some that do not count are left, because they are younger.
func (s *Store) DropOld(ctx context.Context, age time.Duration) (left bool, err error) {
	where := fmt.Sprintf(` WHERE generation IN (SELECT generation FROM %s WHERE since < make_timestamptz(%d))`,
		oldMerges, time.Now().Add(-age).UnixMicro())
	// What says which they are goes last. Generation numbers are of one merge each,
	// so that of the last two each finds its own.
	var stmts []string
	for _, name := range []string{tableMergedTraces.name, tableTrajectories.name, tableGenerations.name, "dropped_generations"} {
		stmts = append(stmts, "DELETE FROM ice."+name+where)
	}
	if err := s.applied(ctx, nil, nil, nil, stmts...); err != nil {
		return false, fmt.Errorf("drop old merges: %w", err)
	}
	n, err := s.wh().Int(ctx, `SELECT count(*) FROM `+oldMerges)
	if err != nil {
		return false, fmt.Errorf("count old merges: %w", err)
	}
	return n > 0, nil
}

// DropPolicy takes back everything that a policy has published: it is not merged
// any more for whoever asks from now on. DropOld deletes the rows later.
func (s *Store) DropPolicy(ctx context.Context, policy string) error {
	where := ` WHERE policy = '` + strings.ReplaceAll(policy, "'", "''") + `'`
	err := s.applied(ctx, nil, nil, nil,
		fmt.Sprintf(`INSERT INTO ice.dropped_generations SELECT generation, rollout_key, policy, make_timestamptz(%d)
			FROM ice.generations%s`, time.Now().UnixMicro(), where),
		`DELETE FROM ice.generations`+where)
	if err != nil {
		return fmt.Errorf("drop the results of %s: %w", policy, err)
	}
	return nil
}
