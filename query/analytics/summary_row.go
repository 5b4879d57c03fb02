package analytics

import (
	"slices"
	"strings"

	"icecore/merge"
)

// summaryRow is a row of summary.sql.
type summaryRow struct {
	Total    bool  `json:"total"`
	RowCount int64 `json:"row_count"`
	Keys     Keys  `json:"keys"`

	Rollouts   int64 `json:"rollouts"`
	Open       int64 `json:"open"`
	Succeeded  int64 `json:"succeeded"`
	Failed     int64 `json:"failed"`
	Timeout    int64 `json:"timeout"`
	Error      int64 `json:"error"`
	Cancelled  int64 `json:"cancelled"`
	Incomplete int64 `json:"incomplete"`
	Reopened   int64 `json:"reopened"`

	Rewarded   int64    `json:"rewarded"`
	Solved     int64    `json:"solved"`
	RewardMean *float64 `json:"reward_mean"`
	RewardStd  *float64 `json:"reward_std"`
	RewardMin  *float64 `json:"reward_min"`
	RewardMax  *float64 `json:"reward_max"`

	// Sums are NULL over no rollouts.
	SentTokens    int64 `json:"sent_tokens"`
	KeptTokens    int64 `json:"kept_tokens"`
	SampledTokens int64 `json:"sampled_tokens"`

	Groups        int64 `json:"groups"`
	Compared      int64 `json:"groups_compared"`
	ZeroAdvantage int64 `json:"groups_zero_advantage"`
	PassAtK       []struct {
		K      int64   `json:"k"`
		Groups int64   `json:"groups"`
		Pass   float64 `json:"pass"`
	} `json:"pass_at_k"`

	Calls             int64     `json:"calls"`
	FailedCalls       int64     `json:"failed_calls"`
	LogprobTokens     int64     `json:"logprob_tokens"`
	TimedCalls        int64     `json:"timed_calls"`
	Seconds           []float64 `json:"seconds"`
	FirstTokenCalls   int64     `json:"first_token_calls"`
	FirstTokenSeconds []float64 `json:"first_token_seconds"`
	TokensPerSecond   *float64  `json:"tokens_per_second"`

	Trajectories   int64 `json:"trajectories"`
	MergedRollouts int64 `json:"merged_rollouts"`
	RowTokens      int64 `json:"row_tokens"`
	TrainedTokens  int64 `json:"trained_tokens"`
	Dispositions   []struct {
		Disposition string `json:"disposition"`
		Calls       int64  `json:"calls"`
		Tokens      int64  `json:"tokens"`
	} `json:"dispositions"`
	Boundaries []struct {
		Kind  string `json:"kind"`
		Calls int64  `json:"calls"`
	} `json:"boundaries"`

	CurrentVersion *int64   `json:"current_version"`
	Versioned      int64    `json:"versioned_trajectories"`
	StaleMean      *float64 `json:"stale_mean"`
	StaleP95       *float64 `json:"stale_p95"`
	StaleMax       *int64   `json:"stale_max"`
}

func (r *summaryRow) summary(ks []int64, policy string) Summary {
	return Summary{
		Rollouts: Rollouts{r.Rollouts, r.Open, r.Succeeded, r.Failed, r.Timeout, r.Error, r.Cancelled, r.Incomplete, r.Reopened},
		Reward: Reward{Count: r.Rewarded, Mean: r.RewardMean, Interval: meanInterval(r.Rewarded, r.RewardMean, r.RewardStd),
			Std: r.RewardStd, Min: r.RewardMin, Max: r.RewardMax},
		SolveRate: rateOf(r.Solved, r.Rewarded),
		Groups: Groups{Count: r.Groups, Compared: r.Compared, ZeroAdvantage: r.ZeroAdvantage,
			ZeroAdvantageShare: share(r.ZeroAdvantage, r.Compared)},
		PassAtK: r.passes(ks),
		Tokens: Tokens{Sent: r.SentTokens, Kept: r.KeptTokens, Sampled: r.SampledTokens, Trained: r.TrainedTokens,
			Context: r.RowTokens - r.TrainedTokens, ByDisposition: r.tokensByDisposition()},
		Trajectories: Trajectories{Count: r.Trajectories, Rollouts: r.MergedRollouts,
			PerRollout: share(r.Trajectories, r.MergedRollouts)},
		Calls:           r.calls(policy),
		LogprobCoverage: share(r.LogprobTokens, r.SampledTokens),
		Latency: Latency{Calls: r.TimedCalls, Seconds: quantilesOf(r.Seconds), FirstTokenCalls: r.FirstTokenCalls,
			FirstToken: quantilesOf(r.FirstTokenSeconds), TokensPerSecond: r.TokensPerSecond},
		Staleness: Staleness{CurrentVersion: r.CurrentVersion, Trajectories: r.Versioned, Mean: r.StaleMean, P95: r.StaleP95,
			Max: r.StaleMax},
	}
}

// passes has one entry for each k that was asked for, also where no group is
// large enough.
func (r *summaryRow) passes(ks []int64) []Pass {
	out := []Pass{}
	for _, k := range slices.Compact(slices.Sorted(slices.Values(ks))) {
		p := Pass{K: k}
		for i := range r.PassAtK {
			if made := &r.PassAtK[i]; made.K == k {
				p.Groups, p.Value = made.Groups, &made.Pass
			}
		}
		out = append(out, p)
	}
	return out
}

func (r *summaryRow) tokensByDisposition() map[string]int64 {
	out := map[string]int64{}
	for _, d := range r.Dispositions {
		out[d.Disposition] = d.Tokens
	}
	return out
}

func (r *summaryRow) calls(policy string) Calls {
	c := Calls{Count: r.Calls, Failed: r.FailedCalls, ByDisposition: map[string]int64{}, Boundaries: map[string]int64{}}
	for _, d := range r.Dispositions {
		c.ByDisposition[d.Disposition] = d.Calls
	}
	for _, b := range r.Boundaries {
		c.Boundaries[b.Kind] = b.Calls
	}
	if !strings.HasPrefix(policy, merge.PolarCompat) {
		retries := c.ByDisposition[string(merge.AbandonedRetry)] + c.ByDisposition[string(merge.UnresolvedRetry)]
		c.Retries, c.RetryShare = &retries, share(retries, c.Count)
	}
	return c
}
