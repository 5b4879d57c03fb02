package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkReadyGroups asks for 16 groups when almost everything is settled, and
// when nothing is.
func BenchmarkReadyGroups(b *testing.B) {
	for _, settled := range []int{0, 99_900} {
		b.Run(fmt.Sprintf("%d of 100000 settled", settled), func(b *testing.B) {
			s, ctx := open(b, Options{}), context.Background()
			run := func(text string, args ...any) {
				require.NoError(b, s.decide(ctx, func(ctx context.Context, k *commit) (refused, err error) {
					return nil, k.exec(ctx, "fill", text, args...)
				}))
			}
			run(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 800000)
				INSERT INTO rollouts (rollout_key, rollout_id, group_id, status, finished_at, created_at, updated_at)
				SELECT i, 'r' || i, 'g' || (i / 8), 'failed', i, i, i FROM n`)
			run(`INSERT INTO groups (group_id) SELECT DISTINCT group_id FROM rollouts WHERE group_id <> 'g0' ORDER BY rollout_key`)
			_, _, err := s.Candidates(ctx, "a")
			require.NoError(b, err)
			run(`UPDATE deliveries SET state = 'skipped', reason = 'stale' WHERE group_key <= ?`, settled)
			for b.Loop() {
				r, err := s.ReadyGroups(ctx, "a", Asked{Rewarded: true})
				require.NoError(b, err)
				list, err := r.Peek(ctx, 16)
				require.NoError(b, err)
				require.Len(b, list, 16)
			}
		})
	}
}
