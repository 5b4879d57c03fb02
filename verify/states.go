package verify

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// stateColumns are the attributes that both databases hold of a rollout.
var stateColumns = []string{"rollout_id", "task_id", "group_id", "group_size", "sample_index", "split", "harness",
	"harness_version", "model", "policy_version", "metadata", "status", "error", "finished_at", "reopened", "created_at", "open_intents"}

// state is a rollout's attributes as texts.
type state []sql.NullString

func scanState(s scan) (key int64, st state, err error) {
	st = make(state, len(stateColumns))
	to := make([]any, 0, 1+len(st))
	to = append(to, &key)
	for i := range st {
		to = append(to, &st[i])
	}
	return key, st, s(to...)
}

// reward is a reward as both databases hold it; texts that are absent are "".
type reward struct {
	rollout                       int64
	trace, name, source, metadata string
	revision                      int64
	value                         uint64
	at                            sql.NullInt64
	stored                        int64
}

func scanReward(s scan) (id string, w reward, err error) {
	var value float64
	err = s(&id, &w.rollout, &w.trace, &w.name, &w.source, &w.revision, &value, &w.at, &w.metadata, &w.stored)
	w.value = math.Float64bits(value)
	return id, w, err
}

// loadControl reads what the control database says of a page.
func (v *run) loadControl(ctx context.Context, q querier, p *page) error {
	p.states = [2]map[int64]state{{}, {}}
	p.rewards = [2]map[string]reward{{}, {}}
	p.newerRollouts, p.newerRewards = map[int64]bool{}, map[string]bool{}
	err := q.each(ctx, func(s scan) error {
		key, st, err := scanState(s)
		if err != nil {
			return err
		}
		p.states[0][key] = st
		if r := p.byKey[key]; r != nil {
			r.id = st[0].String
		}
		return nil
	}, `SELECT rollout_key, rollout_id, task_id, group_id, group_size, sample_index, split, harness, harness_version, model,
			policy_version, metadata, status, error, finished_at, reopened, created_at, open_intents
		FROM rollouts WHERE rollout_key BETWEEN ? AND ?`, p.first, p.last)
	if err != nil {
		return err
	}
	err = q.each(ctx, func(s scan) error {
		id, w, err := scanReward(s)
		p.rewards[0][id] = w
		return err
	}, `SELECT reward_id, rollout_key, trace_id, name, source, revision, value, at, coalesce(metadata, ''), stored_at
		FROM rewards WHERE rollout_key BETWEEN ? AND ?`, p.first, p.last)
	if err != nil {
		return err
	}
	return q.each(ctx, func(s scan) error {
		var table string
		var payload []byte
		if err := s(&table, &payload); err != nil {
			return err
		}
		// What cannot be decoded was told by the journal's own check.
		part, _ := decodePart(payload)
		for i := range part.rows {
			if table == "rollouts" {
				key, _ := part.value(i, "rollout_key").(int64)
				p.newerRollouts[key] = true
			} else {
				id, _ := part.value(i, "reward_id").(string)
				p.newerRewards[id] = true
			}
		}
		return nil
	}, `SELECT part, payload FROM journal WHERE batch > ? AND part IN ('rollouts', 'rewards')`, v.through)
}

// loadStates reads each rollout's newest state in the warehouse.
func (v *run) loadStates(ctx context.Context, q querier, p *page) error {
	err := q.each(ctx, func(s scan) error {
		var key, n int64
		if err := s(&key, &n); err != nil {
			return err
		}
		p.newerRollouts[key] = p.newerRollouts[key] || n > 0
		return nil
	}, `SELECT rollout_key, count(*) FROM ice.rollouts WHERE rollout_key BETWEEN ? AND ? AND batch > ? GROUP BY 1`, p.first, p.last, v.through)
	if err != nil {
		return err
	}
	return q.each(ctx, func(s scan) error {
		key, st, err := scanState(s)
		if err != nil {
			return err
		}
		if _, twice := p.states[1][key]; twice {
			v.fail(checkRollouts, st[0].String, "", "ice.rollouts holds its newest batch twice")
		}
		p.states[1][key] = st
		return nil
	}, `SELECT rollout_key, rollout_id, task_id, group_id, group_size, sample_index, split, harness, harness_version, model,
			policy_version, metadata, status, error, epoch_us(finished_at), CAST(reopened AS INTEGER), epoch_us(created_at), open_intents
		FROM ice.rollouts WHERE rollout_key BETWEEN ? AND ? AND batch <= ?
		QUALIFY rank() OVER (PARTITION BY rollout_key ORDER BY batch DESC) = 1`, p.first, p.last, v.through)
}

func (v *run) compareStates(p *page) {
	for _, r := range p.rollouts {
		c, inControl := p.states[0][r.key]
		w, inWarehouse := p.states[1][r.key]
		v.checked(checkRollouts, 1)
		switch {
		case !inControl:
			v.fail(checkRollouts, r.name(), "", "the control database does not know the rollout")
		case p.newerRollouts[r.key]:
		case !inWarehouse:
			v.fail(checkRollouts, r.name(), "", "ice.rollouts does not hold the rollout")
		default:
			for i, name := range stateColumns {
				if name == "open_intents" && !c[11].Valid { // no status: it is not kept up yet
					continue
				}
				if c[i] != w[i] {
					v.fail(checkRollouts, r.name(), "", "%s is %s in the control database, %s in the warehouse", name, quoted(c[i]), quoted(w[i]))
				}
			}
		}
	}
}

func quoted(s sql.NullString) string {
	if !s.Valid {
		return "absent"
	}
	return fmt.Sprintf("%q", s.String)
}

func (v *run) loadRewards(ctx context.Context, q querier, p *page) error {
	err := q.each(ctx, func(s scan) error {
		var id string
		err := s(&id)
		p.newerRewards[id] = true
		return err
	}, `SELECT reward_id FROM ice.rewards WHERE rollout_key BETWEEN ? AND ? AND batch > ?`, p.first, p.last, v.through)
	if err != nil {
		return err
	}
	return q.each(ctx, func(s scan) error {
		id, w, err := scanReward(s)
		if err != nil {
			return err
		}
		if _, twice := p.rewards[1][id]; twice {
			v.fail(checkRewards, p.nameOf(w.rollout), w.trace, "ice.rewards holds reward %s twice", id)
		}
		p.rewards[1][id] = w
		return nil
	}, `SELECT reward_id, rollout_key, coalesce(trace_id, ''), name, coalesce(source, ''), revision, value, epoch_us(rewarded_at),
			coalesce(metadata, ''), epoch_us(stored_at)
		FROM ice.rewards WHERE rollout_key BETWEEN ? AND ? AND batch <= ?`, p.first, p.last, v.through)
}

func (p *page) nameOf(key int64) string {
	if r := p.byKey[key]; r != nil {
		return r.name()
	}
	return "key " + itoa(key)
}

func (v *run) compareRewards(p *page) {
	for id, w := range p.rewards[0] {
		v.checked(checkRewards, 1)
		have, ok := p.rewards[1][id]
		switch {
		case !ok && !p.newerRewards[id]:
			v.fail(checkRewards, p.nameOf(w.rollout), w.trace, "reward %s is not in the warehouse", id)
		case ok && have != w:
			v.fail(checkRewards, p.nameOf(w.rollout), w.trace, "reward %s is %v in the control database, %v in the warehouse", id, w, have)
		}
	}
	for id, w := range p.rewards[1] {
		if _, ok := p.rewards[0][id]; !ok {
			v.fail(checkRewards, p.nameOf(w.rollout), w.trace, "reward %s is not in the control database", id)
		}
	}
}

// String writes a reward for people.
func (w reward) String() string {
	at := "unknown"
	if w.at.Valid {
		at = itoa(w.at.Int64)
	}
	return fmt.Sprintf("(%s by %q, revision %d: %v, at %s, metadata %q, stored %d)", w.name, w.source, w.revision,
		math.Float64frombits(w.value), at, w.metadata, w.stored)
}
