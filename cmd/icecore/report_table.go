package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"icecore/query/analytics"
)

// textTable is a table to be read. The first texts columns are left-aligned, the
// others right.
type textTable struct {
	texts int
	heads []string
	rows  [][]string
}

func (t *textTable) write(out *strings.Builder, markdown bool) {
	rows := append([][]string{t.heads}, t.rows...)
	widths := make([]int, len(t.heads))
	for i := range widths {
		widths[i] = 3 // of Markdown's rule
		for _, row := range rows {
			if markdown {
				row[i] = strings.ReplaceAll(row[i], "|", `\|`) // it would end the cell
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	open, between, end := "", "  ", "\n"
	if markdown {
		open, between, end = "| ", " | ", " |\n"
	}
	line := func(row []string) {
		var b strings.Builder
		for i, text := range row {
			if i > 0 {
				b.WriteString(between)
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i < t.texts {
				b.WriteString(text + pad)
			} else {
				b.WriteString(pad + text)
			}
		}
		out.WriteString(open + strings.TrimRight(b.String(), " ") + end)
	}
	line(rows[0])
	if markdown {
		var rule []string
		for i, w := range widths {
			if i < t.texts {
				rule = append(rule, strings.Repeat("-", w))
			} else {
				rule = append(rule, strings.Repeat("-", w-1)+":")
			}
		}
		line(rule)
	}
	for _, row := range rows[1:] {
		line(row)
	}
}

// nothing stands where there is no value.
const nothing = "–"

// keyCells are the values of the keys; one that was not said is nothing. A line
// break would end a row.
func keyCells(keys analytics.Keys, by []string) (cells []string) {
	for _, k := range by {
		text := nothing
		if v := keys[k]; v != nil {
			text = strings.Map(func(r rune) rune {
				if unicode.IsControl(r) {
					return ' '
				}
				return r
			}, plainValue(v))
		}
		cells = append(cells, text)
	}
	return cells
}

func plainValue(v any) string {
	if f, ok := v.(float64); ok { // how encoding/json reads a policy version
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

func summaryTable(a *analytics.SummaryAnswer) *textTable {
	t := &textTable{texts: len(a.By), heads: append(append([]string{}, a.By...), "rollouts", "open", "not ok", "solve rate %", "reward")}
	var ks []int
	for i, p := range a.Total.PassAtK {
		if p.Groups > 0 {
			ks = append(ks, i)
			t.heads = append(t.heads, fmt.Sprintf("pass@%d %%", p.K))
		}
	}
	t.heads = append(t.heads, "zero-adv.", "calls", "rows/rollout", "sampled", "trained", "stale", "p95 s")
	add := func(keys []string, s *analytics.Summary) {
		r := &s.Rollouts
		row := slices.Concat(keys, []string{whole(r.Count), whole(r.Open), whole(r.Failed + r.Timeout + r.Error + r.Cancelled),
			scaled(s.SolveRate.Rate, s.SolveRate.Interval, 100, "%.0f"), rewardCell(s)})
		for _, i := range ks {
			row = append(row, passCell(s.PassAtK, i))
		}
		p95 := nothing
		if q := s.Latency.Seconds; q != nil {
			p95 = fmt.Sprintf("%.1f", q.P95)
		}
		t.rows = append(t.rows, append(row, fmt.Sprintf("%d/%d", s.Groups.ZeroAdvantage, s.Groups.Compared), whole(s.Calls.Count),
			scaled(s.Trajectories.PerRollout, nil, 1, "%.1f"), whole(s.Tokens.Sampled), whole(s.Tokens.Trained),
			scaled(s.Staleness.Mean, nil, 1, "%.1f"), p95))
	}
	for i := range a.Rows {
		add(keyCells(a.Rows[i].Keys, a.By), &a.Rows[i].Summary)
	}
	total := make([]string, len(a.By))
	total[0] = "all"
	add(total, &a.Total)
	return t
}

// passCell writes a pass@k, and of how many groups it is when those are not the
// groups of the smallest k: side by side, the two would be taken for one curve.
func passCell(all []analytics.Pass, i int) string {
	smallest := &all[0]
	for n := range all {
		if all[n].K < smallest.K {
			smallest = &all[n]
		}
	}
	text := scaled(all[i].Value, nil, 100, "%.0f")
	if p := &all[i]; p.Value != nil && p.Groups != smallest.Groups {
		text += fmt.Sprintf(" (%s)", whole(p.Groups))
	}
	return text
}

// rewardCell writes the mean reward. Of rewards that are all 0 or 1 it is the
// solve rate again, which has an interval that suits it: Student's would reach
// below 0 and above 1.
func rewardCell(s *analytics.Summary) string {
	interval := s.Reward.Interval
	if zeroOrOne(s) {
		interval = nil
	}
	return scaled(s.Reward.Mean, interval, 1, "%.2f")
}

// zeroOrOne says whether the rewards are all 0 or 1, and those of 1 the solved
// ones. Of numbers between 0 and 1, only 0 and 1 are their own squares: then the
// sum of squares is the sum.
func zeroOrOne(s *analytics.Summary) bool {
	r := &s.Reward
	if r.Mean == nil || r.Std == nil || r.Min == nil || r.Max == nil || s.SolveRate.Rate == nil || *r.Min < 0 || *r.Max > 1 {
		return false
	}
	n, mean := float64(r.Count), *r.Mean
	squares := *r.Std**r.Std*(n-1)/n + mean*mean
	return math.Abs(squares-mean) < 1e-9 && math.Abs(mean-*s.SolveRate.Rate) < 1e-9
}

// leftOut says how many tasks are not compared, and why; and which rollouts are
// in none.
func leftOut(d *analytics.UpliftDrops) string {
	type reason struct {
		n   int64
		why string
	}
	told := func(list ...reason) string {
		var parts []string
		for _, r := range list {
			if r.n > 0 {
				parts = append(parts, r.why+" "+whole(r.n))
			}
		}
		return strings.Join(parts, ", ")
	}
	text := whole(d.TasksOnlyInBase + d.TasksOnlyInAgainst + d.TasksUnrewarded)
	if why := told(reason{d.TasksOnlyInBase, "only in base"}, reason{d.TasksOnlyInAgainst, "only in against"},
		reason{d.TasksUnrewarded, "without reward"}); why != "" {
		text += ": " + why
	}
	if why := told(reason{d.RolloutsMixed, "partly in a range"}, reason{d.RolloutsUnversioned, "without version"},
		reason{d.RolloutsWithoutTask, "without task"}, reason{d.RolloutsUnrewarded, "without reward"}); why != "" {
		text += "; rollouts " + why
	}
	return text
}

func upliftTable(a *analytics.UpliftAnswer) *textTable {
	t := &textTable{texts: len(a.By), heads: append(append([]string{}, a.By...), "tasks", "base %", "against %", "points", "better", "worse",
		"tasks left out")}
	for i := range a.Rows {
		r := &a.Rows[i]
		t.rows = append(t.rows, append(keyCells(r.Keys, a.By), whole(r.Tasks), scaled(r.Base.SolveRate, nil, 100, "%.1f"),
			scaled(r.Against.SolveRate, nil, 100, "%.1f"), scaled(r.SolveRate.Mean, r.SolveRate.Interval, 1, "%+.1f"),
			whole(r.Improved), whole(r.Worsened), leftOut(&r.Dropped)))
	}
	return t
}

// scaled writes a value, and its interval if there is one. One without width is
// that of equal values, which says nothing of others.
func scaled(v *float64, i *analytics.Interval, by float64, form string) string {
	if v == nil {
		return nothing
	}
	text := fmt.Sprintf(form, by**v)
	if i != nil && i[1]-i[0] <= 1e-12*max(1, math.Abs(i[1])) { // sums of equal values are off by their last bit
		text += " [" + nothing + "]"
	} else if i != nil {
		text += fmt.Sprintf(" ["+form+", "+form+"]", by*i[0], by*i[1])
	}
	return text
}

// whole writes a count, with commas between thousands.
func whole(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
