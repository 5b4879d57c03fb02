package analytics

import (
	"context"
	"fmt"
	"time"
)

// GroupsQuestion selects groups. Empty fields select all; each list means "one
// of".
type GroupsQuestion struct {
	GroupIDs []string
	TaskIDs  []string
	Splits   []string
	// Harnesses and Models select groups that have a rollout of one of them.
	Harnesses     []string
	Models        []string
	Complete      *bool
	ZeroAdvantage *bool
	// After is a place behind which the page begins; nil: at the first group.
	After *GroupPlace
	Limit int64
}

// GroupPlace is a place in the order of groups: when its first rollout was first
// heard of, then the id.
type GroupPlace struct {
	Time time.Time
	ID   string
}

// Group is a group as GET /v1/groups shows it.
type Group struct {
	GroupID       *string  `json:"group_id"`
	TaskID        *string  `json:"task_id"`
	Split         *string  `json:"split"`
	Harnesses     []string `json:"harnesses"`
	Models        []string `json:"models"`
	GroupSize     *int64   `json:"group_size"`
	Rollouts      int64    `json:"rollouts"`
	Finished      int64    `json:"finished"`
	NotSucceeded  int64    `json:"not_succeeded"`
	Rewarded      int64    `json:"rewarded"`
	Complete      bool     `json:"complete"`
	ZeroAdvantage bool     `json:"zero_advantage"`
	RewardMean    *float64 `json:"reward_mean"`
	RewardStd     *float64 `json:"reward_std"`
	RewardMin     *float64 `json:"reward_min"`
	RewardMax     *float64 `json:"reward_max"`
	CreatedAt     string   `json:"created_at"`
}

// Place is where the group stands in the order of groups.
func (g *Group) Place() (GroupPlace, error) {
	at, err := time.Parse(time.RFC3339Nano, g.CreatedAt)
	if err != nil {
		return GroupPlace{}, fmt.Errorf("read time of group %q: %w", *g.GroupID, err)
	}
	return GroupPlace{at, *g.GroupID}, nil
}

// ListGroups gives a page of groups and how many there are on all pages.
func ListGroups(ctx context.Context, w Warehouse, q GroupsQuestion) (groups []Group, total int64, err error) {
	args := []any{list(q.GroupIDs), list(q.TaskIDs), list(q.Splits), list(q.Harnesses), list(q.Models), optional(q.Complete),
		optional(q.ZeroAdvantage), nil, nil, q.Limit}
	if q.After != nil {
		args[7], args[8] = timeText(&q.After.Time), q.After.ID
	}
	rows, err := rowsOf[struct {
		Group
		Total int64 `json:"total"`
	}](ctx, w, GroupsSQL, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("list groups: %w", err)
	}
	groups = []Group{}
	for i := range rows {
		total = rows[i].Total
		// Without groups there is a row that holds the total alone.
		if g := rows[i].Group; g.GroupID != nil {
			g.CreatedAt = rfc3339(g.CreatedAt, microseconds)
			groups = append(groups, g)
		}
	}
	return groups, total, nil
}
