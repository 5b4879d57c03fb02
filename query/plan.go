package query

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/labstack/echo/v4"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/problem"
	"icecore/query/trajectory"
	"icecore/store"
)

// selection is what an export was asked for.
type selection struct {
	filter     store.Filter
	policy     merge.Policy
	versionMin *int64
	versionMax *int64
	after      position
	limit      int64
}

// position is a place in the order of an export: by rollout, as they were
// opened, then by row.
//
// through says which merge of the rollout row counts in: a trace that came since
// may have changed the order of its rows, and the rest of a rollout that was
// begun comes as it was then.
type position struct {
	rollout int64
	row     int
	through int64
}

func (p position) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "2.%d.%d.%d", p.rollout, p.row, p.through))
}

func parsePosition(text string) (p position, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		_, err = fmt.Sscanf(string(raw), "2.%d.%d.%d", &p.rollout, &p.row, &p.through)
	}
	if err != nil || p.String() != text {
		return p, problem.BadParameter("cursor", "is not one that this server gave")
	}
	return p, nil
}

func selectionOf(c echo.Context) (sel selection, err error) {
	if err := only(c, append(slices.Clone(filterNames), "policy", "end_of_turn", "policy_version_min", "policy_version_max",
		"limit", "cursor", "format")...); err != nil {
		return sel, err
	}
	if sel.filter, err = filterOf(c); err != nil {
		return sel, err
	}
	if sel.policy, err = policyOf(c); err != nil {
		return sel, err
	}
	if sel.versionMin, err = optInt(c, "policy_version_min"); err != nil {
		return sel, err
	}
	if sel.versionMax, err = optInt(c, "policy_version_max"); err != nil {
		return sel, err
	}
	if sel.limit, err = intParam(c, "limit", 0, 1, 1<<40); err != nil {
		return sel, err
	}
	if text := c.QueryParam("cursor"); text != "" {
		sel.after, err = parsePosition(text)
	} else {
		sel.after.row = -1
	}
	return sel, err
}

// plan is a whole export before its first byte: everything that is counted in
// advance.
type plan struct {
	selection
	trajectory.Plan
	tokens  int64
	trained int64
	next    string
}

// planPage is how many rollouts are looked at together.
const planPage = 512

// plan lists the rows that sel selects, merging first what is not merged.
func (a *API) plan(ctx context.Context, sel selection) (*plan, error) {
	p := &plan{selection: sel, Plan: trajectory.Plan{Policy: sel.policy, Rollouts: map[int64]*trajectory.Rollout{}}}
	if err := a.s.WaitDrained(ctx, a.s.NewestBatch()); err != nil {
		return nil, err
	}
	// The rollout of the cursor itself may have rows left.
	after := max(sel.after.rollout-1, 0)
	for {
		list, err := a.s.Rollouts(ctx, sel.filter, after, planPage)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return p, nil
		}
		after = list[len(list)-1].Key
		full, err := a.planRollouts(ctx, p, list)
		if err != nil || full {
			return p, err
		}
	}
}

func (a *API) planRollouts(ctx context.Context, p *plan, list []store.Rollout) (full bool, err error) {
	keys := make([]int64, len(list))
	for i := range list {
		keys[i] = list[i].Key
	}
	if err := a.m.Ensure(ctx, keys, p.Policy); err != nil {
		return false, err
	}
	rows, err := a.s.MergedRows(ctx, keys, p.Policy.String())
	if err != nil {
		return false, err
	}
	if rows, err = a.asBegun(ctx, p, rows); err != nil {
		return false, err
	}
	rewards, err := a.s.Rewards(ctx, keys)
	if err != nil {
		return false, err
	}
	for i := range list {
		p.Rollouts[list[i].Key] = &trajectory.Rollout{Rollout: list[i], Reward: outcome(rewards[list[i].Key])}
	}
	for _, r := range rows {
		k := p.Rollouts[r.RolloutKey]
		k.Rows++
		k.Trained += int64(r.TrainedTokens)
	}
	for _, r := range rows {
		if r.RolloutKey == p.after.rollout && r.Row <= p.after.row || !p.wants(&r) {
			continue
		}
		if p.limit > 0 && int64(len(p.Wants)) == p.limit {
			last := p.Wants[len(p.Wants)-1]
			p.next = position{last.Rollout, last.Row, last.Through}.String()
			return true, nil
		}
		p.Wants = append(p.Wants, trajectory.Want{Rollout: r.RolloutKey, Through: r.Through, Row: r.Row, Length: r.Length, InRollout: r.Row})
		p.tokens += int64(r.Length)
		p.trained += int64(r.TrainedTokens)
	}
	return false, nil
}

// asBegun puts the rows of the rollout in which the cursor stands as they were
// when the cursor was given.
func (a *API) asBegun(ctx context.Context, p *plan, rows []store.MergedRow) ([]store.MergedRow, error) {
	at := slices.IndexFunc(rows, func(r store.MergedRow) bool { return r.RolloutKey == p.after.rollout })
	if at < 0 || rows[at].Through == p.after.through {
		return rows, nil
	}
	calls, err := a.s.LoadCalls(ctx, []int64{p.after.rollout}, p.after.through)
	if err != nil {
		return nil, err
	}
	m := pass.Run(calls[0], p.Policy)
	begun := make([]store.MergedRow, len(m.Result.Trajectories))
	for i, t := range m.Result.Trajectories {
		lo, hi := trajectory.New(m, "", i, nil).Versions()
		begun[i] = store.MergedRow{RolloutKey: p.after.rollout, Through: p.after.through, Row: i, Length: t.Length,
			TrainedTokens: t.TrainedTokens, VersionMin: lo, VersionMax: hi}
	}
	rest := slices.DeleteFunc(rows, func(r store.MergedRow) bool { return r.RolloutKey == p.after.rollout })
	return slices.Insert(rest, at, begun...), nil
}

// wants applies the filters on policy versions. A row whose versions are not
// known passes neither of them.
func (p *plan) wants(r *store.MergedRow) bool {
	if p.versionMin != nil && (r.VersionMin == nil || *r.VersionMin < *p.versionMin) {
		return false
	}
	return p.versionMax == nil || r.VersionMax != nil && *r.VersionMax <= *p.versionMax
}

// ensureAll merges everything that policy has not merged.
func (a *API) ensureAll(ctx context.Context, policy merge.Policy) error {
	if err := a.s.WaitDrained(ctx, a.s.NewestBatch()); err != nil {
		return err
	}
	return a.m.EnsureAll(ctx, policy)
}
