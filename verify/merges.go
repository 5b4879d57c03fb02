package verify

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
)

// generation is one published merge.
type generation struct {
	number, through      int64
	policy               string
	traces, trajectories int
	sampled, trained     int64
	rows                 []mergedTrace
	trajs                []trajectory
}

// mergedTrace is a row of ice.merged_traces.
type mergedTrace struct {
	key         int64
	disposition string
	previous    sql.NullInt64
	cut         int
	spanStart   sql.NullInt64
	row         sql.NullInt64
	boundary    sql.NullString
	nearest     sql.NullInt64
	shared      sql.NullInt64
}

// trajectory is a row of ice.trajectories.
type trajectory struct {
	index                  int
	id                     string
	naming, last           int64
	length                 int
	trained                int64
	versionMin, versionMax sql.NullInt64
	rewritten              bool
}

// newestGenerations selects what is published of a page.
const newestGenerations = `(SELECT * FROM ice.generations WHERE rollout_key BETWEEN ? AND ?
	QUALIFY row_number() OVER (PARTITION BY rollout_key, policy ORDER BY generation DESC) = 1)`

// loadMerges reads the published merges of a page.
func (v *run) loadMerges(ctx context.Context, q querier, p *page) error {
	drained, err := q.int(ctx, `SELECT max(last_batch) FROM ice.drains`)
	if err != nil {
		return err
	}
	byNumber := map[int64]*generation{}
	err = q.each(ctx, func(s scan) error {
		g := &generation{}
		var rolloutKey int64
		err := s(&g.number, &rolloutKey, &g.policy, &g.through, &g.traces, &g.trajectories, &g.sampled, &g.trained)
		r := p.byKey[rolloutKey]
		if err != nil || r == nil {
			return err
		}
		switch {
		case g.through > drained:
			v.fail(checkMerges, r.name(), "", "%s is merged through batch %d, but only %d are drained", g.policy, g.through, drained)
		case g.through > v.through:
			v.Ahead++
			return nil
		}
		v.Generations++
		byNumber[g.number] = g
		r.merges = append(r.merges, g)
		return nil
	}, `SELECT generation, rollout_key, policy, through_batch, traces, trajectories, sampled_tokens, trained_tokens
		FROM `+newestGenerations+` ORDER BY rollout_key, policy`, p.first, p.last)
	if err != nil {
		return err
	}
	err = q.each(ctx, func(s scan) error {
		var number int64
		var m mergedTrace
		err := s(&number, &m.key, &m.disposition, &m.previous, &m.cut, &m.spanStart, &m.row, &m.boundary, &m.nearest, &m.shared)
		if g := byNumber[number]; g != nil {
			g.rows = append(g.rows, m)
		}
		return err
	}, `SELECT m.generation, m.trace_key, m.disposition, m.previous_key, m.cut, m.span_start, m.row_index, m.boundary,
			m.nearest_key, m.shared
		FROM ice.merged_traces m SEMI JOIN `+newestGenerations+` g
			ON g.generation = m.generation AND g.rollout_key = m.rollout_key AND g.policy = m.policy
		WHERE m.rollout_key BETWEEN ? AND ? ORDER BY m.generation, m.trace_key`, p.first, p.last, p.first, p.last)
	if err != nil {
		return err
	}
	return q.each(ctx, func(s scan) error {
		var number int64
		var t trajectory
		err := s(&number, &t.index, &t.id, &t.naming, &t.last, &t.length, &t.trained, &t.versionMin, &t.versionMax, &t.rewritten)
		if g := byNumber[number]; g != nil {
			g.trajs = append(g.trajs, t)
			v.Trajectories++
		}
		return err
	}, `SELECT t.generation, t.row_index, t.trajectory_id, t.naming_key, t.last_key, t.length, t.trained_tokens,
			t.policy_version_min, t.policy_version_max, t.history_rewritten
		FROM ice.trajectories t SEMI JOIN `+newestGenerations+` g
			ON g.generation = t.generation AND g.rollout_key = t.rollout_key AND g.policy = t.policy
		WHERE t.rollout_key BETWEEN ? AND ? ORDER BY t.generation, t.row_index`, p.first, p.last, p.first, p.last)
}

// policyOf takes a policy's canonical form apart.
func policyOf(s string) (name string, endOfTurn *int32, ok bool) {
	switch s {
	case "strict_tree", "per_request", "polar_compat":
		return s, nil, true
	}
	n, found := strings.CutPrefix(s, "polar_compat(end_of_turn=")
	n, closed := strings.CutSuffix(n, ")")
	id, err := strconv.ParseInt(n, 10, 32)
	if !found || !closed || err != nil || id < 0 || strconv.FormatInt(id, 10) != n {
		return "", nil, false
	}
	id32 := int32(id)
	return "polar_compat", &id32, true
}

// trajectoryID names a row: the first half of SHA-256 over rollout, policy and
// naming trace, each after its length in eight bytes, big-endian.
func trajectoryID(rollout, policy, trace string) string {
	h := sha256.New()
	for _, s := range []string{rollout, policy, trace} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	return "tr_" + hex.EncodeToString(h.Sum(nil)[:16])
}
