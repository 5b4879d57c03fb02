package analytics

import "fmt"

// mismatchRow is a row of mismatch.sql.
type mismatchRow struct {
	Total    bool  `json:"total"`
	RowCount int64 `json:"row_count"`
	Keys     Keys  `json:"keys"`

	Trajectories     int64 `json:"trajectories"`
	Trained          int64 `json:"trained_tokens"`
	Compared         int64 `json:"compared_tokens"`
	Missing          int64 `json:"missing_tokens"`
	WithoutBehaviour int64 `json:"without_behaviour"`
	WithoutLearner   int64 `json:"without_learner"`
	Comparable       int64 `json:"comparable_tokens"`

	K1                  *float64 `json:"k1"`
	K2                  *float64 `json:"k2"`
	K3                  *float64 `json:"k3"`
	AbsMean             *float64 `json:"abs_mean"`
	AbsMax              *float64 `json:"abs_max"`
	GapMean             *float64 `json:"probability_gap_mean"`
	GapMax              *float64 `json:"probability_gap_max"`
	Pearson             *float64 `json:"probability_pearson"`
	MultiplicativeError *float64 `json:"multiplicative_error"`
	LogPPL              *float64 `json:"log_ppl_difference"`
	PPLRatio            *float64 `json:"ppl_ratio"`
	Chi2Token           *float64 `json:"chi2_token"`
	Chi2Sequence        *float64 `json:"chi2_sequence"`
	EffectiveTokens     *float64 `json:"effective_sample_size"`
	EffectiveSequences  *float64 `json:"effective_sequences"`
	Clipped             *float64 `json:"tis_clipped"`
	Popped              *float64 `json:"icepop_out"`
	SequenceOut         *float64 `json:"sequence_out"`

	Versioned int64    `json:"versioned_tokens"`
	StaleMean *float64 `json:"stale_mean"`
	StaleMax  *int64   `json:"stale_max"`
}

func (r *mismatchRow) mismatch() Mismatch {
	return Mismatch{
		Trajectories: r.Trajectories,
		Tokens: MismatchTokens{Trained: r.Trained, Compared: r.Compared, Missing: r.Missing, WithoutBehaviour: r.WithoutBehaviour,
			WithoutLearner: r.WithoutLearner, NotFinite: r.notFinite(), MissingShare: share(r.Missing, r.Trained),
			ComparableShare: share(r.Comparable, r.Trained)},
		K1: r.K1, K2: r.K2, K3: r.K3,
		Abs:                 MeanMax{r.AbsMean, r.AbsMax},
		Probability:         ProbabilityGap{r.GapMean, r.GapMax, r.Pearson},
		MultiplicativeError: r.MultiplicativeError,
		Perplexity:          PerplexityGap{r.LogPPL, r.PPLRatio},
		Chi2:                PerTokenAndSequence{r.Chi2Token, r.Chi2Sequence},
		EffectiveSamples:    PerTokenAndSequence{r.EffectiveTokens, r.EffectiveSequences},
		Outside:             Outside{r.Clipped, r.Popped, r.SequenceOut},
		Staleness:           MismatchStaleness{r.Versioned, r.StaleMean, r.StaleMax},
	}
}

func (r *mismatchRow) notFinite() int64 { return r.Trained - r.Missing - r.Compared }

// warnings are about the total.
func (r *mismatchRow) warnings() []string {
	out := []string{}
	if n := r.Trained - r.Comparable; n > 0 {
		out = append(out, fmt.Sprintf("%d of %d tokens are not comparable: their log-probs were taken before a temperature other than 1 was applied "+
			"(or nobody said when), or after top-p or top-k; a gap there is no fault of the learner", n, r.Trained))
	}
	if n := r.Missing; n > 0 {
		out = append(out, fmt.Sprintf("%d of %d tokens are not compared: the sampler's or the learner's log-prob is not known", n, r.Trained))
	}
	if n := r.notFinite(); n > 0 {
		out = append(out, fmt.Sprintf("%d of %d tokens are not compared: the sampler's or the learner's log-prob is infinite", n, r.Trained))
	}
	return out
}
