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

// sqlTrajectories: the view is what a learner gets, row by row.
func sqlTrajectories(s *server, policy string) {
	s.t.Helper()
	want, _ := s.exportLines(policy)
	byID := func(a, b exported) int { return strings.Compare(a.TrajectoryID, b.TrajectoryID) }
	slices.SortFunc(want, byID)
	name := "strict_tree"
	if len(want) > 0 {
		name = want[0].MergePolicy
	}
	got := askRows[exported](s, `SELECT * FROM trajectories WHERE merge_policy = '`+name+`' ORDER BY trajectory_id`)
	require.Len(s.t, got, len(want), name)
	spans := map[string][]span{}
	type flat struct {
		span
		TrajectoryID string `json:"trajectory_id"`
	}
	for _, f := range askRows[flat](s, `SELECT * FROM trajectory_spans WHERE merge_policy = '`+name+`' ORDER BY trajectory_id, start`) {
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

// sqlTraces: the view gives every trace as it was sent.
func sqlTraces(s *server, calls map[string]call) {
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
	rows := askRows[row](s, `SELECT * FROM traces`)
	require.Len(s.t, rows, len(calls))
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
	sqlTraces(s, calls)
}

func TestSQLOverCaptures(t *testing.T) {
	t.Parallel()
	c, err := captured()
	require.NoError(t, err)
	s := start(t)
	_, _, err = command(t, nil, "import", "--quiet", "--server", s.url, capturesDir)
	require.NoError(t, err)
	for _, policy := range []string{"", "policy=per_request", polar(151645)} {
		sqlTrajectories(s, policy)
	}
	sqlTraces(s, c.byID)

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
