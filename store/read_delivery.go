package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GroupFilter selects groups by what their rollouts say. Each list means "one of";
// an empty one selects all.
type GroupFilter struct{ GroupIDs, Splits, Harnesses, Models, TaskIDs []string }

// where is the filter as a condition on groups g, which may stand in a statement
// several times: its values are numbered from first on. A group whose rollouts
// differ passes.
func (f *GroupFilter) where(first int) (string, []any) {
	terms := []string{"1=1"}
	var args []any
	in := func(column, or string, values []string) {
		if len(values) == 0 {
			return
		}
		places := make([]string, len(values))
		for i, v := range values {
			places[i] = "?" + strconv.Itoa(first+len(args))
			args = append(args, v)
		}
		terms = append(terms, "("+or+column+" IN ("+strings.Join(places, ",")+"))")
	}
	in("coalesce(g.group_id, '')", "", f.GroupIDs)
	in("g.split", "g.split IS NULL OR ", f.Splits)
	in("g.harness", "g.harness IS NULL OR ", f.Harnesses)
	in("g.model", "g.model IS NULL OR ", f.Models)
	in("g.task_id", "g.task_id IS NULL OR ", f.TaskIDs)
	return "(" + strings.Join(terms, " AND ") + ")", args
}

// CloserLook names those of the rollouts whose rows a learner does not get as they
// are published: they have a call that is auxiliary, or without a prompt, or with
// an empty response (which polar_compat may let a row end after); or only some of
// their calls say what policy version sampled them.
func (s *Store) CloserLook(ctx context.Context, keys []int64) (map[int64]bool, error) {
	out := map[int64]bool{}
	for at := 0; at < len(keys); at += loadKeys {
		part := keys[at:min(at+loadKeys, len(keys))]
		err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
			out[c.i64()] = true
			return nil
		}), fmt.Sprintf(`SELECT rollout_key FROM ice.traces WHERE rollout_key BETWEEN %d AND %d AND rollout_key IN %s
			GROUP BY rollout_key HAVING bool_or(kind <> 'agent' OR prompt_length = 0 OR response_length = 0)
				OR count(coalesce(policy_version, policy_version_spans[1]."version")) NOT IN (0, count(*))`, slices.Min(part), slices.Max(part), inList(part)))
		if err != nil {
			return nil, fmt.Errorf("look for unusual calls: %w", err)
		}
	}
	return out, nil
}

// FromPolicyVersion is the bound that a seek set: groups with a row of an older
// version, or of an unknown one, lie before it. nil: no bound, or no such
// consumer. (Bounds by time are Candidates' matter.)
func (s *Store) FromPolicyVersion(ctx context.Context, consumer string) (from *int64, err error) {
	err = s.control.read.QueryRowContext(ctx, `SELECT from_policy_version FROM consumers WHERE name = ?`, consumer).Scan(&from)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read consumer %s: %w", consumer, err)
	}
	return from, nil
}
