package apptest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// passed is pass@k by counting: the share of the k rollouts that one can choose
// among solved with a solved one among them.
func passed(solved []bool, k int) float64 {
	sets, hits := 0, 0
	for set := range 1 << len(solved) {
		n, hit := 0, false
		for i, s := range solved {
			if set>>i&1 == 1 {
				n++
				hit = hit || s
			}
		}
		if n == k {
			sets++
			if hit {
				hits++
			}
		}
	}
	return float64(hits) / float64(sets)
}

func mean(v []float64) any {
	if len(v) == 0 {
		return nil
	}
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// quantile lies between the two values that are nearest to place q of the way.
func quantile(v []float64, q float64) float64 {
	v = slices.Sorted(slices.Values(v))
	at := q * float64(len(v)-1)
	low := int(at)
	return v[low] + (at-float64(low))*(v[min(low+1, len(v)-1)]-v[low])
}

// recount makes a summary from the rollouts as they were sent, and from what GET
// /v1/rollouts/{id}/trajectories makes of each.
func (s *server) recount(runs []scripted, newest float64) object {
	var rewards, seconds, stale []float64
	status, dispositions, tokens, boundaries := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	groups := map[string][]float64{}
	sent, sampled, covered, trained, context, rows, merged, calls, failed, timedTokens, spent := 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0
	for _, r := range runs {
		status[r.status]++
		if g, ok := r.attrs["group_id"].(string); ok {
			groups[g] = slices.Clip(groups[g]) // also without a reward
			if r.reward != nil {
				groups[g] = append(groups[g], *r.reward)
			}
		}
		if r.reward != nil {
			rewards = append(rewards, *r.reward)
		}
		m := s.merged(r.id, "")
		versions, lengths := map[string]float64{}, map[string]int{}
		for _, c := range r.calls {
			calls++
			n := len(c.ids("response_token_ids"))
			sent += n + len(c.ids("prompt_token_ids"))
			sampled += n
			lengths[c.text("trace_id")] = n
			if c["response_logprobs"] != nil {
				covered += n
			}
			if c.text("status") != "ok" {
				failed++
			}
			if v, ok := c["policy_version"].(int64); ok {
				versions[c.text("trace_id")] = float64(v)
			}
			if from, err := time.Parse(time.RFC3339Nano, c.text("started_at")); err == nil {
				to, err := time.Parse(time.RFC3339Nano, c.text("finished_at"))
				require.NoError(s.t, err)
				if took := to.Sub(from).Seconds(); took >= 0 {
					seconds = append(seconds, took)
					spent += took
					if took > 0 {
						timedTokens += n
					}
				}
			}
		}
		for id, d := range m.Dispositions {
			dispositions[d]++
			tokens[d] += lengths[id]
		}
		for _, b := range m.Boundaries {
			boundaries[b.Kind]++
		}
		if len(m.Trajectories) > 0 {
			merged++
		}
		for _, row := range m.Trajectories {
			rows++
			oldest := math.Inf(1)
			for _, on := range row.LossMask {
				trained += int(on)
			}
			for _, span := range row.Spans {
				if v, ok := versions[span.TraceID]; ok {
					oldest = min(oldest, v)
				}
			}
			context += len(row.TokenIDs)
			if !math.IsInf(oldest, 1) {
				stale = append(stale, newest-oldest)
			}
		}
	}
	return s.recounted(object{
		"rollouts": object{"count": len(runs), "open": status[""], "succeeded": status["succeeded"], "failed": status["failed"],
			"timeout": status["timeout"], "error": status["error"], "cancelled": status["cancelled"], "incomplete": 0, "reopened": 0},
		"tokens": object{"sent": sent, "sampled": sampled, "trained": trained, "context": context - trained, "by_disposition": tokens},
		"calls": object{"count": calls, "failed": failed, "by_disposition": dispositions, "boundaries": boundaries,
			"retries": dispositions["abandoned_retry"] + dispositions["unresolved_retry"]},
		"trajectories":     object{"count": rows, "rollouts": merged, "per_rollout": ratio(rows, merged)},
		"logprob_coverage": ratio(covered, sampled),
	}, groups, rewards, seconds, stale, float64(timedTokens), spent)
}

// recounted adds what is computed from lists of numbers.
func (s *server) recounted(out object, groups map[string][]float64, rewards, seconds, stale []float64, tokens, spent float64) object {
	solved := 0
	for _, v := range rewards {
		if v >= 1 {
			solved++
		}
	}
	out["reward"] = object{"count": len(rewards), "mean": mean(rewards)}
	out["solve_rate"] = object{"solved": solved, "count": len(rewards), "rate": ratio(solved, len(rewards))}
	compared, alike := 0, 0
	passes := []object{}
	for _, k := range []int{1, 2, 3} {
		var values []float64
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			var hits []bool
			for _, v := range groups[name] {
				hits = append(hits, v >= 1)
			}
			if len(hits) >= k {
				values = append(values, passed(hits, k))
			}
		}
		passes = append(passes, object{"k": k, "value": mean(values), "groups": len(values)})
	}
	for _, g := range groups {
		if len(g) >= 2 {
			compared++
			if slices.Min(g) == slices.Max(g) {
				alike++
			}
		}
	}
	out["pass_at_k"] = passes
	out["groups"] = object{"count": len(groups), "compared": compared, "zero_advantage": alike, "zero_advantage_share": ratio(alike, compared)}
	latency := object{"calls": len(seconds), "seconds": nil, "first_token_seconds": nil, "tokens_per_second": nil}
	if len(seconds) > 0 {
		latency["seconds"] = object{"p50": quantile(seconds, 0.5), "p95": quantile(seconds, 0.95), "p99": quantile(seconds, 0.99)}
	}
	if spent > 0 {
		latency["tokens_per_second"] = tokens / spent
	}
	out["latency"] = latency
	staleness := object{"trajectories": len(stale), "mean": mean(stale), "p95": nil, "max": nil}
	if len(stale) > 0 {
		staleness["p95"], staleness["max"] = quantile(stale, 0.95), slices.Max(stale)
	}
	out["staleness"] = staleness
	return out
}

func ratio(a, b int) any {
	if b == 0 {
		return nil
	}
	return float64(a) / float64(b)
}

// A summary is what counting the rollouts one by one gives.
func TestSummaryRecounted(t *testing.T) {
	t.Parallel()
	s := start(t)
	for seed := range 12 {
		model := fmt.Sprintf("m%d", seed)
		runs := anyRuns(model).Example(seed)
		s.play(runs...)
		a := s.summary("by=harness&k=1,2,3&model=" + model + "&current_version=9")
		require.NotContains(t, string(a.Total), "NaN")
		const newest = 9
		byHarness := map[string][]scripted{}
		for _, r := range runs {
			h := r.attrs["harness"].(string)
			byHarness[h] = append(byHarness[h], r)
		}
		require.Equal(t, len(byHarness), a.RowCount)
		for i, h := range slices.Sorted(maps.Keys(byHarness)) {
			want := s.recount(byHarness[h], newest)
			want["keys"] = object{"harness": h}
			holds(t, string(encode(want)), a.Rows[i])
		}
		holds(t, string(encode(s.recount(runs, newest))), a.Total)
	}
}
