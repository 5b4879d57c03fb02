package apptest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// statements are the SQL of docs/analytics.md, by the heading above each.
func statements(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "analytics.md"))
	require.NoError(t, err)
	out := map[string]string{}
	for section := range strings.SplitSeq(string(page), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		if _, text, ok := strings.Cut(text, "```sql\n"); ok {
			out[strings.ToLower(title)], _, _ = strings.Cut(text, "```")
		}
	}
	require.Len(t, out, 4)
	return out
}

// analyse sends a statement as an analyst would, and gives its rows by column.
func (s *server) analyse(sql string, params ...any) (rows []object) {
	s.t.Helper()
	var a struct {
		Columns []struct{ Name string }
		Rows    [][]any
	}
	raw := s.post("/v1/sql", object{"sql": sql, "params": params}).is(200).body
	require.NoError(s.t, json.Unmarshal(raw, &a))
	for _, r := range a.Rows {
		row := object{}
		for i, c := range a.Columns {
			row[c.Name] = r[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// at reads a place in JSON, as rollouts.count.
func at(t *testing.T, v any, place string) any {
	t.Helper()
	for name := range strings.SplitSeq(place, ".") {
		o, ok := v.(map[string]any)
		require.True(t, ok, "%s: %v", place, v)
		require.Contains(t, o, name, place)
		v = o[name]
	}
	return v
}

// agree demands that columns of a row are what an endpoint says at their places.
func agree(t *testing.T, row object, answer any, places map[string]string) {
	t.Helper()
	for column, place := range places {
		require.Contains(t, row, column)
		held(t, column, row[column], at(t, answer, place))
	}
}

// The statements of the page, sent to POST /v1/sql, give what the endpoints
// give.
func TestAnalyticsAreSQL(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.playSmall()
	for i, v := range []*float64{ptr(1.0), ptr(0.0), ptr(0.0), ptr(1.0)} {
		r := attributed("x"+itoa(i), "alpha", "t9", int64(4+i), v)
		r.attrs = object{"split": []string{"train", "eval"}[i%2]}
		s.play(r)
	}
	sql := statements(t)
	get := func(path string) (v map[string]any) {
		require.NoError(t, json.Unmarshal(s.get(path).is(200).body, &v))
		return v
	}
	list := func(v map[string]any, name string) []any { return v[name].([]any) }

	// The endpoint first: it waits until everything is merged.
	answer := get("/v1/analytics/summary?by=harness,split&k=1,2&model=m")
	rows := s.analyse(sql["summary"], `["harness","split"]`, nil, "strict_tree", 1, "[1,2]", nil, nil, `["m"]`, nil, nil, nil, nil, nil, nil, nil, 100)
	require.Len(t, rows, 1+len(list(answer, "rows")))
	for i, row := range rows {
		want := answer["total"]
		if i > 0 {
			want = list(answer, "rows")[i-1]
			require.Equal(t, at(t, want, "keys.harness"), at(t, row, "keys.harness"))
		}
		agree(t, row, want, map[string]string{"rollouts": "rollouts.count", "open": "rollouts.open", "succeeded": "rollouts.succeeded",
			"incomplete": "rollouts.incomplete", "reopened": "rollouts.reopened", "rewarded": "reward.count", "solved": "solve_rate.solved",
			"reward_mean": "reward.mean", "reward_std": "reward.std", "sent_tokens": "tokens.sent", "kept_tokens": "tokens.kept",
			"sampled_tokens": "tokens.sampled", "trained_tokens": "tokens.trained", "groups": "groups.count",
			"groups_zero_advantage": "groups.zero_advantage", "calls": "calls.count", "trajectories": "trajectories.count",
			"tokens_per_second": "latency.tokens_per_second", "stale_mean": "staleness.mean", "current_version": "staleness.current_version"})
	}

	answer = get("/v1/analytics/uplift?base=-4&against=5-")
	rows = s.analyse(sql["uplift"], `["harness"]`, 1, nil, 4, 5, nil, nil, nil, nil, nil, nil, nil, nil, 100)
	require.Len(t, rows, len(list(answer, "rows")))
	for i, row := range rows {
		agree(t, row, list(answer, "rows")[i], map[string]string{"tasks": "tasks", "points_mean": "solve_rate_points.difference",
			"points_std": "solve_rate_points.std", "gain_mean": "reward.difference", "base_rollouts": "base.rollouts",
			"rollouts_mixed": "dropped.rollouts_mixed", "tasks_only_in_base": "dropped.tasks_only_in_base"})
	}

	answer = get("/v1/analytics/splits")
	rows = s.analyse(sql["splits"], `["harness"]`, 1, nil, nil, nil, nil, nil, nil, nil, nil, 100)
	require.Len(t, rows, 1+len(list(answer, "rows")))
	agree(t, rows[0], answer["total"], map[string]string{"pairs": "compared", "points_mean": "solve_rate_points.difference", "only_in_train": "only_in_train"})
	for i, row := range rows[1:] {
		agree(t, row, list(answer, "rows")[i], map[string]string{"train_rewarded": "train.reward.count", "eval_reward_mean": "eval.reward.mean",
			"points_mean": "gap.solve_rate_points", "gap_mean": "gap.reward"})
	}

	answer = get("/v1/groups?harness=alpha")
	rows = s.analyse(sql["groups"], nil, nil, nil, `["alpha"]`, nil, nil, nil, nil, nil, 100)
	require.Len(t, rows, len(list(answer, "groups")))
	for i, row := range rows {
		require.EqualValues(t, answer["total"], row["total"])
		agree(t, row, list(answer, "groups")[i], map[string]string{"group_id": "group_id", "rewarded": "rewarded", "reward_mean": "reward_mean",
			"complete": "complete", "zero_advantage": "zero_advantage", "harnesses": "harnesses"})
	}
}
