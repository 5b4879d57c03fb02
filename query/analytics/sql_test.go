package analytics

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"icecore/store"
	"icecore/store/warehouse"
)

var all = map[string]string{"summary": SummarySQL, "uplift": UpliftSQL, "splits": SplitsSQL, "groups": GroupsSQL,
	"mismatch": MismatchSQL, "mismatch_trajectories": MismatchTrajectoriesSQL, "mismatch_tokens": MismatchTokensSQL}

// The pages show the statements as they run. With ICECORE_UPDATE=1 they are
// written into them instead.
func TestPagesShowTheStatements(t *testing.T) {
	t.Parallel()
	// A statement begins with a comment; what does not is an example of its page.
	fence := regexp.MustCompile("(?s)```sql\n(-- .*?)```")
	for page, statements := range map[string][]string{
		"../../docs/analytics.md": {SummarySQL, UpliftSQL, SplitsSQL, GroupsSQL},
		"../../docs/mismatch.md":  {MismatchSQL, MismatchTrajectoriesSQL, MismatchTokensSQL},
	} {
		raw, err := os.ReadFile(page)
		require.NoError(t, err)
		if os.Getenv("ICECORE_UPDATE") == "1" {
			n := -1
			text := fence.ReplaceAllStringFunc(string(raw), func(string) string {
				n++
				return "```sql\n" + statements[n] + "```"
			})
			require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
			continue
		}
		var shown []string
		for _, m := range fence.FindAllStringSubmatch(string(raw), -1) {
			shown = append(shown, m[1])
		}
		require.Equal(t, statements, shown, "ICECORE_UPDATE=1 writes them into %s", page)
	}
}

// Statements keep to the versioned schema: what is in ice is nobody's contract.
func TestStatementsReadTheVersionedSchema(t *testing.T) {
	t.Parallel()
	for name, text := range all {
		require.NotContains(t, text, "ice.", name)
		require.NotContains(t, text, "ice_", name)
		require.NotContains(t, text, "main.", name)
		require.Contains(t, text, "v1.", name)
	}
}

// trapped is a warehouse with one rollout, in which every function that makes
// tokens, masks, log-probs or bodies fails, and is counted.
func trapped(t *testing.T, called *atomic.Int64) *warehouse.Engine {
	t.Helper()
	functions := store.Functions()
	for i := range functions {
		functions[i].Run = func(context.Context, warehouse.Querier, []warehouse.Column, warehouse.Out) error {
			called.Add(1)
			return errors.New("it was called")
		}
	}
	e, err := warehouse.Open(filepath.Join(t.TempDir(), "w.duckdb"), warehouse.Options{MemoryLimit: 256 << 20, Threads: 1,
		TempDir: t.TempDir(), Functions: functions})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.NoError(t, e.Apply(t.Context(), nil, nil,
		`INSERT INTO ice.rollouts BY NAME SELECT 1 AS rollout_key, 'r' AS rollout_id, 't' AS task_id, 'g' AS group_id, 'train' AS split,
			'h' AS harness, 'succeeded' AS status, false AS reopened, 0 AS open_intents, now() AS created_at, now() AS updated_at, 1 AS batch`,
		`INSERT INTO ice.rewards BY NAME SELECT 'w' AS reward_id, 1 AS rollout_key, 'r' AS rollout_id, 'outcome' AS name, 0 AS revision,
			1.0 AS value, now() AS stored_at, 1 AS batch`,
		`INSERT INTO ice.traces BY NAME SELECT 1 AS trace_key, 1 AS rollout_key, 1 AS batch, 'c' AS trace_id, 'r' AS rollout_id,
			''::BLOB AS content_hash, 1 AS tape_key, 2 AS prompt_length, 3 AS response_length, true AS has_logprobs, false AS ids_incomplete,
			7 AS policy_version, 'ok' AS status, 'agent' AS kind, now() AS received_at, 10 AS request_bytes, false AS text_repaired`,
		`INSERT INTO ice.tapes BY NAME SELECT 1 AS tape_key, 1 AS rollout_key, 0 AS parent_key, 0 AS fork, 1 AS batch`,
		`INSERT INTO ice.generations BY NAME SELECT 1 AS generation, 1 AS rollout_key, 'strict_tree' AS policy, 1 AS through_batch, 1 AS traces,
			1 AS trajectories, 3 AS sampled_tokens, 3 AS trained_tokens, now() AS merged_at`,
		`INSERT INTO ice.merged_traces BY NAME SELECT 1 AS generation, 1 AS rollout_key, 'strict_tree' AS policy, 1 AS trace_key,
			'trained' AS disposition, 0 AS cut, 2 AS span_start, 0 AS row_index, 'first' AS boundary, 0 AS shared`,
		`INSERT INTO ice.trajectories BY NAME SELECT 1 AS generation, 1 AS rollout_key, 'strict_tree' AS policy, 0 AS row_index,
			'tr' AS trajectory_id, 1 AS naming_key, 1 AS last_key, 5 AS length, 3 AS trained_tokens, 7 AS policy_version_min,
			7 AS policy_version_max, false AS history_rewritten`))
	return e
}

// watched is a Warehouse that keeps the plans of what it is asked.
type watched struct {
	*warehouse.Engine
	plans strings.Builder
}

func (w *watched) Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error {
	err := w.Engine.Query(ctx, func(rec arrow.RecordBatch) error {
		for i := range int(rec.NumRows()) {
			w.plans.WriteString(rec.Column(1).(*array.String).Value(i))
		}
		return nil
	}, "EXPLAIN "+text, args...)
	if err != nil {
		return err
	}
	return w.Engine.Query(ctx, each, text, args...)
}

// No statement makes tokens, masks, log-probs or bodies, or reads the tables
// that hold them: over a million traces that is what counts.
func TestStatementsTouchNoTokens(t *testing.T) {
	t.Parallel()
	var called atomic.Int64
	w := &watched{Engine: trapped(t, &called)}
	ctx := t.Context()
	s, err := Summarise(ctx, w, SummaryQuestion{By: []string{KeyHarness, KeyBucket}, Bucket: "day", Policy: "strict_tree", SolvedAt: 1,
		Ks: []int64{1}, Limit: 10})
	require.NoError(t, err)
	require.Len(t, s.Rows, 1)
	for _, n := range []int64{s.Total.Tokens.Sampled, s.Total.Tokens.Trained, s.Total.Tokens.ByDisposition["trained"]} {
		require.Equal(t, int64(3), n)
	}
	u, err := Compare(ctx, w, UpliftQuestion{By: []string{KeyHarness}, SolvedAt: 1, Limit: 10})
	require.NoError(t, err)
	require.Len(t, u.Rows, 1)
	_, err = CompareSplits(ctx, w, SplitsQuestion{By: []string{KeyTask}, SolvedAt: 1, Limit: 10})
	require.NoError(t, err)
	groups, total, err := ListGroups(ctx, w, GroupsQuestion{Limit: 10})
	require.NoError(t, err)
	require.Len(t, groups, int(total))

	require.Contains(t, w.plans.String(), "ice.rollouts", "these are no plans")
	for _, heavy := range []string{"tape_chunks", "logprob_chunks", "bodies"} {
		require.NotContains(t, w.plans.String(), heavy)
	}
	require.Zero(t, called.Load())
	// The trap works. (The view of bodies makes NULL of what cannot be decoded.)
	for _, column := range []string{"token_ids FROM v1.trajectories", "response_token_ids FROM v1.traces", "request FROM v1.trace_bodies"} {
		before := called.Load()
		_ = w.Engine.Query(ctx, func(arrow.RecordBatch) error { return nil }, "SELECT "+column)
		require.Greater(t, called.Load(), before, column)
	}
}

// Of the calls whose tokens are to be named, and of no others, ids are assembled.
func TestWorstTokensAssembleFew(t *testing.T) {
	t.Parallel()
	var called atomic.Int64
	e := trapped(t, &called)
	ask := func(traces string) error {
		return e.Query(t.Context(), func(arrow.RecordBatch) error { return nil }, responseSQL, traces)
	}
	require.NoError(t, ask(`["other"]`))
	require.Zero(t, called.Load())
	require.ErrorContains(t, ask(`["other", "c"]`), "it was called")
}
