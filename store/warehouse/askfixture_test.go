package warehouse

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

// asked opens an engine with some tables that users see and one that they do
// not, and takes from it what Open takes.
func asked(t testing.TB) *Engine {
	t.Helper()
	dir := t.TempDir()
	e, err := Open(filepath.Join(dir, "warehouse.duckdb"), testOptions(dir))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	for _, stmt := range []string{
		`CREATE SCHEMA hidden`,
		`CREATE SCHEMA v1`,
		`CREATE TABLE hidden.calls AS SELECT
			't-' || i AS trace_id, 'r-' || i // 5 AS rollout_id, i % 5 AS seq,
			['codex', 'claude-code', 'qwen-code', 'pi'][1 + i // 5 % 4] AS harness, 'm-' || i % 2 AS model,
			i // 20 AS policy_version, ['ok', 'aborted'][1 + (i % 10 = 9)::INTEGER] AS status,
			range(i % 7)::INTEGER[] AS prompt_token_ids, range(i % 4)::INTEGER[] AS response_token_ids,
			list_transform(range(i % 4), lambda x: -x::FLOAT) AS response_logprobs,
			TIMESTAMPTZ '2025-03-01 00:00:00Z' + to_minutes(i * 7) AS started_at,
			'{"temperature": ' || i % 3 || ', "stop": ["a", "b"]}' AS sampling,
			{'input': i, 'output': i * 2} AS usage
			FROM range(100) t(i)`,
		`CREATE TABLE hidden.runs AS SELECT 'r-' || i AS rollout_id, 'task-' || i % 3 AS task_id, 'g-' || i % 4 AS group_id,
			['codex', 'claude-code', 'qwen-code', 'pi'][1 + i % 4] AS harness, ['train', 'eval'][1 + i % 2] AS split,
			TIMESTAMPTZ '2025-03-01 00:00:00Z' + to_hours(i) AS created_at FROM range(20) t(i)`,
		`CREATE TABLE hidden.scores AS SELECT 'w-' || i AS reward_id, 'r-' || i AS rollout_id, 'outcome' AS name,
			i % 3 / 2.0 AS value, TIMESTAMPTZ '2025-03-01 00:30:00Z' + to_hours(i) AS rewarded_at FROM range(18) t(i)`,
		`CREATE TABLE main.secrets (s VARCHAR)`,
		`CREATE SEQUENCE hidden.numbers`,
	} {
		_, err := e.db.ExecContext(t.Context(), stmt)
		require.NoError(t, err, stmt)
	}
	for view, table := range map[string]string{"traces": "calls", "rollouts": "runs", "rewards": "scores"} {
		for _, schema := range faceSchemas {
			_, err := e.db.ExecContext(t.Context(), `CREATE VIEW `+schema+`.`+view+` AS FROM hidden.`+table)
			require.NoError(t, err)
		}
	}
	require.NoError(t, lockdown(t.Context(), e.db))
	return e
}

// answer asks and keeps what comes.
func answer(ctx context.Context, e *Engine, a Ask) ([]arrow.RecordBatch, Reply, error) {
	var got []arrow.RecordBatch
	reply, err := e.Ask(ctx, a, func(rec arrow.RecordBatch) error {
		rec.Retain()
		got = append(got, rec)
		return nil
	})
	return got, reply, err
}

// one asks for a single value and gives it as text.
func one(t testing.TB, e *Engine, a Ask) string {
	t.Helper()
	got, reply, err := answer(t.Context(), e, a)
	require.NoError(t, err, a.SQL)
	require.EqualValues(t, 1, reply.Rows, a.SQL)
	return got[0].Column(0).ValueStr(0)
}

// wantFault asks and wants to be refused.
func wantFault(t testing.TB, e *Engine, a Ask, code, said string) Fault {
	t.Helper()
	_, _, err := answer(t.Context(), e, a)
	var fault *Fault
	require.ErrorAs(t, err, &fault, "%.200s", a.SQL)
	require.Equal(t, code, fault.Code, "%.200s: %s", a.SQL, fault)
	require.Contains(t, fault.Message, said, "%.200s", a.SQL)
	return *fault
}
