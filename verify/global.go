package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
)

// drainedTables are the warehouse tables that the journal feeds.
var drainedTables = []string{"traces", "tapes", "tape_chunks", "logprob_chunks", "bodies", "rollouts", "rewards",
	"learner_posts", "learner_logprob_chunks"}

// drains finds out how far the warehouse is, and that no row is further.
func (v *run) drains(ctx context.Context) error {
	return snapshot(ctx, v.src.Warehouse, func(q querier) (err error) {
		if v.drained, err = q.int(ctx, `SELECT max(last_batch) FROM ice.drains`); err != nil {
			return err
		}
		v.through = v.src.ThroughBatch
		if v.through == 0 {
			v.through = v.drained
		}
		v.ThroughBatch = v.through
		if v.through > v.drained {
			return fmt.Errorf("batch %d is not drained: the warehouse holds batches up to %d", v.through, v.drained)
		}
		v.checked(checkDrains, 1+len(drainedTables))
		for _, t := range drainedTables {
			newest, err := q.int(ctx, `SELECT max(batch) FROM ice.`+t)
			if err != nil {
				return err
			}
			if newest > v.drained {
				v.fail(checkDrains, "", "", "ice.%s holds rows of batch %d, but ice.drains ends with %d", t, newest, v.drained)
			}
		}
		return q.each(ctx, func(s scan) error {
			var batch, n int64
			if err := s(&batch, &n); err != nil {
				return err
			}
			v.fail(checkDrains, "", "", "ice.drains records batch %d %d times: it was drained more than once", batch, n)
			return nil
		}, `SELECT last_batch, count(*) FROM ice.drains GROUP BY 1 HAVING count(*) > 1 ORDER BY 1`)
	})
}

// counters compares the next keys with the greatest in use. The warehouse is
// read first: keys are given out before they reach it, never after.
func (v *run) counters(ctx context.Context) error {
	used := map[string]int64{}
	use := func(q querier, counter, text string) error {
		n, err := q.int(ctx, text)
		used[counter] = max(used[counter], n)
		return err
	}
	ask := func(q querier, texts ...string) error {
		for i := 0; i < len(texts); i += 2 {
			if err := use(q, texts[i], texts[i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	err := snapshot(ctx, v.src.Warehouse, func(q querier) error {
		texts := []string{"next_batch", `SELECT max(last_batch) FROM ice.drains`,
			"next_trace", `SELECT max(trace_key) FROM ice.traces`, "next_tape", `SELECT max(tape_key) FROM ice.tapes`,
			"next_post", `SELECT max(post_key) FROM ice.learner_posts`}
		for _, t := range drainedTables {
			texts = append(texts, "next_batch", `SELECT max(batch) FROM ice.`+t, "next_rollout", `SELECT max(rollout_key) FROM ice.`+t)
		}
		return ask(q, texts...)
	})
	if err != nil {
		return err
	}
	return snapshot(ctx, v.src.Control, func(q querier) error {
		err := ask(q, "next_batch", `SELECT max(batch) FROM journal`, "next_batch", `SELECT max(batch) FROM trace_index`,
			"next_batch", `SELECT max(last_batch) FROM rollouts`, "next_trace", `SELECT max(trace_key) FROM trace_index`,
			"next_rollout", `SELECT max(rollout_key) FROM rollouts`, "next_rollout", `SELECT max(rollout_key) FROM trace_index`,
			"next_post", `SELECT max(post_key) FROM learner_posts`)
		if err != nil {
			return err
		}
		for _, name := range []string{"next_batch", "next_trace", "next_tape", "next_rollout", "next_post"} {
			next, err := q.int(ctx, `SELECT max(value) FROM meta WHERE key = ?`, name)
			if err != nil {
				return err
			}
			v.checked(checkCounters, 1)
			if next <= used[name] && used[name] > 0 {
				v.fail(checkCounters, "", "", "%s is %d, but %d is in use: the next one given out would be taken twice",
					name, next, used[name])
			}
		}
		return nil
	})
}

// duplicateKeys looks for keys that two rows share, wherever they lie.
func (v *run) duplicateKeys(ctx context.Context) error {
	return snapshot(ctx, v.src.Warehouse, func(q querier) error {
		for _, k := range []struct{ check, table, key string }{
			{checkTraces, "traces", "trace_key"}, {checkTraces, "traces", "trace_id"},
			{checkTapes, "tapes", "tape_key"}, {checkLearner, "learner_posts", "post_key"},
		} {
			err := q.each(ctx, func(s scan) error {
				var key string
				var n, batches int64
				if err := s(&key, &n, &batches); err != nil {
					return err
				}
				v.fail(k.check, "", "", "ice.%s holds %s %s %d times, from %d batches", k.table, k.key, key, n, batches)
				return nil
			}, fmt.Sprintf(`SELECT CAST(%[1]s AS VARCHAR), count(*), count(DISTINCT batch) FROM ice.%[2]s WHERE batch <= ?
				GROUP BY %[1]s HAVING count(*) > 1 ORDER BY %[1]s LIMIT 10000`, k.key, k.table), v.through)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// control checks what the control database says about itself, in one moment.
func (v *run) control(ctx context.Context) error {
	return snapshot(ctx, v.src.Control, func(q querier) error {
		for _, step := range []func(context.Context, querier) error{v.indexCounts, v.rolloutCounts, v.intents, v.delivery} {
			if err := step(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
}

func (v *run) indexCounts(ctx context.Context, q querier) error {
	return q.each(ctx, func(s scan) error {
		var key int64
		var n int
		if err := s(&key, &n); err != nil {
			return err
		}
		v.indexed[key] = n
		return nil
	}, `SELECT rollout_key, count(*) FROM trace_index WHERE batch <= ? GROUP BY 1`, v.through)
}

func (v *run) rolloutCounts(ctx context.Context, q querier) error {
	return q.each(ctx, func(s scan) error {
		var id string
		var key, traces, last, open, seq, isTraces, isLast, isOpen, announced int64
		if err := s(&id, &key, &traces, &last, &open, &seq, &isTraces, &isLast, &isOpen, &announced); err != nil {
			return err
		}
		v.checked(checkRollouts, 4)
		v.lastSeq[key] = seq
		if announced > seq {
			v.fail(checkRollouts, id, "", "last_seq is %d, but a call is announced with seq %d: its number would be given twice", seq, announced)
		}
		for _, c := range []struct {
			what    string
			has, is int64
		}{{"traces", traces, isTraces}, {"last_batch", last, isLast}, {"open_intents", open, isOpen}} {
			if c.has != c.is {
				v.fail(checkRollouts, id, "", "%s is %d in the control database, where index and intents make it %d", c.what, c.has, c.is)
			}
		}
		return nil
	}, `SELECT r.rollout_id, r.rollout_key, r.traces, r.last_batch, r.open_intents, r.last_seq, coalesce(t.n, 0), coalesce(t.b, 0),
			coalesce(i.n, 0), coalesce(i.seq, 0)
		FROM rollouts r
		LEFT JOIN (SELECT rollout_key, count(*) AS n, max(batch) AS b FROM trace_index GROUP BY 1) t ON t.rollout_key = r.rollout_key
		LEFT JOIN (SELECT rollout_key, count(*) AS n, max(seq) AS seq FROM intents GROUP BY 1) i ON i.rollout_key = r.rollout_key
		ORDER BY r.rollout_key`)
}

// intents finds announced calls that are not open, or belong nowhere.
func (v *run) intents(ctx context.Context, q querier) error {
	return q.each(ctx, func(s scan) error {
		var hash []byte
		var id, rollout string
		var known, stored bool
		if err := s(&hash, &id, &rollout, &known, &stored); err != nil {
			return err
		}
		v.checked(checkIntents, 1)
		sum := sha256.Sum256([]byte(id))
		switch {
		case !bytes.Equal(hash, sum[:16]):
			v.fail(checkIntents, rollout, id, "the intent lies under another trace's hash, %x", hash)
		case !known:
			v.fail(checkIntents, rollout, id, "the intent belongs to a rollout that does not exist")
		case stored:
			v.fail(checkIntents, rollout, id, "the call is still announced, though its trace is stored")
		}
		return nil
	}, `SELECT i.trace_hash, i.trace_id, coalesce(r.rollout_id, CAST(i.rollout_key AS TEXT)), r.rollout_key IS NOT NULL,
			t.trace_hash IS NOT NULL
		FROM intents i LEFT JOIN rollouts r ON r.rollout_key = i.rollout_key
		LEFT JOIN trace_index t ON t.trace_hash = i.trace_hash ORDER BY i.trace_id`)
}

// strayMerges finds merge rows that no generation owns. Superseded and dropped
// generations may still lie about, but whole.
func (v *run) strayMerges(ctx context.Context) error {
	return snapshot(ctx, v.src.Warehouse, func(q querier) error {
		err := q.each(ctx, func(s scan) error {
			var generation, n int64
			if err := s(&generation, &n); err != nil {
				return err
			}
			v.fail(checkMerges, "", "", "generation %d is recorded %d times", generation, n)
			return nil
		}, `SELECT generation, count(*) FROM ice.generations GROUP BY 1 HAVING count(*) > 1 ORDER BY 1`)
		if err != nil {
			return err
		}
		for _, t := range []string{"merged_traces", "trajectories"} {
			err := q.each(ctx, func(s scan) error {
				var generation, rollout, n int64
				var policy string
				if err := s(&generation, &rollout, &policy, &n); err != nil {
					return err
				}
				v.fail(checkMerges, "", "", "%d rows of ice.%s name generation %d of rollout %d by %s, which does not exist",
					n, t, generation, rollout, policy)
				return nil
			}, `SELECT m.generation, m.rollout_key, m.policy, count(*) FROM ice.`+t+` m ANTI JOIN (
				SELECT generation, rollout_key, policy FROM ice.generations UNION ALL
				SELECT generation, rollout_key, policy FROM ice.dropped_generations) g
				ON g.generation = m.generation AND g.rollout_key = m.rollout_key AND g.policy = m.policy GROUP BY ALL ORDER BY ALL LIMIT 10000`)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
