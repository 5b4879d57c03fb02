package analytics

import (
	"context"
	"fmt"
)

// UpliftKeys are the keys that Compare takes.
var UpliftKeys = []string{KeyHarness, KeyHarnessVersion, KeyModel, KeySplit}

// Range is a range of policy versions, both ends in it; nil: it has no such end.
type Range struct {
	Min *int64 `json:"min"`
	Max *int64 `json:"max"`
}

// Overlaps says whether a version can be in both ranges.
func (r Range) Overlaps(o Range) bool { return r.reaches(o) && o.reaches(r) }

// reaches says that r does not begin behind o's end.
func (r Range) reaches(o Range) bool { return r.Min == nil || o.Max == nil || *r.Min <= *o.Max }

// UpliftQuestion is what Compare is asked. The versions of its Filter are not
// looked at: Base and Against take their place, and must not overlap.
type UpliftQuestion struct {
	Filter
	By            []string
	SolvedAt      float64
	Base, Against Range
	Limit         int64
}

// UpliftAnswer is what Compare answers.
type UpliftAnswer struct {
	By        []string    `json:"by"`
	SolvedAt  float64     `json:"solved_at"`
	Base      Range       `json:"base"`
	Against   Range       `json:"against"`
	Rows      []UpliftRow `json:"rows"`
	RowCount  int64       `json:"row_count"`
	Truncated bool        `json:"truncated"`
}

// UpliftRow compares the two ranges on the tasks that were scored in both. Every
// task counts alike.
type UpliftRow struct {
	Keys      Keys        `json:"keys"`
	Tasks     int64       `json:"tasks"`
	Improved  int64       `json:"improved"`
	Worsened  int64       `json:"worsened"`
	Base      Side        `json:"base"`
	Against   Side        `json:"against"`
	SolveRate Difference  `json:"solve_rate_points"`
	Reward    Difference  `json:"reward"`
	Dropped   UpliftDrops `json:"dropped"`
}

// Side is one range on these tasks: means over tasks of each task's mean.
type Side struct {
	Rollouts  int64    `json:"rollouts"`
	SolveRate *float64 `json:"solve_rate"`
	Reward    *float64 `json:"reward"`
}

// Difference is a mean of differences, and the interval of that mean: Student's,
// over the pairs.
type Difference struct {
	Mean     *float64  `json:"difference"`
	Interval *Interval `json:"interval"`
	Std      *float64  `json:"std"`
}

func differenceOf(n int64, mean, std *float64) Difference {
	return Difference{Mean: mean, Interval: meanInterval(n, mean, std), Std: std}
}

// UpliftDrops counts what is not in the comparison, by reason.
type UpliftDrops struct {
	TasksOnlyInBase     int64 `json:"tasks_only_in_base"`
	TasksOnlyInAgainst  int64 `json:"tasks_only_in_against"`
	TasksUnrewarded     int64 `json:"tasks_unrewarded"`
	RolloutsMixed       int64 `json:"rollouts_mixed"`
	RolloutsUnversioned int64 `json:"rollouts_unversioned"`
	RolloutsWithoutTask int64 `json:"rollouts_without_task"`
	RolloutsUnrewarded  int64 `json:"rollouts_unrewarded"`
}

// upliftRow is a row of uplift.sql.
type upliftRow struct {
	RowCount int64 `json:"row_count"`
	Keys     Keys  `json:"keys"`
	UpliftDrops
	Tasks            int64    `json:"tasks"`
	Improved         int64    `json:"improved"`
	Worsened         int64    `json:"worsened"`
	BaseRollouts     int64    `json:"base_rollouts"`
	AgainstRollouts  int64    `json:"against_rollouts"`
	BaseSolveRate    *float64 `json:"base_solve_rate"`
	AgainstSolveRate *float64 `json:"against_solve_rate"`
	PointsMean       *float64 `json:"points_mean"`
	PointsStd        *float64 `json:"points_std"`
	BaseReward       *float64 `json:"base_reward"`
	AgainstReward    *float64 `json:"against_reward"`
	GainMean         *float64 `json:"gain_mean"`
	GainStd          *float64 `json:"gain_std"`
}

// Compare answers what one range of policy versions gained over another.
func Compare(ctx context.Context, w Warehouse, q UpliftQuestion) (*UpliftAnswer, error) {
	args := append([]any{list(q.By), q.SolvedAt, optional(q.Base.Min), optional(q.Base.Max), optional(q.Against.Min),
		optional(q.Against.Max)}, q.lists()...)
	args = append(append(args, list(q.Splits)), q.times()...)
	rows, err := rowsOf[upliftRow](ctx, w, UpliftSQL, append(args, q.Limit)...)
	if err != nil {
		return nil, fmt.Errorf("compare policy versions: %w", err)
	}
	a := &UpliftAnswer{By: q.By, SolvedAt: q.SolvedAt, Base: q.Base, Against: q.Against, Rows: []UpliftRow{}}
	for i := range rows {
		r := &rows[i]
		a.RowCount = r.RowCount
		a.Rows = append(a.Rows, UpliftRow{Keys: r.Keys.only(q.By), Tasks: r.Tasks, Improved: r.Improved, Worsened: r.Worsened,
			Base:      Side{r.BaseRollouts, r.BaseSolveRate, r.BaseReward},
			Against:   Side{r.AgainstRollouts, r.AgainstSolveRate, r.AgainstReward},
			SolveRate: differenceOf(r.Tasks, r.PointsMean, r.PointsStd),
			Reward:    differenceOf(r.Tasks, r.GainMean, r.GainStd), Dropped: r.UpliftDrops})
	}
	a.Truncated = a.RowCount > int64(len(a.Rows))
	return a, nil
}
