package analytics

import (
	"context"
	"fmt"
)

// Keys that only MismatchKeys has.
const (
	KeyKind    = "kind"
	KeyPolicy  = "merge_policy"
	KeyLearner = "learner_version"
	KeyDecile  = "decile"
)

// MismatchKeys are the keys that Mismatches takes. policy_version is the one that
// sampled the token, decile the tenth of the response that it stands in.
var MismatchKeys = []string{KeyHarness, KeyHarnessVersion, KeyModel, KeyTask, KeyGroup, KeySplit, KeyKind, KeyPolicy, KeyVersion, KeyLearner, KeyDecile}

// MismatchQuestion is what Mismatches is asked. Its Since and Until select by
// when log-probs were posted, its versions by those that sampled a trajectory.
type MismatchQuestion struct {
	Filter
	By []string
	// Policy is a merge policy in canonical form; empty: all.
	Policy string
	// LearnerMin and LearnerMax select posts by the learner's version.
	LearnerMin *int64
	LearnerMax *int64
	Thresholds Thresholds
	// Worst is how many trajectories and tokens are named, of each kind.
	Worst int64
	// Limit is how many rows are given at most, the total besides.
	Limit int64
}

// Thresholds are bounds on weights exp(d), both ends allowed; Sequence is one on
// the weight of a whole trajectory.
type Thresholds struct {
	TIS      [2]float64 `json:"tis"`
	IcePop   [2]float64 `json:"icepop"`
	Sequence float64    `json:"sequence"`
}

// MismatchAnswer is what Mismatches answers.
type MismatchAnswer struct {
	Policy     *string       `json:"policy"`
	By         []string      `json:"by"`
	Thresholds Thresholds    `json:"thresholds"`
	Total      Mismatch      `json:"total"`
	Rows       []MismatchRow `json:"rows"`
	// RowCount counts all rows, those beyond the limit too.
	RowCount  int64 `json:"row_count"`
	Truncated bool  `json:"truncated"`
	Worst     Worst `json:"worst"`
	// Warnings say what the numbers should not be taken for.
	Warnings []string `json:"warnings"`
}

// MismatchRow is the mismatch of the tokens that share a value of each key.
type MismatchRow struct {
	Keys Keys `json:"keys"`
	Mismatch
}

// Mismatch says how far the learner's log-probs l are from the sampler's b:
// d = l - b, w = exp(d). Means are over the tokens compared; what there is nothing
// to compute from is nil.
type Mismatch struct {
	Trajectories        int64               `json:"trajectories"`
	Tokens              MismatchTokens      `json:"tokens"`
	K1                  *float64            `json:"k1"`
	K2                  *float64            `json:"k2"`
	K3                  *float64            `json:"k3"`
	Abs                 MeanMax             `json:"abs"`
	Probability         ProbabilityGap      `json:"probability"`
	MultiplicativeError *float64            `json:"multiplicative_error"`
	Perplexity          PerplexityGap       `json:"perplexity"`
	Chi2                PerTokenAndSequence `json:"chi2"`
	EffectiveSamples    PerTokenAndSequence `json:"effective_sample_size"`
	Outside             Outside             `json:"outside"`
	Staleness           MismatchStaleness   `json:"staleness"`
}

// MismatchTokens counts trained tokens. Missing ones lack one value or the other,
// those not finite have a d that is not; neither are compared. ComparableShare is
// of all of them: a learner can be expected to compute the same.
type MismatchTokens struct {
	Trained          int64    `json:"trained"`
	Compared         int64    `json:"compared"`
	Missing          int64    `json:"missing"`
	WithoutBehaviour int64    `json:"without_behaviour"`
	WithoutLearner   int64    `json:"without_learner"`
	NotFinite        int64    `json:"not_finite"`
	MissingShare     *float64 `json:"missing_share"`
	ComparableShare  *float64 `json:"comparable_share"`
}

// MeanMax is a mean and the greatest value.
type MeanMax struct {
	Mean *float64 `json:"mean"`
	Max  *float64 `json:"max"`
}

// ProbabilityGap compares probabilities instead of their logarithms.
type ProbabilityGap struct {
	GapMean *float64 `json:"gap_mean"`
	GapMax  *float64 `json:"gap_max"`
	Pearson *float64 `json:"pearson"`
}

// PerplexityGap is the mean over trajectories of mean(b) - mean(l), and of its exp.
type PerplexityGap struct {
	LogDifference *float64 `json:"log_difference"`
	Ratio         *float64 `json:"ratio"`
}

// PerTokenAndSequence is a number of token weights and of trajectory weights.
type PerTokenAndSequence struct {
	Token    *float64 `json:"token"`
	Sequence *float64 `json:"sequence"`
}

// Outside are the shares of weights beyond each threshold: of tokens for TIS and
// IcePop, of trajectories for Sequence.
type Outside struct {
	TIS      *float64 `json:"tis"`
	IcePop   *float64 `json:"icepop"`
	Sequence *float64 `json:"sequence"`
}

// MismatchStaleness is how many versions the learner was ahead of the one that
// sampled a token, over the tokens of which that is known.
type MismatchStaleness struct {
	Tokens int64    `json:"tokens"`
	Mean   *float64 `json:"mean"`
	Max    *int64   `json:"max"`
}

// Mismatches answers how learners' log-probs compare with the sampler's.
func Mismatches(ctx context.Context, w Warehouse, q MismatchQuestion) (*MismatchAnswer, error) {
	t := q.Thresholds
	filters := q.filters()
	args := append(append([]any{list(q.By)}, filters...), t.TIS[0], t.TIS[1], t.IcePop[0], t.IcePop[1], t.Sequence, q.Limit)
	rows, err := rowsOf[mismatchRow](ctx, w, MismatchSQL, args...)
	if err != nil {
		return nil, fmt.Errorf("compare log-probs: %w", err)
	}
	a := &MismatchAnswer{By: q.By, Thresholds: t, Rows: []MismatchRow{}, Warnings: []string{}}
	if q.Policy != "" {
		a.Policy = &q.Policy
	}
	for i := range rows {
		r := &rows[i]
		if r.Total {
			a.Total, a.RowCount = r.mismatch(), r.RowCount
			a.Warnings = r.warnings()
			continue
		}
		a.Rows = append(a.Rows, MismatchRow{Keys: r.Keys.only(q.By), Mismatch: r.mismatch()})
	}
	a.Truncated = a.RowCount > int64(len(a.Rows))
	a.Worst, err = worstOf(ctx, w, filters, q.Worst)
	return a, err
}

// filters are what all statements of this analysis select by.
func (q *MismatchQuestion) filters() []any {
	var policy any
	if q.Policy != "" {
		policy = q.Policy
	}
	f := append([]any{policy}, q.lists()...)
	f = append(append(f, list(q.Splits)), q.versions()...)
	f = append(f, optional(q.LearnerMin), optional(q.LearnerMax))
	return append(f, q.times()...)
}
