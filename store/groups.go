package store

import (
	"context"
	"fmt"
	"sync"

	"icecore/trace"
)

// Groups are marked when something in them changes, which must cost little
// because ingest waits for it, and summed when somebody asks.

// mark notes that the rollout's group must be summed again, in the commit's end.
func (k *commit) mark(r *Rollout) { k.marked[r.Key] = r }

// markChanged says what a change of the rollout means for groups and pins.
func (k *commit) markChanged(ctx context.Context, r *Rollout) error {
	// Before it is finished, a change that is not published concerns no group.
	if !r.published || r.Status != "" {
		k.mark(r)
	}
	if !r.Reopened {
		return nil
	}
	_, err := k.c.st.reopenPins.ExecContext(ctx, r.Key, r.LastBatch)
	if err != nil {
		return fmt.Errorf("mark what was delivered of rollout %s: %w", r.ID, err)
	}
	return nil
}

// markRewarded says what a stored reward means for groups and pins.
func (k *commit) markRewarded(ctx context.Context, r *Rollout, w *trace.Reward) error {
	if w.TraceID != "" || w.Name != trace.DefaultReward {
		return nil
	}
	k.mark(r)
	if _, err := k.c.st.rewardPins.ExecContext(ctx, r.Key); err != nil {
		return fmt.Errorf("mark what was delivered of rollout %s: %w", r.ID, err)
	}
	return nil
}

// writeMarks puts the marks into the transaction, each group once.
func (k *commit) writeMarks(ctx context.Context) error {
	named := map[string]bool{}
	for _, r := range k.marked {
		var err error
		if r.GroupID != "" {
			named[r.GroupID] = true
		} else if r.Status != "" {
			_, err = k.c.st.markSingle.ExecContext(ctx, r.Key)
		}
		if was := r.savedGroup; err == nil && was != r.GroupID {
			if was != "" {
				named[was] = true
			} else {
				_, err = k.c.st.unmarkSingle.ExecContext(ctx, r.Key)
			}
		}
		if err != nil {
			return fmt.Errorf("mark the group of rollout %s: %w", r.ID, err)
		}
		r.savedGroup = r.GroupID
	}
	for id := range named {
		if _, err := k.c.st.markGroup.ExecContext(ctx, id); err != nil {
			return fmt.Errorf("mark group %s: %w", id, err)
		}
	}
	k.ready = k.ready || len(k.marked) > 0
	return nil
}

// outcomeOf selects the reward that learners train on, by the rollout's key:
// the rollout's own outcome with the highest revision, of several sources the
// first by name.
func outcomeOf(rolloutKey string) string {
	return `(SELECT reward_id FROM rewards WHERE rewards.rollout_key = ` + rolloutKey + ` AND trace_id = '' AND name = '` +
		trace.DefaultReward + `' ORDER BY revision DESC, source LIMIT 1)`
}

// alike is what all rollouts of a group say of an attribute; NULL when they differ.
func alike(column string) string {
	said := `coalesce(` + column + `, '')`
	return `CASE WHEN min(` + said + `) = max(` + said + `) THEN min(` + said + `) END`
}

const (
	markGroupText = `INSERT INTO groups (group_id) VALUES (?)
		ON CONFLICT (group_id) WHERE group_id IS NOT NULL DO UPDATE SET stale = 1 WHERE stale = 0`
	markSingleText = `INSERT INTO groups (rollout_key) VALUES (?)
		ON CONFLICT (rollout_key) WHERE rollout_key IS NOT NULL DO UPDATE SET stale = 1 WHERE stale = 0`
	unmarkSingleText = `UPDATE groups SET stale = 1 WHERE rollout_key = ?`
	reopenPinsText   = `UPDATE pins SET reopened = 1 WHERE rollout_key = ?1 AND last_batch < ?2 AND reopened = 0`
)

var (
	rewardPinsText = `UPDATE pins SET rewarded = (reward_id IS NOT ` + outcomeOf("pins.rollout_key") + `) WHERE rollout_key = ?1`

	// sumGroupsText sums the groups of a JSON list of keys. One of the two terms
	// finds rollouts, by what the group is.
	sumGroupsText = `UPDATE groups SET stale = 0, (declared, known, finished, settled, finished_at, newest_at, incomplete_at,
			split, harness, model, task_id) = (
		SELECT max(group_size), count(*), count(status),
			count(*) FILTER (WHERE status <> 'succeeded' OR status IS NOT NULL AND ` + outcomeOf("r.rollout_key") + ` IS NOT NULL),
			coalesce(max(finished_at), 0), coalesce(max(created_at), 0),
			coalesce(max(updated_at) FILTER (WHERE status IS NOT NULL AND open_intents > 0), 0),
			` + alike("split") + `, ` + alike("harness") + `, ` + alike("model") + `, ` + alike("task_id") + `
		FROM rollouts r WHERE r.group_id = groups.group_id OR r.rollout_key = groups.rollout_key AND r.group_id IS NULL)
	WHERE group_key IN (SELECT value FROM json_each(?1))`
)

// placeGroupsText tells all consumers that have taken the groups of a list in
// where they stand now. It is an upsert, because an update from a list would walk
// the table instead.
const placeGroupsText = `INSERT INTO deliveries (consumer_key, group_key, state, stage, place)
	SELECT c.consumer_key, g.group_key, 'waiting', g.stage, g.finished_at
	FROM json_each(?1) j CROSS JOIN groups g ON g.group_key = j.value CROSS JOIN consumers c ON c.taken_key >= g.group_key
	WHERE true ON CONFLICT (consumer_key, group_key) DO UPDATE SET stage = excluded.stage, place = excluded.place
	WHERE stage <> excluded.stage OR place <> excluded.place`

// sumAtOnce bounds the groups that one commit sums, so that ingest does not wait
// long for it.
const sumAtOnce = 1024

// sumGroups sums stale groups, at most limit (negative: all), and says how many.
func (k *commit) sumGroups(ctx context.Context, limit int) (n int, err error) {
	var keys string
	err = k.c.conn.QueryRowContext(ctx, `SELECT count(*), json_group_array(group_key) FROM (SELECT group_key FROM groups WHERE stale = 1 LIMIT ?)`,
		limit).Scan(&n, &keys)
	if err != nil {
		return 0, fmt.Errorf("look for stale groups: %w", err)
	}
	if n == 0 {
		return 0, nil
	}
	if err := k.exec(ctx, "sum groups", sumGroupsText, keys); err != nil {
		return 0, err
	}
	return n, k.exec(ctx, "place groups", placeGroupsText, keys)
}

// groups makes rows for groups that have none, has all of them summed again, and
// looks anew for what changed after it was delivered. What consumers were given
// is nowhere but here, and stays.
func (b *rebuilder) groups(ctx context.Context) error {
	return b.exec(ctx, `
		INSERT INTO groups (group_id) SELECT DISTINCT group_id FROM rollouts
			WHERE group_id IS NOT NULL AND group_id NOT IN (SELECT group_id FROM groups WHERE group_id IS NOT NULL);
		INSERT INTO groups (rollout_key) SELECT rollout_key FROM rollouts
			WHERE group_id IS NULL AND status IS NOT NULL
				AND rollout_key NOT IN (SELECT rollout_key FROM groups WHERE rollout_key IS NOT NULL);
		UPDATE groups SET stale = 1;
		UPDATE pins SET rewarded = (reward_id IS NOT `+outcomeOf("pins.rollout_key")+`),
			reopened = coalesce((SELECT r.last_batch > pins.last_batch FROM rollouts r WHERE r.rollout_key = pins.rollout_key), 0)`)
}

// broadcast wakes everybody who waits, once.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

func newBroadcast() *broadcast { return &broadcast{ch: make(chan struct{})} }

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ch)
	b.ch = make(chan struct{})
}

// GroupsChanged gives a channel that is closed at the next commit that could
// make a group ready for somebody: a rollout opened, finished, rewarded or
// changed, a lease that was settled, a seek. Take it before Candidates, so
// that nothing is missed. What only time brings (an expiry, the delay of a
// return) closes nothing.
func (s *Store) GroupsChanged() <-chan struct{} { return s.groups.wait() }
