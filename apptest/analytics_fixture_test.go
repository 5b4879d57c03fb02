package apptest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// scripted is a rollout in the making.
type scripted struct {
	id    string
	attrs object
	calls []call
	// reward is its outcome; nil: none.
	reward *float64
	// status ends it; "": it is not finished.
	status string
}

// play sends runs: attributes and calls, then the ends and the rewards, each
// kind in one request where the API allows it.
func (s *server) play(runs ...scripted) {
	s.t.Helper()
	var calls []call
	var rewards []object
	for _, r := range runs {
		if r.attrs != nil {
			s.put(path("rollouts", r.id), r.attrs).is(200)
		}
		calls = append(calls, r.calls...)
		if r.reward != nil {
			rewards = append(rewards, object{"reward_id": "w/" + r.id, "rollout_id": r.id, "value": *r.reward})
		}
	}
	if len(calls) > 0 {
		s.traces(calls...).all("stored", len(calls))
	}
	for _, r := range runs {
		if r.status != "" {
			s.post(path("rollouts", r.id, "finish"), object{"status": r.status}).is(200)
		}
	}
	if len(rewards) > 0 {
		s.post("/v1/rewards", rewards).all("stored", len(rewards))
	}
}

// attributed is a rollout that its only call says everything about: one request
// makes many of them.
func attributed(id, harness, task string, version int64, reward *float64) scripted {
	c := plain(id, id+"/1", 1, ids(1), ids(2, 3)).with("harness", harness, "policy_version", version)
	if task != "" {
		c = c.with("task_id", task)
	}
	return scripted{id: id, calls: []call{c}, reward: reward}
}

// anyRuns makes rollouts of two harnesses, whose model is the given one.
func anyRuns(model string) *rapid.Generator[[]scripted] {
	return rapid.Custom(func(t *rapid.T) []scripted {
		var runs []scripted
		for i := range rapid.IntRange(1, 9).Draw(t, "rollouts") {
			r := scripted{id: fmt.Sprintf("%s-r%d", model, i), attrs: object{"model": model}}
			r.attrs["harness"] = rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "harness")
			if g := rapid.IntRange(0, 3).Draw(t, "group"); g > 0 {
				r.attrs["group_id"] = fmt.Sprintf("%s-g%d", model, g)
			}
			if rapid.Bool().Draw(t, "sized") {
				r.attrs["group_size"] = rapid.IntRange(1, 4).Draw(t, "group size")
			}
			r.status = rapid.SampledFrom([]string{"", "succeeded", "failed", "timeout", "error", "cancelled"}).Draw(t, "status")
			if rapid.IntRange(0, 4).Draw(t, "rewarded") > 0 {
				r.reward = ptr(rapid.SampledFrom([]float64{0, 1, 0.5, -1, 2}).Draw(t, "reward"))
			}
			history := ids(1)
			for c := range rapid.IntRange(0, 4).Draw(t, "calls") {
				response := rapid.SliceOfN(rapid.Int32Range(1, 3), 0, 4).Draw(t, "response")
				call := plain(r.id, fmt.Sprintf("%s/%d", r.id, c), int64(c), slices.Clone(history), ids(response...))
				call["status"] = rapid.SampledFrom([]string{"ok", "ok", "ok", "aborted"}).Draw(t, "call status")
				if rapid.Bool().Draw(t, "versioned") {
					call["policy_version"] = rapid.Int64Range(0, 9).Draw(t, "version")
				}
				if rapid.Bool().Draw(t, "timed") {
					at := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
					call["started_at"] = at.Format(time.RFC3339Nano)
					call["finished_at"] = at.Add(time.Duration(rapid.IntRange(-500, 5000).Draw(t, "ms")) * time.Millisecond).Format(time.RFC3339Nano)
				}
				if rapid.IntRange(0, 3).Draw(t, "bare") == 0 {
					delete(call, "response_logprobs")
				}
				r.calls = append(r.calls, call)
				switch rapid.IntRange(0, 3).Draw(t, "next") {
				case 0: // the same prompt again
				case 1:
					history = ids(rapid.Int32Range(1, 2).Draw(t, "fresh"))
				default:
					history = slices.Concat(history, response, ids(9))
				}
			}
			runs = append(runs, r)
		}
		return runs
	})
}

// holds demands that got has all that want, a JSON text, has: of an object its
// fields, numbers to nine digits, everything else exactly.
func holds(t testing.TB, want string, got any) {
	t.Helper()
	var w, g any
	require.NoError(t, json.Unmarshal([]byte(want), &w), want)
	require.NoError(t, json.Unmarshal(encode(got), &g))
	held(t, "", w, g)
}

func held(t testing.TB, at string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		require.True(t, ok, "%s: got %v", at, got)
		for name, v := range want {
			require.Contains(t, g, name, at)
			held(t, at+"/"+name, v, g[name])
		}
	case []any:
		g, ok := got.([]any)
		require.True(t, ok && len(g) == len(want), "%s: want %v, got %v", at, want, got)
		for i, v := range want {
			held(t, at+"/"+itoa(i), v, g[i])
		}
	case float64:
		g, ok := got.(float64)
		require.True(t, ok, "%s: want %v, got %v", at, want, got)
		require.InDelta(t, want, g, 1e-9*math.Max(1, math.Abs(want)), at)
	default:
		require.Equal(t, want, got, at)
	}
}
