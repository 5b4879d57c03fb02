package apptest

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	_ "github.com/duckdb/duckdb-go/v2" // the tests damage warehouses on purpose
	"github.com/stretchr/testify/require"
)

// damage changes a warehouse that no server uses.
func damage(t *testing.T, dir string, statements ...string) {
	t.Helper()
	db, err := sql.Open("duckdb", filepath.Join(dir, "warehouse.duckdb"))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	for _, stmt := range statements {
		r, err := db.ExecContext(t.Context(), stmt)
		require.NoError(t, err, stmt)
		n, err := r.RowsAffected()
		require.NoError(t, err)
		require.Equal(t, int64(1), n, stmt)
	}
}

// keyOf is SQL for the key of a trace.
func keyOf(trace string) string {
	return fmt.Sprintf("(SELECT trace_key FROM ice.traces WHERE trace_id = '%s')", trace)
}

// replace is SQL that sets entry at of a list column kept in chunks.
func replace(table, column, where string, at int, value string) string {
	return fmt.Sprintf(`UPDATE ice.%[1]s SET %[2]s = list_concat(%[2]s[:%[3]d - start], [%[4]s], %[2]s[%[3]d - start + 2:])
		WHERE %[5]s AND start <= %[3]d AND %[3]d < start + len(%[2]s)`, table, column, at, value, where)
}

// Whatever is damaged in the warehouse is found, and where.
func TestBoundaryOfDamage(t *testing.T) {
	t.Parallel()
	answered := func(c call) call { return c.with("response", engineShapes["vllm chat"](c)) }
	first := plain("r", "t-1", 1, ids(1, 2, 3), ids(4, 5, 9))
	second := plain("r", "t-2", 2, ids(1, 2, 3, 4, 5, 9, 6, 7), ids(20, 21, 22, 9))
	bare := plain("bare", "b-1", 1, ids(1, 2, 3), ids(4, 5, 9))
	bare2 := plain("bare", "b-2", 2, ids(1, 2, 3, 4, 5, 9, 6, 7), ids(20, 9))
	tape := func(rollout string) string {
		return "rollout_key = (SELECT DISTINCT rollout_key FROM ice.traces WHERE rollout_id = '" + rollout + "')"
	}
	for name, c := range map[string]struct {
		sql   string
		trace string
		bad   []string // checks and kinds
		// Where the named check finds it.
		check    string
		position int
		detail   string
	}{
		"a token of the response": {replace("tape_chunks", "token_ids", tape("r"), 9, "77"), "t-2",
			[]string{"body.ids ids_differ", "body.ids ids_differ", "trace.content_hash hash_differs"}, "body.ids", 1, "the body has 21, the trace has 77"},
		"a token of the prompt": {replace("tape_chunks", "token_ids", tape("r"), 6, "77"), "t-2",
			[]string{"body.prompt_ids ids_differ", "tape.prompt_hash hash_differs"}, "body.prompt_ids", 6, "the body has 6, the trace has 77"},
		"a token of the prompt without bodies": {replace("tape_chunks", "token_ids", tape("bare"), 6, "77"), "b-2",
			[]string{"tape.prompt_hash hash_differs"}, "tape.prompt_hash", 3, "in [3, 8)"},
		"a token that an earlier prompt has too": {replace("tape_chunks", "token_ids", tape("bare"), 1, "77"), "b-2",
			[]string{"tape.prompt_hash hash_differs"}, "tape.prompt_hash", 0, "in [0, 3)"},
		"a token of a response without bodies": {replace("tape_chunks", "token_ids", tape("bare"), 8, "77"), "b-2",
			[]string{"trace.content_hash hash_differs"}, "trace.content_hash", -1, "acknowledged"},
		"a log-prob": {replace("logprob_chunks", "logprobs", "trace_key = "+keyOf("t-2"), 2, "-3.5"), "t-2",
			[]string{"body.logprobs logprob_differs", "trace.content_hash hash_differs"}, "body.logprobs", 2, "the body has -0.375, the trace has -3.5"},
		"a span's start": {"UPDATE ice.merged_traces SET span_start = span_start + 1 WHERE trace_key = " + keyOf("t-2"), "t-2",
			[]string{"merge.span span_differs", "row.span span_differs"}, "row.span", 8, "published is [9, 13) of row 0"},
		"a disposition": {"UPDATE ice.merged_traces SET disposition = 'unobserved' WHERE trace_key = " + keyOf("t-1"), "t-1",
			[]string{"merge.disposition merge_differs"}, "merge.disposition", -1, "made anew trained"},
		"a boundary": {"UPDATE ice.merged_traces SET shared = 5 WHERE trace_key = " + keyOf("t-2"), "t-2",
			[]string{"merge.boundary merge_differs"}, "merge.boundary", -1, "5 shared, made anew extends with t-1, 6 shared"},
		"a row's length": {"UPDATE ice.trajectories SET length = length + 1 WHERE " + tape("r"), "t-2",
			[]string{"row.readable unreadable"}, "row.readable", -1, "another row"},
		"a chunk that is gone": {"DELETE FROM ice.tape_chunks WHERE " + tape("r") + " AND start = 6", "t-2",
			[]string{"tape.readable unreadable", "trace.readable unreadable", "row.readable unreadable", "merge.readable unreadable"},
			"tape.readable", -1, "its chunks end at position 6, but the trace needs 12"},
		"a body that is gone": {"DELETE FROM ice.bodies WHERE trace_key = " + keyOf("t-1"), "t-2",
			[]string{"body.readable unreadable"}, "body.readable", -1, "is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			s := launch(t, dir, nil)
			t.Cleanup(s.kill)
			// One after the other, so that each has chunks of its own.
			for _, one := range []call{answered(first), answered(second), bare, bare2} {
				s.post("/v1/traces?ack=queryable", one.json()).all("stored", 1)
			}
			for _, id := range []string{"t-1", "t-2", "b-1", "b-2"} {
				require.True(t, ptr(s.inspect(id, "")).OK)
			}
			s.stop()
			damage(t, dir, c.sql)
			s = launch(t, dir, nil)
			t.Cleanup(s.kill)
			b := s.inspect(c.trace, "")
			require.Equal(t, c.bad, b.bad(), "%+v", b.Checks)
			found := b.check(t, c.check)
			require.Contains(t, found.Detail, c.detail)
			require.Equal(t, c.position >= 0, found.Position != nil, "%+v", found)
			if c.position >= 0 {
				require.Equal(t, c.position, *found.Position)
			}
		})
	}
}
