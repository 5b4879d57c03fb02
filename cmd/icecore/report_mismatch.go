package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"icecore/query/analytics"
)

// mismatch adds the table of how far learners are from the sampler. Times are left
// out: there they are those of posts, not of rollouts.
func (c reportCmd) mismatch(ctx context.Context, cl *client, out *strings.Builder) error {
	by := slices.DeleteFunc(slices.Clone(c.By), func(k string) bool { return !slices.Contains(analytics.MismatchKeys, k) })
	if len(by) == 0 {
		return errors.New("--mismatch: none of the keys of --by is one of " + strings.Join(analytics.MismatchKeys, ", "))
	}
	q := c.query(by)
	for _, name := range []string{"solved_at", "since", "until"} {
		q.Del(name)
	}
	q.Set("policy", c.Policy)
	q.Set("worst", "0")
	var a analytics.MismatchAnswer
	if err := cl.call(ctx, http.MethodGet, "/v1/analytics/mismatch?"+q.Encode(), nil, &a); err != nil {
		return err
	}
	out.WriteString("\nLearner against sampler, over the trained tokens that learners posted log-probs of:\n\n")
	mismatchTable(&a).write(out, c.Markdown)
	for _, w := range a.Warnings {
		fmt.Fprintf(out, "\nnote: %s\n", w)
	}
	cutNote(out, len(a.Rows), a.RowCount)
	return nil
}

func mismatchTable(a *analytics.MismatchAnswer) *textTable {
	t := &textTable{texts: len(a.By), heads: append(slices.Clone(a.By), "posts", "tokens", "k1", "k3", "|d|", "max |d|", "clipped %", "eff. %", "stale")}
	add := func(keys []string, m *analytics.Mismatch) {
		t.rows = append(t.rows, append(keys, whole(m.Trajectories), whole(m.Tokens.Compared), scaled(m.K1, nil, 1, "%.5f"), scaled(m.K3, nil, 1, "%.5f"),
			scaled(m.Abs.Mean, nil, 1, "%.4f"), scaled(m.Abs.Max, nil, 1, "%.2f"), scaled(m.Outside.TIS, nil, 100, "%.2f"),
			scaled(m.EffectiveSamples.Token, nil, 100, "%.1f"), scaled(m.Staleness.Mean, nil, 1, "%.1f")))
	}
	for i := range a.Rows {
		add(keyCells(a.Rows[i].Keys, a.By), &a.Rows[i].Mismatch)
	}
	total := make([]string, len(a.By))
	total[0] = "all"
	add(total, &a.Total)
	return t
}
