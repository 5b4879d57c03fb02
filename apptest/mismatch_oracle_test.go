package apptest

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// compared is a trained token as a test works it out.
type compared struct {
	row              *exported
	trace            string
	position, place  int
	id               int32
	b, l             *float32
	version, learner *int64
	comparable       bool
	length           int
}

// pairs lists the trained tokens of posted rows, from what was sent and what is
// exported.
func pairs(calls map[string]call, rows []exported, posted map[string]map[int64]logprobs) (out []compared) {
	for i := range rows {
		for version, values := range posted[rows[i].TrajectoryID] {
			for _, sp := range rows[i].Spans {
				if !sp.Trainable {
					continue
				}
				c := calls[sp.TraceID]
				for t := sp.Start; t < sp.End; t++ {
					p := compared{row: &rows[i], trace: sp.TraceID, position: t, place: t - sp.Start, id: rows[i].TokenIDs[t], b: rows[i].Logprobs[t],
						l: values[t], learner: ptr(version), length: sp.End - sp.Start, comparable: c["sampling"] == nil}
					if t == 0 {
						p.l = nil
					}
					if v, ok := c["policy_version"].(int64); ok {
						p.version = &v
					}
					spans, _ := c["policy_version_spans"].([]object)
					for _, v := range spans {
						if v["start"].(int64) <= int64(p.place) {
							p.version = ptr(v["version"].(int64))
						}
					}
					out = append(out, p)
				}
			}
		}
	}
	return out
}

func nan(v *float32) bool { return v == nil || *v != *v }

// d is the log-ratio; ok is false where there is nothing to compare.
func (p *compared) d() (d float64, ok bool) {
	if nan(p.b) || nan(p.l) {
		return 0, false
	}
	d = float64(*p.l) - float64(*p.b)
	return d, !math.IsInf(d, 0) && d == d
}

func clamp(v float64) float64 { return max(-20, min(20, v)) }

// measured computes every metric of some tokens in the plainest way.
func measured(ps []compared) object {
	var d, w, pb, pl, stale []float64
	missing, withoutB, withoutL, fair := 0, 0, 0, 0
	rows := map[string][]float64{}
	for i := range ps {
		p := &ps[i]
		key := fmt.Sprint(p.row.TrajectoryID, " ", *p.learner)
		rows[key] = slices.Clip(rows[key])
		if p.comparable {
			fair++
		}
		if nan(p.b) {
			withoutB++
		}
		if nan(p.l) {
			withoutL++
		}
		if nan(p.b) || nan(p.l) {
			missing++
		}
		if p.version != nil {
			stale = append(stale, float64(*p.learner-*p.version))
		}
		if v, ok := p.d(); ok {
			d, w = append(d, v), append(w, math.Exp(clamp(v)))
			pb, pl = append(pb, math.Exp(float64(*p.b))), append(pl, math.Exp(float64(*p.l)))
			rows[key] = append(rows[key], v)
		}
	}
	over := func(n int, f func(i int) float64) any {
		var v []float64
		for i := range n {
			v = append(v, f(i))
		}
		return mean(v)
	}
	most := func(n int, f func(i int) float64) any {
		if n == 0 {
			return nil
		}
		m := f(0)
		for i := range n {
			m = max(m, f(i))
		}
		return m
	}
	var logPPL, weight []float64
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if r := rows[key]; len(r) > 0 {
			sum := 0.0
			for _, v := range r {
				sum += v
			}
			logPPL, weight = append(logPPL, -sum/float64(len(r))), append(weight, math.Exp(clamp(sum)))
		}
	}
	effective := func(w []float64) any {
		if len(w) == 0 {
			return nil
		}
		m := mean(w).(float64)
		return 1 / over(len(w), func(i int) float64 { return w[i] / m * w[i] / m }).(float64)
	}
	outside := func(w []float64, lo, hi float64) any {
		return over(len(w), func(i int) float64 {
			if w[i] < lo || w[i] > hi {
				return 1
			}
			return 0
		})
	}
	less := func(v any) any {
		if v == nil {
			return nil
		}
		return v.(float64) - 1
	}
	gap := func(i int) float64 { return math.Abs(pl[i] - pb[i]) }
	return object{
		"trajectories": len(rows),
		"tokens": object{"trained": len(ps), "compared": len(d), "missing": missing, "without_behaviour": withoutB, "without_learner": withoutL,
			"not_finite": len(ps) - missing - len(d), "missing_share": ratio(missing, len(ps)), "comparable_share": ratio(fair, len(ps))},
		"k1":                    over(len(d), func(i int) float64 { return -d[i] }),
		"k2":                    over(len(d), func(i int) float64 { return d[i] * d[i] / 2 }),
		"k3":                    over(len(d), func(i int) float64 { return w[i] - d[i] - 1 }),
		"abs":                   object{"mean": over(len(d), func(i int) float64 { return math.Abs(d[i]) }), "max": most(len(d), func(i int) float64 { return math.Abs(d[i]) })},
		"probability":           object{"gap_mean": over(len(d), gap), "gap_max": most(len(d), gap), "pearson": pearson(pl, pb)},
		"multiplicative_error":  over(len(d), func(i int) float64 { return math.Exp(min(20, math.Abs(d[i]))) }),
		"perplexity":            object{"log_difference": mean(logPPL), "ratio": over(len(logPPL), func(i int) float64 { return math.Exp(clamp(logPPL[i])) })},
		"chi2":                  object{"token": less(over(len(w), func(i int) float64 { return w[i] * w[i] })), "sequence": less(over(len(weight), func(i int) float64 { return weight[i] * weight[i] }))},
		"effective_sample_size": object{"token": effective(w), "sequence": effective(weight)},
		"outside":               object{"tis": outside(w, 0, 2), "icepop": outside(w, 0.5, 5), "sequence": outside(weight, 0, 3)},
		"staleness":             object{"tokens": len(stale), "mean": mean(stale), "max": most(len(stale), func(i int) float64 { return stale[i] })},
	}
}

// pearson is the correlation; nil where one side does not vary.
func pearson(x, y []float64) any {
	if len(x) == 0 {
		return nil
	}
	mx, my := mean(x).(float64), mean(y).(float64)
	var xy, xx, yy float64
	for i := range x {
		xy, xx, yy = xy+(x[i]-mx)*(y[i]-my), xx+(x[i]-mx)*(x[i]-mx), yy+(y[i]-my)*(y[i]-my)
	}
	if xx < 1e-12 || yy < 1e-12 {
		return nil
	}
	return xy / math.Sqrt(xx*yy)
}
