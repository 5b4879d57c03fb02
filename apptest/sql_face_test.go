package apptest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ask runs SQL and reads its rows as objects.
func (s *server) ask(sql string, row func(raw []byte)) {
	s.t.Helper()
	a := s.send("POST", "/v1/sql", encode(object{"sql": sql}), "Content-Type", typeJSON, "Accept", typeNDJSON).is(200)
	require.Equal(s.t, "false", a.header.Get("Icecore-Truncated"))
	lines := bufio.NewScanner(bytes.NewReader(a.body))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		row(bytes.Clone(lines.Bytes()))
	}
	require.NoError(s.t, lines.Err())
}

// askRows reads the rows of a statement into structs.
func askRows[T any](s *server, sql string) (rows []T) {
	s.t.Helper()
	s.ask(sql, func(raw []byte) {
		var row T
		require.NoError(s.t, json.Unmarshal(raw, &row), "%.500s", raw)
		rows = append(rows, row)
	})
	return rows
}

// sqlTrajectories: the view is what a learner gets, row by row. It looks at all
// harnesses, or at some.
func sqlTrajectories(s *server, policy string, harnesses ...string) {
	s.t.Helper()
	query, where := policy, ""
	if len(harnesses) > 0 {
		query += "&harness=" + strings.Join(harnesses, "&harness=")
		where = " AND harness IN ('" + strings.Join(harnesses, "', '") + "')"
	}
	want, _ := s.exportLines(strings.TrimPrefix(query, "&"))
	byID := func(a, b exported) int { return strings.Compare(a.TrajectoryID, b.TrajectoryID) }
	slices.SortFunc(want, byID)
	name := "strict_tree"
	if len(want) > 0 {
		name = want[0].MergePolicy
	}
	got := askRows[exported](s, `SELECT * FROM trajectories WHERE merge_policy = '`+name+`'`+where+` ORDER BY trajectory_id`)
	require.Len(s.t, got, len(want), name)
	spans := map[string][]span{}
	type flat struct {
		span
		TrajectoryID string `json:"trajectory_id"`
	}
	for _, f := range askRows[flat](s, `SELECT s.* FROM trajectory_spans s WHERE merge_policy = '`+name+`' ORDER BY trajectory_id, start`) {
		spans[f.TrajectoryID] = append(spans[f.TrajectoryID], f.span)
	}
	for i, g := range got {
		w := want[i]
		require.Equal(s.t, w.TrajectoryID, g.TrajectoryID)
		require.Equal(s.t, w.TokenIDs, g.TokenIDs)
		require.Equal(s.t, w.LossMask, g.LossMask)
		require.Equal(s.t, w.Logprobs.bits(), g.Logprobs.bits())
		require.Equal(s.t, w.Spans, g.Spans)
		require.ElementsMatch(s.t, w.Spans, spans[g.TrajectoryID])
		for _, x := range []*exported{&w, &g} { // compared above, or not a column of the view
			x.trajectory = trajectory{Rewritten: x.Rewritten}
			x.PromptLength, x.RolloutTrajectories, x.RolloutTrainedTokens = 0, 0, 0
			x.IsLast, x.LogprobsComplete, x.Truncated = false, false, false
		}
		require.Equal(s.t, w, g)
	}
}

// sqlTraces: the view gives the traces that where selects as they were sent.
func sqlTraces(s *server, calls map[string]call, where string, n int) {
	s.t.Helper()
	type row struct {
		TraceID   string    `json:"trace_id"`
		Prompt    []int32   `json:"prompt_token_ids"`
		Response  []int32   `json:"response_token_ids"`
		Logprobs  *logprobs `json:"response_logprobs"`
		PromptLen *int      `json:"prompt_length"`
		RespLen   *int      `json:"response_length"`
		Hash      *string   `json:"prompt_hash"`
	}
	rows := askRows[row](s, `SELECT * FROM traces WHERE `+where)
	require.Len(s.t, rows, n)
	for _, r := range rows {
		c, ok := calls[r.TraceID]
		require.True(s.t, ok, r.TraceID)
		same := func(field string, got []int32, length *int) {
			want, known := c[field].([]int32)
			require.Equal(s.t, known && want != nil, length != nil, "%s of %s", field, r.TraceID)
			if length == nil {
				require.Nil(s.t, got)
				return
			}
			require.Equal(s.t, len(want), *length)
			require.True(s.t, slices.Equal(want, got) && got != nil, "%s of %s", field, r.TraceID)
		}
		same("prompt_token_ids", r.Prompt, r.PromptLen)
		same("response_token_ids", r.Response, r.RespLen)
		if r.Hash != nil {
			require.Equal(s.t, hash(c.ids("prompt_token_ids")), *r.Hash)
		}
		want, _ := c["response_logprobs"].(logprobs)
		require.Equal(s.t, want != nil, r.Logprobs != nil, r.TraceID)
		if want != nil {
			require.Equal(s.t, want.bits(), r.Logprobs.bits(), r.TraceID)
		}
	}
}

func TestSQLSeesWhatLearnersGet(t *testing.T) {
	t.Parallel()
	s := start(t)
	calls := varied(s)
	for _, policy := range []string{"", "policy=per_request", polar(9), "policy=polar_compat"} {
		sqlTrajectories(s, policy)
	}
	sqlTraces(s, calls, "true", len(calls))
}

func TestSQLOverCaptures(t *testing.T) {
	t.Parallel()
	c, err := captured()
	require.NoError(t, err)
	s := start(t)
	_, _, err = command(t, nil, "import", "--quiet", "--server", s.url, capturesDir)
	require.NoError(t, err)
	// All of it would be some ten million tokens as JSON, under the race detector.
	sqlTrajectories(s, "", "pi", "qwen-code")
	sqlTrajectories(s, "policy=per_request", "pi")
	sqlTrajectories(s, polar(151645), "claude-code", "pi")
	some := 0
	for id := range c.byID {
		if strings.HasSuffix(id, "3") {
			some++
		}
	}
	sqlTraces(s, c.byID, "trace_id LIKE '%3'", some)

	for _, policy := range []string{"strict_tree", "per_request"} { // merges all that is not merged
		s.get("/v1/analytics/summary?policy=" + policy).is(200)
	}
	type count struct {
		N int `json:"n"`
	}
	for sql, want := range map[string]int{
		`SELECT count(*) AS n FROM traces`:             598,
		`SELECT sum(response_length) AS n FROM traces`: 48557,
		`SELECT count(*) AS n FROM dispositions WHERE merge_policy = 'strict_tree' AND disposition = 'trained'`:         579,
		`SELECT count(*) AS n FROM dispositions WHERE merge_policy = 'strict_tree' AND disposition <> 'trained'`:        19,
		`SELECT count(*) AS n FROM trajectories WHERE merge_policy = 'strict_tree'`:                                     352,
		`SELECT count(*) AS n FROM boundaries WHERE merge_policy = 'strict_tree' AND kind = 'first'`:                    34,
		`SELECT count(*) AS n FROM rollouts WHERE complete`:                                                             34,
		`SELECT count(*) AS n FROM rewards`:                                                                             34,
		`SELECT sum(kept_tokens) AS n FROM rollouts`:                                                                    keptTokens(c),
		`SELECT count(*) AS n FROM traces t JOIN v1.dispositions d USING (trace_id) WHERE merge_policy = 'per_request'`: 598,
	} {
		require.Equal(t, []count{{want}}, askRows[count](s, sql), sql)
	}
}

// keptTokens counts the ids that differ from those of all earlier calls of the
// rollout at the same place: what tapes have to hold.
func keptTokens(c *captures) (n int) {
	seen := map[string][][]int32{}
	for _, one := range c.calls {
		whole, longest := one.whole(), 0
		for _, before := range seen[one.text("rollout_id")] {
			shared := 0
			for shared < min(len(before), len(whole)) && before[shared] == whole[shared] {
				shared++
			}
			longest = max(longest, shared)
		}
		n += len(whole) - longest
		seen[one.text("rollout_id")] = append(seen[one.text("rollout_id")], whole)
	}
	return n
}
