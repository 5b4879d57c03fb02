package verify

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// sums is what is counted of a group.
type sums struct {
	declared                           sql.NullInt64
	known, finished, settled           int64
	finishedAt, newestAt, incompleteAt int64
	// said is what all its rollouts say alike of split, harness, model and task_id;
	// not valid where they differ.
	said [4]sql.NullString
}

// member is what a rollout adds to its group.
type member struct {
	key, created, updated, open int64
	id                          string
	group, status               sql.NullString
	size, finishedAt            sql.NullInt64
	rewarded                    bool
	said                        [4]string
}

func (s *sums) add(m *member) {
	for i, said := range m.said {
		if s.known == 0 {
			s.said[i] = sql.NullString{String: said, Valid: true}
		} else if s.said[i].Valid && s.said[i].String != said {
			s.said[i] = sql.NullString{}
		}
	}
	s.known++
	s.newestAt = max(s.newestAt, m.created)
	if m.size.Valid && (!s.declared.Valid || s.declared.Int64 < m.size.Int64) {
		s.declared = m.size
	}
	if !m.status.Valid {
		return
	}
	s.finished++
	s.finishedAt = max(s.finishedAt, m.finishedAt.Int64)
	if m.rewarded || m.status.String != "succeeded" {
		s.settled++
	}
	if m.open > 0 {
		s.incompleteAt = max(s.incompleteAt, m.updated)
	}
}

// groups counts each group, and compares where it is said that the numbers are
// of now. A rollout without a group is one by itself once it is finished.
func (v *run) groups(ctx context.Context, q querier) error {
	named, alone := map[string]*sums{}, map[int64]*sums{}
	err := q.each(ctx, func(s scan) error {
		var m member
		if err := s(&m.key, &m.id, &m.group, &m.size, &m.status, &m.finishedAt, &m.created, &m.updated, &m.open, &m.rewarded,
			&m.said[0], &m.said[1], &m.said[2], &m.said[3]); err != nil {
			return err
		}
		switch {
		case m.group.Valid:
			if named[m.group.String] == nil {
				named[m.group.String] = &sums{}
			}
			named[m.group.String].add(&m)
		case m.status.Valid:
			alone[m.key] = &sums{}
			alone[m.key].add(&m)
		}
		return nil
	}, `SELECT rollout_key, rollout_id, group_id, group_size, status, finished_at, created_at, updated_at, open_intents,
			rollout_key IN (SELECT rollout_key FROM rewards WHERE name = 'outcome' AND trace_id = ''),
			coalesce(split, ''), coalesce(harness, ''), coalesce(model, ''), coalesce(task_id, '') FROM rollouts`)
	if err != nil {
		return err
	}
	err = q.each(ctx, func(s scan) error {
		var id sql.NullString
		var rollout sql.NullInt64
		var stale bool
		var has sums
		if err := s(&id, &rollout, &stale, &has.declared, &has.known, &has.finished, &has.settled, &has.finishedAt, &has.newestAt,
			&has.incompleteAt, &has.said[0], &has.said[1], &has.said[2], &has.said[3]); err != nil {
			return err
		}
		v.checked(checkGroups, 1)
		is, name := named[id.String], "group "+id.String
		if !id.Valid {
			is, name = alone[rollout.Int64], "the group of the rollout with key "+itoa(rollout.Int64)
		}
		if is == nil {
			is = &sums{} // its rollouts went elsewhere
		}
		if !stale && has != *is {
			v.fail(checkGroups, "", "", "%s is %v, where counting makes it %v", name, has, *is)
		}
		delete(named, id.String)
		delete(alone, rollout.Int64)
		return nil
	}, `SELECT group_id, rollout_key, stale, declared, known, finished, settled, finished_at, newest_at, incomplete_at,
			split, harness, model, task_id FROM groups`)
	if err != nil {
		return err
	}
	for id := range named {
		v.fail(checkGroups, "", "", "group %s is not known, though rollouts are in it", id)
	}
	for key := range alone {
		v.fail(checkGroups, "key "+itoa(key), "", "finished, without a group, and not known as one by itself")
	}
	return nil
}

// String writes sums for people.
func (s sums) String() string {
	declared := "none"
	if s.declared.Valid {
		declared = itoa(s.declared.Int64)
	}
	said := make([]string, len(s.said))
	for i, v := range s.said {
		said[i] = "differing"
		if v.Valid {
			said[i] = fmt.Sprintf("%q", v.String)
		}
	}
	return fmt.Sprintf("(declared %s, known %d, finished %d, settled %d, last finish %d, newest %d, incomplete %d, %s)",
		declared, s.known, s.finished, s.settled, s.finishedAt, s.newestAt, s.incompleteAt, strings.Join(said, ", "))
}
