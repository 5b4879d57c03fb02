package warehouse

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

// both runs a test against a warehouse in this process and against one in a
// process of its own: whoever uses it cannot tell.
func both(t *testing.T, do func(t *testing.T, w waist, reopen func() waist)) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, path string, o Options) (waist, error){
		"engine": func(_ *testing.T, path string, o Options) (waist, error) { return Open(path, o) },
		"child": func(t *testing.T, path string, o Options) (waist, error) {
			return Start(t.Context(), path, o, ChildOptions{Command: func() *exec.Cmd { return childCommand("serve") },
				Log: quiet})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "w.duckdb")
			w, err := open(t, path, testOptions(dir))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, w.Close()) })
			prepare(t, w)
			do(t, w, func() waist {
				require.NoError(t, w.Close())
				w, err = open(t, path, testOptions(dir))
				require.NoError(t, err)
				return w
			})
		})
	}
}

func TestRowsComeBack(t *testing.T) {
	both(t, func(t *testing.T, w waist, reopen func() waist) {
		ctx := t.Context()
		n := int64(3*vectorRows + 5)
		all := upTo(n)
		require.NoError(t, w.Apply(ctx, []Addition{
			{Table: "numbers", Records: []arrow.RecordBatch{numbers(all[:100]...), numbers(all[100:]...)}},
			{Table: "others"}, // nothing to add
		}, nil, `INSERT INTO ice.others VALUES (1), (2)`))
		var want []string
		for _, n := range all {
			name, list := fmt.Sprint("number ", n), "["
			for i := range n % 5 {
				if i > 0 {
					list += ","
				}
				list += fmt.Sprint(n)
			}
			list += "]"
			if n%7 == 0 {
				name, list = "(null)", "(null)"
			}
			want = append(want, fmt.Sprintf("%d|%s|%s", n, name, list))
		}
		for range 2 {
			require.Equal(t, want, read(t, w, `SELECT * FROM ice.numbers ORDER BY n`))
			sum, err := w.Int(ctx, `SELECT sum(n)::BIGINT FROM ice.others`)
			require.NoError(t, err)
			require.EqualValues(t, 3, sum)
			w = reopen()
		}
	})
}

func TestNoRowsAndNull(t *testing.T) {
	both(t, func(t *testing.T, w waist, _ func() waist) {
		require.Empty(t, read(t, w, `SELECT * FROM ice.numbers`))
		n, err := w.Int(t.Context(), `SELECT max(n) FROM ice.numbers`)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, w.Apply(t.Context(), nil, nil))
	})
}

func TestParametersKeepTheirTypes(t *testing.T) {
	both(t, func(t *testing.T, w waist, _ func() waist) {
		for _, c := range []struct {
			arg  any
			want string
		}{{int64(1), "BIGINT|1"}, {int64(math.MinInt64), "BIGINT|-9223372036854775808"}, {1.0, "DOUBLE|1"}, {math.NaN(), "DOUBLE|NaN"},
			{math.Inf(-1), "DOUBLE|-Inf"}, {"it's \x00 ü", "VARCHAR|it's \x00 ü"}, {"", "VARCHAR|"}, {true, "BOOLEAN|true"}} {
			require.Equal(t, []string{c.want}, read(t, w, `SELECT typeof($1), $1`, c.arg), "%v", c.arg)
		}
		require.Equal(t, []string{"true"}, read(t, w, `SELECT $1 IS NULL`, nil))
	})
}

// Whatever goes wrong before the commit, nothing has happened.
func TestRollBack(t *testing.T) {
	both(t, func(t *testing.T, w waist, _ func() waist) {
		ctx := t.Context()
		wrong := []Addition{{Table: "others", Records: []arrow.RecordBatch{numbers(1)}}}
		for name, apply := range map[string]func() error{
			"before": func() error { return w.Apply(ctx, add(numbers(1)), func() error { return errConsumer }) },
			"statement": func() error {
				return w.Apply(ctx, add(numbers(1)), nil, `INSERT INTO ice.others VALUES (1)`, `gibberish`)
			},
			"columns": func() error {
				return w.Apply(ctx, append(add(numbers(1)), wrong...), nil, `INSERT INTO ice.others VALUES (1)`)
			},
			"table": func() error { return w.Apply(ctx, []Addition{{Table: "none", Records: wrong[0].Records}}, nil) },
		} {
			err := apply()
			require.Error(t, err, name)
			require.NotErrorIs(t, err, ErrOutOfOrder, name)
			if name == "before" {
				require.ErrorIs(t, err, errConsumer)
			}
			require.Empty(t, read(t, w, `SELECT n FROM ice.numbers UNION ALL SELECT n FROM ice.others`), name)
		}
		require.NoError(t, w.Apply(ctx, add(numbers(1)), nil))
		require.Len(t, read(t, w, `SELECT n FROM ice.numbers`), 1)
	})
}

// before is called when all is appended and nothing is committed.
func TestBefore(t *testing.T) {
	both(t, func(t *testing.T, w waist, _ func() waist) {
		called := 0
		require.NoError(t, w.Apply(t.Context(), add(numbers(upTo(5000)...)), func() error {
			called++
			require.Empty(t, read(t, w, `SELECT n FROM ice.numbers`))
			return nil
		}))
		require.Equal(t, 1, called)
		require.Len(t, read(t, w, `SELECT n FROM ice.numbers`), 5000)
	})
}

func TestCheckpoint(t *testing.T) {
	both(t, func(t *testing.T, w waist, reopen func() waist) {
		require.NoError(t, w.Apply(t.Context(), add(numbers(1, 2)), nil))
		clean, err := w.Checkpoint(t.Context())
		require.NoError(t, err)
		require.True(t, clean)
		healed, err := w.Heal(t.Context())
		require.NoError(t, err)
		require.False(t, healed)
		require.Len(t, read(t, reopen(), `SELECT n FROM ice.numbers`), 2)
	})
}

func TestErrors(t *testing.T) {
	both(t, func(t *testing.T, w waist, _ func() waist) {
		ctx := t.Context()
		require.NoError(t, w.Apply(ctx, add(numbers(upTo(20_000)...)), nil))
		nothing := func(arrow.RecordBatch) error { return nil }
		err := w.Query(ctx, nothing, `SELECT nothing FROM nowhere`)
		require.ErrorContains(t, err, "nowhere")
		require.NotErrorIs(t, err, ErrOutOfOrder)
		_, err = w.Int(ctx, `SELECT 'x'::BIGINT`)
		require.ErrorContains(t, err, "Conversion Error")
		for _, after := range []int{1, 3} {
			seen := 0
			err := w.Query(ctx, func(arrow.RecordBatch) error {
				if seen++; seen == after {
					return errConsumer
				}
				return nil
			}, `SELECT * FROM ice.numbers`)
			require.ErrorIs(t, err, errConsumer)
			require.Equal(t, after, seen)
		}
		err = w.Query(ctx, nothing, `DELETE FROM ice.numbers`)
		require.ErrorContains(t, err, "read-only")
		require.Len(t, read(t, w, `SELECT n FROM ice.numbers`), 20_000)
	})
}

// endless is a statement that nobody waits for.
const endless = `SELECT count(*) FROM range(1000000000000) a(x) WHERE hash(x) = 1`

func TestCancel(t *testing.T) {
	both(t, func(t *testing.T, w waist, _ func() waist) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Query(ctx, func(arrow.RecordBatch) error { return nil }, endless) }()
		cancel() // before it has begun, or while it runs
		require.ErrorIs(t, <-done, context.Canceled)
		late, cancel := context.WithTimeout(t.Context(), 1)
		defer cancel()
		_, err := w.Int(late, endless)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []string{"1"}, read(t, w, `SELECT 1`))
	})
}

// A batch that is retained outlives its query, and the others after it.
func TestRetained(t *testing.T) {
	both(t, func(t *testing.T, w waist, _ func() waist) {
		require.NoError(t, w.Apply(t.Context(), add(numbers(upTo(10_000)...)), nil))
		var held []arrow.RecordBatch
		require.NoError(t, w.Query(t.Context(), func(rec arrow.RecordBatch) error {
			rec.Retain()
			held = append(held, rec)
			return nil
		}, `SELECT n FROM ice.numbers ORDER BY n`))
		at := 0
		for _, rec := range held {
			for row := range int(rec.NumRows()) {
				require.Equal(t, fmt.Sprint(at), rec.Column(0).ValueStr(row))
				at++
			}
			rec.Release()
		}
		require.Equal(t, 10_000, at)
	})
}

// Readers beside a writer see whole transactions.
func TestReadersBesideAWriter(t *testing.T) {
	both(t, func(t *testing.T, w waist, _ func() waist) {
		written := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			defer close(written)
			for i := range int64(60) {
				if err := w.Apply(context.Background(), add(numbers(3*i, 3*i+1), numbers(3*i+2)), nil); err != nil {
					t.Error(err)
				}
			}
		})
		for range 3 {
			wg.Go(func() {
				for more := true; more && !t.Failed(); {
					select {
					case <-written:
						more = false
					default:
					}
					rows := read(t, w, `SELECT count(*) % 3, max(n) + 1 - count(*) FROM ice.numbers HAVING count(*) > 0`)
					if len(rows) > 0 && rows[0] != "0|0" {
						t.Errorf("half a transaction: %v", rows)
					}
				}
			})
		}
		wg.Wait()
		require.Len(t, read(t, w, `SELECT n FROM ice.numbers`), 180)
	})
}
