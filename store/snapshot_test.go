package store

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"icecore/store/warehouse"
)

// A query's condition must hold for rows that are committed while it starts:
// the driver prepares first, and DuckDB plans with the statistics it finds then.
func TestQueryBesideCommits(t *testing.T) {
	dir := t.TempDir()
	w, err := warehouse.Open(filepath.Join(dir, "w.duckdb"), Options{TempDir: filepath.Join(dir, "tmp"), MemoryLimit: 256 * mib}.withDefaults().engine())
	require.NoError(t, err)
	defer w.Close() //nolint:errcheck // a test's
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var newest atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for batch := int64(1); ctx.Err() == nil; batch++ {
			r := tableTapes.rows()
			r.i64(batch)
			r.i64(1)
			r.i64(0)
			r.i32(0)
			r.i64(batch)
			r.end()
			rec := r.record()
			if err := w.Apply(context.Background(), []warehouse.Addition{{Table: tableTapes.name, Records: []arrow.RecordBatch{rec}}}, nil); err != nil {
				t.Error(err)
				return
			}
			rec.Release()
			r.b.Release()
			newest.Store(batch)
		}
	})
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				through, n := newest.Load(), int64(0)
				err := w.Query(context.Background(), func(rec arrow.RecordBatch) error { n += rec.NumRows(); return nil },
					fmt.Sprintf(`SELECT tape_key FROM ice.tapes WHERE rollout_key = 1 AND batch <= %d`, through))
				if err != nil || n != through {
					t.Errorf("%d rows of batches up to %d: %v", n, through, err)
				}
			}
		})
	}
	wg.Wait()
}
