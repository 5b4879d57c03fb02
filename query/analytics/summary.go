package analytics

import (
	"context"
	"fmt"
)

// SummaryKeys are the keys that Summarise takes, and Buckets the lengths of its
// time buckets; a week begins on Monday, and all begin in UTC.
var (
	SummaryKeys = []string{KeyHarness, KeyHarnessVersion, KeyModel, KeyTask, KeyGroup, KeySplit, KeyVersion, KeyBucket}
	Buckets     = []string{"hour", "day", "week"}
)

// SummaryQuestion is what Summarise is asked.
type SummaryQuestion struct {
	Filter
	By     []string
	Bucket string
	// Policy is a merge policy in canonical form.
	Policy   string
	SolvedAt float64
	Ks       []int64
	// CurrentVersion is what staleness counts from; nil: the newest seen.
	CurrentVersion *int64
	// Limit is how many rows are given at most, the total besides.
	Limit int64
}

// SummaryAnswer is what Summarise answers.
type SummaryAnswer struct {
	Policy   string       `json:"policy"`
	By       []string     `json:"by"`
	Bucket   *string      `json:"bucket"`
	SolvedAt float64      `json:"solved_at"`
	Total    Summary      `json:"total"`
	Rows     []SummaryRow `json:"rows"`
	// RowCount counts all rows, those beyond the limit too.
	RowCount  int64 `json:"row_count"`
	Truncated bool  `json:"truncated"`
}

// SummaryRow is the summary of the rollouts that share a value of each key.
type SummaryRow struct {
	Keys Keys `json:"keys"`
	Summary
}

// Summary says what became of some rollouts. What there is nothing to say about
// is nil.
type Summary struct {
	Rollouts        Rollouts     `json:"rollouts"`
	Reward          Reward       `json:"reward"`
	SolveRate       Rate         `json:"solve_rate"`
	Groups          Groups       `json:"groups"`
	PassAtK         []Pass       `json:"pass_at_k"`
	Tokens          Tokens       `json:"tokens"`
	Trajectories    Trajectories `json:"trajectories"`
	Calls           Calls        `json:"calls"`
	LogprobCoverage *float64     `json:"logprob_coverage"`
	Latency         Latency      `json:"latency"`
	Staleness       Staleness    `json:"staleness"`
}

// Rollouts counts rollouts: by how they finished, and what stands out.
type Rollouts struct {
	Count      int64 `json:"count"`
	Open       int64 `json:"open"`
	Succeeded  int64 `json:"succeeded"`
	Failed     int64 `json:"failed"`
	Timeout    int64 `json:"timeout"`
	Error      int64 `json:"error"`
	Cancelled  int64 `json:"cancelled"`
	Incomplete int64 `json:"incomplete"`
	Reopened   int64 `json:"reopened"`
}

// Reward describes rewards; Std is the sample's.
type Reward struct {
	Count    int64     `json:"count"`
	Mean     *float64  `json:"mean"`
	Interval *Interval `json:"interval"`
	Std      *float64  `json:"std"`
	Min      *float64  `json:"min"`
	Max      *float64  `json:"max"`
}

// Rate is a share of rollouts, of those that have a reward.
type Rate struct {
	Solved   int64     `json:"solved"`
	Count    int64     `json:"count"`
	Rate     *float64  `json:"rate"`
	Interval *Interval `json:"interval"`
}

func rateOf(solved, count int64) Rate {
	return Rate{Solved: solved, Count: count, Rate: share(solved, count), Interval: wilson(solved, count)}
}

// Groups counts groups. Compared ones have at least two rewards.
type Groups struct {
	Count              int64    `json:"count"`
	Compared           int64    `json:"compared"`
	ZeroAdvantage      int64    `json:"zero_advantage"`
	ZeroAdvantageShare *float64 `json:"zero_advantage_share"`
}

// Pass is pass@k: the mean over the groups that have at least K rewards.
type Pass struct {
	K      int64    `json:"k"`
	Value  *float64 `json:"value"`
	Groups int64    `json:"groups"`
}

// Tokens counts tokens. Sent and Kept count prompts and responses, as sent and
// each once; Sampled is what the policy drew; Trained and Context are the tokens
// of all trajectories, by their mask.
type Tokens struct {
	Sent          int64            `json:"sent"`
	Kept          int64            `json:"kept"`
	Sampled       int64            `json:"sampled"`
	Trained       int64            `json:"trained"`
	Context       int64            `json:"context"`
	ByDisposition map[string]int64 `json:"by_disposition"`
}

// Trajectories counts the rows of the merge policy; PerRollout is their number
// over that of the rollouts that have any.
type Trajectories struct {
	Count      int64    `json:"count"`
	Rollouts   int64    `json:"rollouts"`
	PerRollout *float64 `json:"per_rollout"`
}

// Calls counts model calls. Retries are those that another call with the same
// prompt made void; polar_compat does not tell them.
type Calls struct {
	Count         int64            `json:"count"`
	Failed        int64            `json:"failed"`
	Retries       *int64           `json:"retries"`
	RetryShare    *float64         `json:"retry_share"`
	ByDisposition map[string]int64 `json:"by_disposition"`
	Boundaries    map[string]int64 `json:"boundaries"`
}

// Latency is in seconds, and in sampled tokens per second.
type Latency struct {
	Calls           int64      `json:"calls"`
	Seconds         *Quantiles `json:"seconds"`
	FirstTokenCalls int64      `json:"first_token_calls"`
	FirstToken      *Quantiles `json:"first_token_seconds"`
	TokensPerSecond *float64   `json:"tokens_per_second"`
}

// Quantiles of a distribution; P99 is left out for the first token.
type Quantiles struct {
	P50 float64  `json:"p50"`
	P95 float64  `json:"p95"`
	P99 *float64 `json:"p99,omitempty"`
}

func quantilesOf(q []float64) *Quantiles {
	switch len(q) {
	case 3:
		return &Quantiles{q[0], q[1], &q[2]}
	case 2:
		return &Quantiles{q[0], q[1], nil}
	}
	return nil
}

// Staleness is how many versions the oldest token of a trajectory is behind.
type Staleness struct {
	CurrentVersion *int64   `json:"current_version"`
	Trajectories   int64    `json:"trajectories"`
	Mean           *float64 `json:"mean"`
	P95            *float64 `json:"p95"`
	Max            *int64   `json:"max"`
}

func share(part, whole int64) *float64 {
	if whole == 0 {
		return nil
	}
	v := float64(part) / float64(whole)
	return &v
}

// Summarise answers how rollouts, rewards, groups, tokens and calls stand.
func Summarise(ctx context.Context, w Warehouse, q SummaryQuestion) (*SummaryAnswer, error) {
	args := append([]any{list(q.By), q.Bucket, q.Policy, q.SolvedAt, list(q.Ks), optional(q.CurrentVersion)}, q.lists()...)
	args = append(append(append(args, list(q.Splits)), q.versions()...), q.times()...)
	rows, err := rowsOf[summaryRow](ctx, w, SummarySQL, append(args, q.Limit)...)
	if err != nil {
		return nil, fmt.Errorf("summarise rollouts: %w", err)
	}
	a := &SummaryAnswer{Policy: q.Policy, By: q.By, SolvedAt: q.SolvedAt, Rows: []SummaryRow{}}
	if q.Bucket != "" {
		a.Bucket = &q.Bucket
	}
	for i := range rows {
		r := &rows[i]
		if r.Total {
			a.Total, a.RowCount = r.summary(q.Ks, q.Policy), r.RowCount
			continue
		}
		a.Rows = append(a.Rows, SummaryRow{Keys: r.Keys.only(q.By), Summary: r.summary(q.Ks, q.Policy)})
	}
	a.Truncated = a.RowCount > int64(len(a.Rows))
	return a, nil
}
