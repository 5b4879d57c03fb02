package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// Waiting counts the groups that a consumer is not given, or not yet, by why.
type Waiting struct {
	// Held are in leases now. Filtered do not match: the other counts are of those
	// that do.
	Held, Filtered int
	// Missing declare more rollouts than are known, and all known ones are finished.
	Missing, NotFinished, NotRewarded int
	// Quiet wait for time alone.
	Quiet int
	Ready int
	// Moment is when time alone first makes a group ready or gives one back, in
	// microseconds; 0: it does not.
	Moment int64
	// OldestReady is when the first of the ready groups finished; 0: there is none.
	OldestReady int64
}

// Waiting says how all groups of the consumer stand, at the moment for which
// ready groups were looked for: what becomes ready by time after it has its moment
// after it. A group of which all rollouts say something that the filter does not
// have is filtered; where they differ, whether it matches, they say. Its cost grows
// with the groups that wait.
func (r *Ready) Waiting(ctx context.Context) (w Waiting, err error) {
	match, values := r.asked.Filter.where(5)
	why := `CASE WHEN ` + isHeld + ` THEN 1 WHEN NOT ` + match + ` THEN 2
		WHEN g.stage = 0 AND g.finished = g.known THEN 3 WHEN g.stage = 0 THEN 4
		WHEN g.stage < ` + strconv.Itoa(r.asked.stages()[0]) + ` THEN 5
		WHEN ` + quietUntil + ` > ?1 THEN 6 ELSE 7 END`
	rows, err := r.s.control.read.QueryContext(ctx, `SELECT `+why+` AS why, count(*),
			min(CASE `+why+` WHEN 1 THEN l.expires_at WHEN 6 THEN `+quietUntil+` ELSE g.finished_at END)`+openGroups+` GROUP BY why`,
		slices.Concat([]any{r.now, r.consumer}, r.asked.quiet(), values)...)
	if err != nil {
		return w, fmt.Errorf("count groups: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	counts := []*int{&w.Held, &w.Filtered, &w.Missing, &w.NotFinished, &w.NotRewarded, &w.Quiet, &w.Ready}
	for rows.Next() {
		var why, n int
		var at int64
		if err := rows.Scan(&why, &n, &at); err != nil {
			return w, fmt.Errorf("count groups: %w", err)
		}
		switch *counts[why-1] = n; counts[why-1] {
		case &w.Ready:
			w.OldestReady = at
		case &w.Held, &w.Quiet:
			if w.Moment == 0 || at < w.Moment {
				w.Moment = at
			}
		}
	}
	if err := rows.Err(); err != nil {
		return w, fmt.Errorf("count groups: %w", err)
	}
	return w, nil
}
