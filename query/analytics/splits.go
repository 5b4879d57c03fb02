package analytics

import (
	"context"
	"fmt"
)

// SplitsKeys are the keys that CompareSplits takes beside the task.
var SplitsKeys = []string{KeyTask, KeyHarness, KeyHarnessVersion, KeyModel}

// SplitsQuestion is what CompareSplits is asked. The splits of its Filter are
// not looked at.
type SplitsQuestion struct {
	Filter
	By       []string
	SolvedAt float64
	Limit    int64
}

// SplitsAnswer is what CompareSplits answers.
type SplitsAnswer struct {
	By        []string    `json:"by"`
	SolvedAt  float64     `json:"solved_at"`
	Total     SplitsTotal `json:"total"`
	Rows      []SplitsRow `json:"rows"`
	RowCount  int64       `json:"row_count"`
	Truncated bool        `json:"truncated"`
}

// SplitsTotal is the mean gap over the rows that have rewards in both splits,
// each row alike, and counts the tasks that are in one split only.
type SplitsTotal struct {
	Compared    int64      `json:"compared"`
	SolveRate   Difference `json:"solve_rate_points"`
	Reward      Difference `json:"reward"`
	OnlyInTrain int64      `json:"only_in_train"`
	OnlyInEval  int64      `json:"only_in_eval"`
}

// SplitsRow is one task, trained on and evaluated on; the gap is the first less
// the second.
type SplitsRow struct {
	Keys  Keys      `json:"keys"`
	Train SplitSide `json:"train"`
	Eval  SplitSide `json:"eval"`
	Gap   Gap       `json:"gap"`
}

// SplitSide is a task's rollouts of one split.
type SplitSide struct {
	Rollouts  int64       `json:"rollouts"`
	Reward    SplitReward `json:"reward"`
	SolveRate Rate        `json:"solve_rate"`
}

// SplitReward describes the rewards of a SplitSide.
type SplitReward struct {
	Count    int64     `json:"count"`
	Mean     *float64  `json:"mean"`
	Interval *Interval `json:"interval"`
	Std      *float64  `json:"std"`
}

// Gap is a difference of two independent samples: of solve rates in points, with
// Newcombe's interval, of mean rewards with Welch's.
type Gap struct {
	Points         *float64  `json:"solve_rate_points"`
	PointsInterval *Interval `json:"solve_rate_interval"`
	Reward         *float64  `json:"reward"`
	RewardInterval *Interval `json:"reward_interval"`
}

// splitsRow is a row of splits.sql.
type splitsRow struct {
	Total       bool     `json:"total"`
	RowCount    int64    `json:"row_count"`
	Keys        Keys     `json:"keys"`
	Pairs       int64    `json:"pairs"`
	PointsMean  *float64 `json:"points_mean"`
	PointsStd   *float64 `json:"points_std"`
	GapMean     *float64 `json:"gap_mean"`
	GapStd      *float64 `json:"gap_std"`
	OnlyInTrain int64    `json:"only_in_train"`
	OnlyInEval  int64    `json:"only_in_eval"`

	TrainRollouts   int64    `json:"train_rollouts"`
	TrainRewarded   int64    `json:"train_rewarded"`
	TrainSolved     int64    `json:"train_solved"`
	TrainRewardMean *float64 `json:"train_reward_mean"`
	TrainRewardStd  *float64 `json:"train_reward_std"`
	EvalRollouts    int64    `json:"eval_rollouts"`
	EvalRewarded    int64    `json:"eval_rewarded"`
	EvalSolved      int64    `json:"eval_solved"`
	EvalRewardMean  *float64 `json:"eval_reward_mean"`
	EvalRewardStd   *float64 `json:"eval_reward_std"`
}

func sideOf(rollouts, solved int64, s sample) SplitSide {
	return SplitSide{Rollouts: rollouts, SolveRate: rateOf(solved, s.n),
		Reward: SplitReward{s.n, s.mean, meanInterval(s.n, s.mean, s.std), s.std}}
}

func (r *splitsRow) row(by []string) SplitsRow {
	train := sample{r.TrainRewarded, r.TrainRewardMean, r.TrainRewardStd}
	eval := sample{r.EvalRewarded, r.EvalRewardMean, r.EvalRewardStd}
	points := rateDifference(r.TrainSolved, r.TrainRewarded, r.EvalSolved, r.EvalRewarded)
	if points != nil {
		points = &Interval{100 * points[0], 100 * points[1]}
	}
	return SplitsRow{Keys: r.Keys.only(by), Train: sideOf(r.TrainRollouts, r.TrainSolved, train),
		Eval: sideOf(r.EvalRollouts, r.EvalSolved, eval),
		Gap:  Gap{Points: r.PointsMean, PointsInterval: points, Reward: r.GapMean, RewardInterval: meanDifference(train, eval)}}
}

// CompareSplits answers how the same tasks stand in training and in evaluation.
func CompareSplits(ctx context.Context, w Warehouse, q SplitsQuestion) (*SplitsAnswer, error) {
	args := append([]any{list(q.By), q.SolvedAt}, q.lists()...)
	args = append(append(args, q.versions()...), q.times()...)
	rows, err := rowsOf[splitsRow](ctx, w, SplitsSQL, append(args, q.Limit)...)
	if err != nil {
		return nil, fmt.Errorf("compare splits: %w", err)
	}
	a := &SplitsAnswer{By: q.By, SolvedAt: q.SolvedAt, Rows: []SplitsRow{}}
	for i := range rows {
		r := &rows[i]
		if r.Total {
			a.RowCount = r.RowCount
			a.Total = SplitsTotal{Compared: r.Pairs, SolveRate: differenceOf(r.Pairs, r.PointsMean, r.PointsStd),
				Reward: differenceOf(r.Pairs, r.GapMean, r.GapStd), OnlyInTrain: r.OnlyInTrain, OnlyInEval: r.OnlyInEval}
			continue
		}
		a.Rows = append(a.Rows, r.row(q.By))
	}
	a.Truncated = a.RowCount > int64(len(a.Rows))
	return a, nil
}
