package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// report tells what came of everything, and counts the faults that fail the target.
func report(results []*result, streams []*streamResult) (text string, failed int) {
	var w strings.Builder
	rows := [][]string{{"harness", "variant", "calls", "aux", "status", "traj", "trained/sampled", "boundaries", "extends", "continuity", "spliced", ""}}
	for _, r := range results {
		rows = append(rows, []string{
			r.harness.name, r.variant.name, fmt.Sprint(r.calls), fmt.Sprint(r.auxiliary), counts(r.statuses), fmt.Sprint(r.trajectories),
			fmt.Sprintf("%d/%d", r.trained, r.sampled), counts(r.boundaries), percent(r.share()), counts(r.labels), r.splices(), mark(r),
		})
	}
	w.WriteString("\n" + table(rows) + "\n")
	for _, r := range results {
		if off := r.without(results); off != nil {
			fmt.Fprintf(&w, "drifting engine %-14s %-12s extends %4s without continuity, %4s with\n", r.variant.engine(), r.harness.name, percent(off.share()), percent(r.share()))
		}
	}
	w.WriteString("\n")
	for _, s := range streams {
		fmt.Fprintf(&w, "streaming %-19s %s\n", s.api, s.said())
		failed += min(1, len(s.faults))
	}
	for _, r := range results {
		if len(r.faults) == 0 {
			continue
		}
		word := "FAULT"
		if r.harness.optional {
			word = "fault (does not count)"
		} else {
			failed++
		}
		fmt.Fprintf(&w, "\n%s %s %s\n  - %s\n%s\n", word, r.harness.name, r.variant.name, strings.Join(r.faults, "\n  - "), r.describe())
	}
	return w.String(), failed
}

// without gives the rollout that differs from r in continuity alone; nil: r is not the
// one that shows what continuity does.
func (r *result) without(results []*result) *result {
	if r.variant.again == "" {
		return nil
	}
	for _, off := range results {
		if off.harness == r.harness && off.variant.drift && !off.variant.exact && off.variant.face == r.variant.face {
			return off
		}
	}
	return nil
}

func (r *result) splices() string {
	if !r.variant.exact {
		return "-"
	}
	return fmt.Sprintf("%d (not: %s)", r.spliced, counts(r.why))
}

func mark(r *result) string {
	if len(r.faults) > 0 {
		return "FAULT"
	}
	return ""
}

func percent(share float64) string {
	if math.IsNaN(share) {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

func counts(m map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		name := k
		if name == "" {
			name = "-"
		}
		out = append(out, fmt.Sprintf("%s %d", name, m[k]))
	}
	return strings.Join(out, ", ")
}

// table sets rows under one another.
func table(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += fmt.Sprintf("%-*s  ", widths[i], cell)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
