package apptest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type mismatchAnswer struct {
	Total     json.RawMessage
	Rows      []json.RawMessage
	RowCount  int  `json:"row_count"`
	Truncated bool `json:"truncated"`
	Worst     struct {
		ByK3   []object `json:"trajectories_by_k3"`
		ByAbs  []object `json:"trajectories_by_abs"`
		Tokens []struct {
			TrajectoryID     string `json:"trajectory_id"`
			TraceID          string `json:"trace_id"`
			Position         int
			TokenID          int32  `json:"token_id"`
			LogRatio         any    `json:"log_ratio"`
			Behaviour        any    `json:"behaviour_logprob"`
			Learner          any    `json:"learner_logprob"`
			LearnerVersion   int64  `json:"learner_version"`
			PolicyVersion    *int64 `json:"policy_version"`
			ResponsePosition int    `json:"response_position"`
		}
	}
	Warnings []string
}

func (s *server) mismatch(query string) (a mismatchAnswer) {
	s.t.Helper()
	s.get("/v1/analytics/mismatch?" + query).is(200).into(&a)
	return a
}

// anyLogprob draws what an engine or a learner may say.
func anyLogprob(r *rand.Rand, near *float32) *float32 {
	switch r.IntN(30) {
	case 0:
		return nil
	case 1:
		return ptr(float32(math.NaN()))
	case 2:
		return ptr(float32(math.Inf(-1)))
	case 3:
		return ptr(float32(-100 * r.Float64()))
	case 4:
		return ptr[float32](0)
	}
	if nan(near) || math.IsInf(float64(*near), 0) {
		return ptr(float32(-3 * r.ExpFloat64()))
	}
	return ptr(min(0, *near+float32(r.NormFloat64()/3)))
}

// anyLearned plays rollouts of two harnesses and posts what up to three versions
// of a learner say of most of their rows.
func (s *server) anyLearned(r *rand.Rand, model string) ([]exported, map[string]call, map[string]map[int64]logprobs) {
	s.t.Helper()
	calls := map[string]call{}
	var runs []scripted
	for i := range 6 {
		id := fmt.Sprintf("%s-%d", model, i)
		run := scripted{id: id, attrs: object{"model": model, "harness": []string{"h1", "h2"}[r.IntN(2)], "task_id": fmt.Sprintf("t%d", r.IntN(3))}}
		history := ids(1)
		for k := range 1 + r.IntN(4) {
			c := plain(id, fmt.Sprintf("%s/%d", id, k), int64(k), slices.Clone(history), make([]int32, 1+r.IntN(15)))
			l := logprobs{}
			for j := range c.ids("response_token_ids") {
				c.ids("response_token_ids")[j] = r.Int32N(50)
				l = append(l, anyLogprob(r, nil))
			}
			c["response_logprobs"] = l
			switch r.IntN(5) {
			case 0:
				delete(c, "response_logprobs")
			case 1:
				c["sampling"] = json.RawMessage(`{"temperature":0.6,"logprobs_mode":"raw"}`)
			}
			if r.IntN(3) > 0 {
				c["policy_version"] = r.Int64N(9)
			}
			if n := int64(len(l)); n > 1 && r.IntN(3) == 0 {
				c["policy_version_spans"] = []object{{"start": int64(0), "version": r.Int64N(5)}, {"start": 1 + r.Int64N(n-1), "version": 5 + r.Int64N(5)}}
			}
			calls[c.text("trace_id")] = c
			run.calls = append(run.calls, c)
			if r.IntN(4) > 0 {
				history = append(c.whole(), 3)
			}
		}
		runs = append(runs, run)
	}
	s.play(runs...)
	rows := s.export("model=" + model).rows
	posted := map[string]map[int64]logprobs{}
	var ls []learned
	for i := range rows {
		posted[rows[i].TrajectoryID] = map[int64]logprobs{}
		for _, version := range []int64{9, 10, 11}[:r.IntN(4)] {
			values := logprobs{}
			for _, b := range rows[i].Logprobs {
				values = append(values, anyLogprob(r, b))
			}
			posted[rows[i].TrajectoryID][version] = values
			ls = append(ls, learned{rows[i].TrajectoryID, version, values})
		}
	}
	if len(ls) > 0 {
		s.learn(ls...).all("stored", len(ls))
	}
	return rows, calls, posted
}

// The answer is what computing every metric from the raw rows gives, whatever the
// keys.
func TestMismatchRecounted(t *testing.T) {
	t.Parallel()
	s := start(t)
	holds(t, string(encode(measured(nil))), s.mismatch("").Total)
	keys := map[string]func(p *compared) any{
		"harness":         func(p *compared) any { return *p.row.Harness },
		"task_id":         func(p *compared) any { return *p.row.TaskID },
		"decile":          func(p *compared) any { return 10 * p.place / p.length },
		"learner_version": func(p *compared) any { return *p.learner },
		"merge_policy":    func(*compared) any { return "strict_tree" },
		"policy_version": func(p *compared) any {
			if p.version == nil {
				return nil
			}
			return *p.version
		},
	}
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 3))
		model := fmt.Sprintf("m%d", seed)
		ps := pairs(func() (map[string]call, []exported, map[string]map[int64]logprobs) {
			rows, calls, posted := s.anyLearned(r, model)
			return calls, rows, posted
		}())
		for name, key := range keys {
			a := s.mismatch("by=" + name + "&worst=0&model=" + model)
			holds(t, string(encode(measured(ps))), a.Total)
			cells := map[string][]compared{}
			for i := range ps {
				k := string(encode(object{name: key(&ps[i])}))
				cells[k] = append(cells[k], ps[i])
			}
			require.Len(t, a.Rows, len(cells), name)
			for _, raw := range a.Rows {
				var row struct{ Keys json.RawMessage }
				require.NoError(t, json.Unmarshal(raw, &row))
				var k object
				require.NoError(t, json.Unmarshal(row.Keys, &k))
				cell, ok := cells[string(encode(k))]
				require.True(t, ok, "%s", row.Keys)
				holds(t, string(encode(measured(cell))), raw)
			}
		}
		s.sameWorst(t, ps, model)
	}
}

// sameWorst holds the worst tokens and trajectories against sorting all of them.
func (s *server) sameWorst(t *testing.T, ps []compared, model string) {
	t.Helper()
	const n = 7
	a := s.mismatch("worst=7&model=" + url.QueryEscape(model))
	size := func(p *compared) float64 {
		if nan(p.b) || nan(p.l) {
			return math.NaN()
		}
		return math.Abs(float64(*p.l) - float64(*p.b))
	}
	var all []compared
	byRow := map[string][]compared{}
	for i := range ps {
		if v := size(&ps[i]); v == v {
			all = append(all, ps[i])
		}
		if _, ok := ps[i].d(); ok {
			k := fmt.Sprint(ps[i].row.TrajectoryID, " ", *ps[i].learner)
			byRow[k] = append(byRow[k], ps[i])
		}
	}
	slices.SortFunc(all, func(x, y compared) int { return -cmp.Compare(size(&x), size(&y)) })
	require.Len(t, a.Worst.Tokens, min(n, len(all)))
	for i, got := range a.Worst.Tokens {
		at := slices.IndexFunc(all, func(p compared) bool {
			return p.row.TrajectoryID == got.TrajectoryID && *p.learner == got.LearnerVersion && p.position == got.Position
		})
		require.GreaterOrEqual(t, at, 0)
		require.Equal(t, size(&all[i]), size(&all[at]), "as bad as the token of this rank")
		require.Equal(t, []any{all[at].trace, all[at].id, all[at].place, all[at].version}, []any{got.TraceID, got.TokenID, got.ResponsePosition, got.PolicyVersion})
	}
	for metric, list := range map[string][]object{"k3": a.Worst.ByK3, "abs": a.Worst.ByAbs} {
		of := func(ps []compared) float64 {
			v := measured(ps)[metric]
			if o, ok := v.(object); ok {
				v = o["mean"]
			}
			return v.(float64)
		}
		var ranks []float64
		for _, row := range byRow {
			ranks = append(ranks, of(row))
		}
		slices.SortFunc(ranks, func(x, y float64) int { return -cmp.Compare(x, y) })
		require.Len(t, list, min(n, len(ranks)), metric)
		for i, got := range list {
			row := byRow[fmt.Sprint(got["trajectory_id"], " ", got["learner_version"])]
			require.InDelta(t, ranks[i], of(row), 1e-9*max(1, ranks[i]), metric)
			m := measured(row)
			holds(t, string(encode(object{"k3": m["k3"], "abs_mean": m["abs"].(object)["mean"], "abs_max": m["abs"].(object)["max"], "compared_tokens": len(row)})), got)
		}
	}
}
