package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"icecore/query/analytics"
)

type reportCmd struct {
	Server   string        `help:"The server." default:"http://127.0.0.1:7470" placeholder:"URL"`
	By       []string      `help:"Make rows by these: harness, harness_version, model, task_id, group_id, split, policy_version, bucket." default:"harness" placeholder:"KEY"`
	Bucket   string        `help:"Length of a bucket: hour, day, week." placeholder:"LENGTH"`
	Policy   string        `help:"Merge policy." default:"strict_tree"`
	SolvedAt float64       `help:"A reward of at least this counts as solved." default:"1"`
	K        []int         `help:"Show pass@k for each of these." default:"1,2,4,8" placeholder:"K"`
	Base     string        `help:"With --against: compare policy versions, from this range, as 0-9." placeholder:"RANGE"`
	Against  string        `help:"With --base: to this range, as 10- or 10-19." placeholder:"RANGE"`
	Harness  []string      `help:"Only these harnesses."`
	Model    []string      `help:"Only these models."`
	Task     []string      `help:"Only these tasks."`
	Split    []string      `help:"Only these splits: train, eval."`
	Since    string        `help:"Only rollouts that began then or later, as 2026-01-31T00:00:00Z." placeholder:"TIME"`
	Until    string        `help:"Only rollouts that began before then." placeholder:"TIME"`
	Mismatch bool          `help:"Add a table of how far learners' log-probs are from the sampler's."`
	Markdown bool          `help:"Write Markdown tables."`
	RetryFor time.Duration `help:"How long to try again when the server is busy or away." default:"1m"`
}

// Help is shown by report --help.
func (reportCmd) Help() string {
	return `One row per harness, or per whatever --by says: how rollouts went, what they got, what is trained on.
Ranges in brackets are 95 % confidence intervals; [–] stands where all values are the same, and none is shown of rewards
that are all 0 or 1, of which the solve rate has it. (n) behind pass@k is the number of groups that it is known for, where
that is not the number for the smallest k. With --base and --against a second table compares two ranges
of policy versions on the tasks that were scored in both.`
}

// Run implements the command.
func (c reportCmd) Run(ctx context.Context) error {
	text, err := c.run(ctx)
	if err == nil {
		_, err = os.Stdout.WriteString(text)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func (c reportCmd) run(ctx context.Context) (string, error) {
	if (c.Base == "") != (c.Against == "") {
		return "", errors.New("--base and --against go together")
	}
	cl := newClient(c.Server, c.RetryFor)
	if err := cl.reachable(ctx); err != nil {
		return "", err
	}
	var out strings.Builder
	var s analytics.SummaryAnswer
	if err := cl.call(ctx, http.MethodGet, "/v1/analytics/summary?"+c.summaryQuery().Encode(), nil, &s); err != nil {
		return "", err
	}
	noteMisses(ctx, cl, "rollout", s.Total.Rollouts.Count, c.filters()...)
	summaryTable(&s).write(&out, c.Markdown)
	if v := s.Total.Staleness.CurrentVersion; v != nil && s.Total.Staleness.Mean != nil {
		fmt.Fprintf(&out, "\nstale counts from policy version %d\n", *v)
	}
	cutNote(&out, len(s.Rows), s.RowCount)
	if c.Mismatch {
		if err := c.mismatch(ctx, cl, &out); err != nil {
			return "", err
		}
	}
	if c.Base == "" {
		return out.String(), nil
	}
	q, err := c.upliftQuery()
	if err != nil {
		return "", err
	}
	var u analytics.UpliftAnswer
	if err := cl.call(ctx, http.MethodGet, "/v1/analytics/uplift?"+q.Encode(), nil, &u); err != nil {
		return "", err
	}
	fmt.Fprintf(&out, "\nPolicy versions %s against %s, on the tasks scored in both:\n\n", c.Against, c.Base)
	upliftTable(&u).write(&out, c.Markdown)
	cutNote(&out, len(u.Rows), u.RowCount)
	return out.String(), nil
}

// cutNote says how much of a table is not shown.
func cutNote(out *strings.Builder, shown int, all int64) {
	if int64(shown) < all {
		fmt.Fprintf(out, "\n%d of %d rows are shown: fewer keys in --by, or a filter, show the rest.\n", shown, all)
	}
}

// filters are the flags that select.
func (c reportCmd) filters() []filterFlag {
	flags := []filterFlag{{"harness", c.Harness}, {"model", c.Model}, {"task", c.Task}, {"split", c.Split}}
	for _, end := range [][2]string{{"since", c.Since}, {"until", c.Until}} {
		if end[1] != "" {
			flags = append(flags, filterFlag{end[0], end[1:]})
		}
	}
	return flags
}

func (c reportCmd) query(by []string) url.Values {
	q := url.Values{"by": {strings.Join(by, ",")}, "solved_at": {fmt.Sprint(c.SolvedAt)}}
	for name, values := range map[string][]string{"harness": c.Harness, "model": c.Model, "task_id": c.Task, "split": c.Split} {
		if len(values) > 0 {
			q[name] = values
		}
	}
	for name, value := range map[string]string{"since": c.Since, "until": c.Until} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

func (c reportCmd) summaryQuery() url.Values {
	q := c.query(c.By)
	q.Set("policy", c.Policy)
	if c.Bucket != "" {
		q.Set("bucket", c.Bucket)
	}
	q.Set("k", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(c.K)), ","), "[]"))
	return q
}

// upliftQuery leaves out the keys that two ranges of versions cannot be compared
// by.
func (c reportCmd) upliftQuery() (url.Values, error) {
	var by []string
	for _, k := range c.By {
		if slices.Contains(analytics.UpliftKeys, k) {
			by = append(by, k)
		}
	}
	if len(by) == 0 {
		return nil, fmt.Errorf("--by %s: versions are compared by %s", strings.Join(c.By, ","), strings.Join(analytics.UpliftKeys, ", "))
	}
	q := c.query(by)
	q.Set("base", c.Base)
	q.Set("against", c.Against)
	return q, nil
}
