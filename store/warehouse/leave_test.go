package warehouse

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

// Whoever leaves at any moment leaves nothing on a connection that the next one
// would trip over.
func TestLeavingSpoilsNoConnection(t *testing.T) {
	both(t, func(t *testing.T, w waist, _ func() waist) {
		ctx := t.Context()
		require.NoError(t, w.Apply(ctx, []Addition{{Table: "numbers", Records: []arrow.RecordBatch{numbers(upTo(100)...)}}}, nil))
		read := func(ctx context.Context) error {
			return w.Query(ctx, func(arrow.RecordBatch) error { return nil }, `SELECT count(*) FROM ice.numbers`)
		}
		var wg sync.WaitGroup
		for worker := range 4 {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			wg.Go(func() {
				for i := range 100 {
					leaving, leave := context.WithTimeout(ctx, time.Duration(random.IntN(400))*time.Microsecond)
					if i%9 == 0 {
						_ = w.Apply(leaving, nil, nil, `INSERT INTO ice.others VALUES (1)`)
					} else {
						_ = read(leaving)
					}
					leave()
					if err := read(ctx); err != nil {
						t.Errorf("worker %d, round %d: %v", worker, i, err)
						return
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, w.Apply(ctx, nil, nil, `INSERT INTO ice.others VALUES (2)`))
		require.NoError(t, read(ctx))
	})
}
