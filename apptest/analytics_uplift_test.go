package apptest

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// outcomes are the tasks that a harness solved before and after training, of
// tasks 0 to 499 as many as SWE-bench Verified has.
type outcomes struct {
	harness       string
	before, after [2]int // from, to
}

// paper has the gains that the Polar paper reports (arXiv:2605.24220): +22.6,
// +4.8, +0.6 and +6.2 points. Codex goes from 3.8 % to 26.4 %, as it did there;
// where the others began, and which tasks were solved, is made up.
var paper = []outcomes{
	{"codex", [2]int{0, 19}, [2]int{10, 142}},        // 19, 132: +113 of 500
	{"claude-code", [2]int{0, 150}, [2]int{50, 224}}, // 150, 174: +24
	{"qwen-code", [2]int{0, 200}, [2]int{100, 303}},  // 200, 203: +3
	{"pi", [2]int{100, 170}, [2]int{100, 201}},       // 70, 101: +31
}

func (o outcomes) play(s *server) {
	const tasks = 500
	for version, solved := range [][2]int{o.before, o.after} {
		var runs []scripted
		for task := range tasks {
			reward := 0.0
			if solved[0] <= task && task < solved[1] {
				reward = 1
			}
			runs = append(runs, attributed(fmt.Sprintf("%s/%d/%d", o.harness, version, task), o.harness, fmt.Sprintf("swe-%d", task),
				int64(10*version), ptr(reward)))
		}
		s.play(runs...)
	}
}

type upliftRow struct {
	Keys      object
	Tasks     int
	Improved  int
	Worsened  int
	SolveRate struct {
		Difference *float64
		Interval   *[2]float64
	} `json:"solve_rate_points"`
}

func (s *server) uplift(query string) (rows []upliftRow) {
	s.t.Helper()
	var a struct {
		Rows []upliftRow
	}
	s.get("/v1/analytics/uplift?" + query).is(200).into(&a)
	return a.Rows
}

// The paper's gains come out to the digit.
func TestUpliftOfThePaper(t *testing.T) {
	t.Parallel()
	s := start(t)
	want := map[string]float64{"codex": 22.6, "claude-code": 4.8, "qwen-code": 0.6, "pi": 6.2}
	for _, o := range paper {
		o.play(s)
	}
	rows := s.uplift("base=0-9&against=10-19")
	require.Len(t, rows, len(paper))
	for _, r := range rows {
		harness := r.Keys["harness"].(string)
		require.Equal(t, want[harness], *r.SolveRate.Difference, harness)
		require.Equal(t, 500, r.Tasks)
		// Each task counts +1, 0 or -1: with p of the first and m of the last the
		// variance is (p + m - (p-m)²/500) / 499. Student's t with 499 degrees is 1.964729.
		p, m := float64(r.Improved), float64(r.Worsened)
		half := 100 * 1.964729 * math.Sqrt((p+m-(p-m)*(p-m)/500)/499/500)
		require.InDelta(t, want[harness]-half, r.SolveRate.Interval[0], 1e-4)
		require.InDelta(t, want[harness]+half, r.SolveRate.Interval[1], 1e-4)
	}
	// Sorted by harness: claude-code lost tasks 0 to 49 and gained 150 to 223.
	require.Equal(t, []int{74, 50}, []int{rows[0].Improved, rows[0].Worsened})

	out, _, err := command(t, nil, "report", "--server", s.url, "--base=-9", "--against=10-")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^claude-code +500 +30\.0 +34\.8 +\+4\.8 \[\+0\.4, \+9\.2\] +74 +50 +0$`, out)
	require.Regexp(t, `(?m)^codex +500 +3\.8 +26\.4 +\+22\.6 \[\+18\.5, \+26\.7\] +123 +10 +0$`, out)
	require.Regexp(t, `(?m)^pi +500 +14\.0 +20\.2 +\+6\.2 \[`, out)
	require.Regexp(t, `(?m)^qwen-code +500 +40\.0 +40\.6 +\+0\.6 \[-`, out)
}

// Every task counts alike, however many rollouts it has; what is left out is
// counted by why.
func TestUpliftByHand(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := 0
	add := func(task string, version int64, reward *float64) {
		n++
		s.play(attributed(fmt.Sprintf("r%d", n), "h", task, version, reward))
	}
	yes, no := ptr(1.0), ptr(0.0)
	// A: ½ against 1. B: 0 against ⅓.
	add("A", 1, yes)
	add("A", 2, no)
	add("A", 2, nil) // no reward is no zero
	add("A", 3, yes)
	add("B", 1, no)
	add("B", 3, no)
	add("B", 3, no)
	add("B", 4, yes)
	add("C", 1, yes) // only in base
	add("D", 4, yes) // only in against
	add("D", 4, yes)
	add("E", 1, yes) // not scored in against
	add("E", 3, nil)
	add("F", 9, yes) // outside
	add("", 1, yes)
	s.traces(plain("mixed", "mixed/1", 1, ids(1), ids(2)).with("harness", "h", "task_id", "A", "policy_version", int64(2)),
		plain("mixed", "mixed/2", 2, ids(1, 2), ids(2)).with("policy_version", int64(3)),
		plain("unversioned", "unversioned/1", 1, ids(1), ids(2)).with("harness", "h", "task_id", "A")).is(200)

	var a struct{ Rows []json.RawMessage }
	s.get("/v1/analytics/uplift?base=1-2&against=3-4").is(200).into(&a)
	require.Len(t, a.Rows, 1)
	// Differences 50 and 33⅓ points: mean 41⅔, std 16⅔/√2 = 11.7851; with two tasks
	// t = 12.70620, half 12.70620·11.7851/√2 = 105.885. The reward's are the same in units of 1.
	holds(t, `{"keys": {"harness": "h"}, "tasks": 2, "improved": 2, "worsened": 0,
	 "base": {"rollouts": 3, "solve_rate": 0.25, "reward": 0.25}, "against": {"rollouts": 4, "solve_rate": 0.6666666666666666, "reward": 0.6666666666666666},
	 "solve_rate_points": {"difference": 41.666666666666664, "std": 11.785113019775792}, "reward": {"difference": 0.41666666666666663},
	 "dropped": {"tasks_only_in_base": 1, "tasks_only_in_against": 1, "tasks_unrewarded": 1, "rollouts_mixed": 1, "rollouts_unversioned": 1,
	   "rollouts_without_task": 1, "rollouts_unrewarded": 2}}`, a.Rows[0])
	r := s.uplift("base=1-2&against=3-4")[0]
	require.InDelta(t, 41.6666667-105.885, r.SolveRate.Interval[0], 1e-3)
	require.InDelta(t, 41.6666667+105.885, r.SolveRate.Interval[1], 1e-3)
	// One task has no interval; open ends and single versions are ranges too.
	r = s.uplift("base=-2&against=3-&task_id=A")[0]
	require.Equal(t, 50.0, *r.SolveRate.Difference)
	require.Nil(t, r.SolveRate.Interval)
	require.Equal(t, 100.0, *s.uplift("base=2&against=3&task_id=A")[0].SolveRate.Difference)
	require.Empty(t, s.uplift("base=1&against=2&harness=none"))

	for query, field := range map[string]string{
		"": "base", "base=1": "against", "base=-&against=2": "base", "base=2-1&against=3": "base", "base=1-2&against=2-3": "against",
		"base=-5&against=4-": "against", "base=1&against=x": "against", "base=1-2-3&against=9": "base", "base=1&against=99999999999999999999": "against",
		"base=1&against=2&by=task_id": "by", "base=1&against=2&policy_version_min=1": "policy_version_min",
	} {
		require.Equal(t, field, s.get("/v1/analytics/uplift?"+query).problem(400, "invalid_parameter").Field, query)
	}
}

// A response that several versions sampled counts with all of them, whichever it
// was dispatched to: here a switch from 9 to 10 within one call.
func TestUpliftAndSummaryCountVersionSpans(t *testing.T) {
	t.Parallel()
	s := start(t)
	yes, no := ptr(1.0), ptr(0.0)
	s.play(attributed("before", "h", "A", 9, no), attributed("after", "h", "A", 10, yes))
	versions := func(starts ...int64) (list []object) {
		for i := 0; i < len(starts); i += 2 {
			list = append(list, object{"start": starts[i], "version": starts[i+1]})
		}
		return list
	}
	spanned := func(id string, dispatched int64, list []object) scripted {
		r := attributed(id, "h", "A", dispatched, yes)
		r.calls[0] = r.calls[0].with("policy_version_spans", list)
		return r
	}
	s.play(
		spanned("switched", 9, versions(0, 9, 1, 10)),
		spanned("late", 9, versions(0, 10)), // dispatched to 9, and 10 sampled all of it
		spanned("empty", 9, versions()))     // says nothing: the version at dispatch counts

	var a struct{ Rows []json.RawMessage }
	s.get("/v1/analytics/uplift?base=-9&against=10-").is(200).into(&a)
	require.Len(t, a.Rows, 1)
	// Base: before 0, empty 1. Against: after 1, late 1.
	holds(t, `{"tasks": 1, "base": {"rollouts": 2, "solve_rate": 0.5}, "against": {"rollouts": 2, "solve_rate": 1},
	 "dropped": {"rollouts_mixed": 1, "rollouts_unversioned": 0}}`, a.Rows[0])
	for query, n := range map[string]int{"policy_version_max=9": 2, "policy_version_min=10": 2, "policy_version_min=9&policy_version_max=10": 5} {
		var total struct{ Rollouts struct{ Count int } }
		require.NoError(t, json.Unmarshal(s.summary(query).Total, &total), query)
		require.Equal(t, n, total.Rollouts.Count, query)
	}

	type row struct {
		ID     string `json:"rollout_id"`
		V      int64  `json:"policy_version"`
		Oldest int64  `json:"policy_version_min"`
		Newest int64  `json:"policy_version_max"`
	}
	require.Equal(t, []row{{"after", 10, 10, 10}, {"before", 9, 9, 9}, {"empty", 9, 9, 9}, {"late", 10, 10, 10}, {"switched", 10, 9, 10}},
		askRows[row](s, `SELECT rollout_id, policy_version, policy_version_min, policy_version_max FROM rollouts ORDER BY rollout_id`))
	s.exportLines("")
	// Trajectories have it the same way.
	require.Empty(t, askRows[row](s, `SELECT r.rollout_id FROM rollouts r JOIN trajectories t USING (rollout_id)
		WHERE (r.policy_version_min, r.policy_version_max) IS DISTINCT FROM (t.policy_version_min, t.policy_version_max)`))
}

// Training and evaluation of the same tasks.
func TestSplitsByHand(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := 0
	add := func(task, split string, reward *float64) {
		n++
		r := attributed(fmt.Sprintf("r%d", n), "h", task, 1, reward)
		r.attrs = object{"split": split}
		s.play(r)
	}
	yes, no := ptr(1.0), ptr(0.0)
	for _, r := range []*float64{yes, yes, no, no} {
		add("T", "train", r)
	}
	add("T", "eval", no)
	add("T", "eval", no)
	add("U", "train", yes)
	add("U", "eval", yes)
	add("V", "train", yes)
	add("V", "eval", nil)
	add("W", "train", yes) // in one split only
	add("X", "eval", yes)
	add("X", "eval", yes)
	var a struct {
		Total    json.RawMessage
		Rows     []json.RawMessage
		RowCount int `json:"row_count"`
	}
	s.get("/v1/analytics/splits").is(200).into(&a)
	require.Equal(t, 3, a.RowCount)
	require.Len(t, a.Rows, 3)
	// T: 2 of 4 against 0 of 2. Wilson: [.1500, .8500] and [0, .6576]; Newcombe:
	// .5 - √(.3500² + .6576²) = -.2450, .5 + √(.3500² + 0²) = .8500. The rewards' std
	// is √⅓ and 0; Welch has the first's three degrees: .5 ± 3.182446·√⅓/2 = .918693.
	holds(t, `{"keys": {"task_id": "T", "harness": "h"},
	 "train": {"rollouts": 4, "reward": {"count": 4, "mean": 0.5, "std": 0.5773502691896257}, "solve_rate": {"solved": 2, "count": 4, "rate": 0.5}},
	 "eval": {"rollouts": 2, "reward": {"count": 2, "mean": 0, "std": 0, "interval": [0, 0]}, "solve_rate": {"solved": 0, "count": 2, "rate": 0}},
	 "gap": {"solve_rate_points": 50, "reward": 0.5}}`, a.Rows[0])
	var gap struct {
		Gap struct {
			Points [2]float64 `json:"solve_rate_interval"`
			Reward [2]float64 `json:"reward_interval"`
		}
	}
	require.NoError(t, json.Unmarshal(a.Rows[0], &gap))
	require.InDeltaSlice(t, []float64{-24.50, 85.00}, gap.Gap.Points[:], 0.01)
	require.InDeltaSlice(t, []float64{0.5 - 0.918693, 0.5 + 0.918693}, gap.Gap.Reward[:], 1e-6)
	holds(t, `{"keys": {"task_id": "U"}, "gap": {"solve_rate_points": 0, "reward": 0, "reward_interval": null}}`, a.Rows[1])
	holds(t, `{"keys": {"task_id": "V"}, "eval": {"rollouts": 1, "reward": {"count": 0, "mean": null}, "solve_rate": {"rate": null}},
	 "gap": {"solve_rate_points": null, "solve_rate_interval": null, "reward": null, "reward_interval": null}}`, a.Rows[2])
	// T and U: 50 and 0 points.
	holds(t, `{"compared": 2, "solve_rate_points": {"difference": 25, "std": 35.35533905932738}, "reward": {"difference": 0.25}, "only_in_train": 1, "only_in_eval": 1}`, a.Total)
	s.get("/v1/analytics/splits?by=task_id&limit=1&task_id=T").is(200).into(&a)
	holds(t, `{"keys": {"task_id": "T"}}`, a.Rows[0])
	for _, query := range []string{"by=split", "split=train", "limit=0"} {
		s.get("/v1/analytics/splits?"+query).problem(400, "invalid_parameter")
	}
}
