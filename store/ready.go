package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Asked says which groups a consumer wants, and when they count as ready.
type Asked struct {
	Filter GroupFilter
	// Rewarded: every rollout that a group needs must be settled; else finished.
	Rewarded bool
	// Quiet is how long a group that declares no size must bring no new rollout.
	Quiet time.Duration
	// Incomplete is how long a finished rollout may wait for announced calls that
	// have not come; negative: nobody waits for them.
	Incomplete time.Duration
	// Seed orders groups by a hash of it and their names; nil: those that finished
	// longest ago come first.
	Seed *int64
}

// quietUntil is when time alone has made a group g ready, for the numbers that
// quiet binds as ?3 and ?4.
const quietUntil = `max(CASE WHEN g.group_id IS NOT NULL AND g.declared IS NULL THEN g.newest_at + ?3 ELSE 0 END,
	CASE WHEN ?4 >= 0 AND g.incomplete_at > 0 THEN g.incomplete_at + ?4 ELSE 0 END)`

func (a *Asked) quiet() []any {
	incomplete := a.Incomplete.Microseconds()
	if a.Incomplete < 0 {
		incomplete = -1
	}
	return []any{a.Quiet.Microseconds(), incomplete}
}

// stages are those of groups that are ready but for time.
func (a *Asked) stages() []int {
	if a.Rewarded {
		return []int{2}
	}
	return []int{1, 2}
}

// Ready gives a consumer's ready groups one after the other, and reads them as
// they are wanted. What is ready is what was when it was made; a group that
// changes meanwhile comes once, as it is when it is read. It is for one user at a
// time.
type Ready struct {
	s        *Store
	asked    Asked
	now      int64
	consumer int64
	from     int64 // finished before this: not given out

	list []Candidate
	// The last group that was read; seen has all of them.
	place, key int64
	seen       map[int64]bool
	// shuffled has all that are ready, and is there when a seed is.
	shuffled *shuffled
	end      bool
}

// ReadyGroups brings a consumer's groups up to date, and gives those that it may
// be given now. A consumer that is not known is made.
func (s *Store) ReadyGroups(ctx context.Context, consumer string, asked Asked) (*Ready, error) {
	if err := s.refreshGroups(ctx, consumer); err != nil {
		return nil, err
	}
	r := &Ready{s: s, asked: asked, now: s.now(), seen: map[int64]bool{}, place: -1}
	err := s.control.read.QueryRowContext(ctx, `SELECT consumer_key, coalesce(from_time, 0) FROM consumers WHERE name = ?`, consumer).
		Scan(&r.consumer, &r.from)
	if errors.Is(err, sql.ErrNoRows) {
		r.end = true // it was dropped meanwhile
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read consumer %s: %w", consumer, err)
	}
	if asked.Seed != nil {
		r.shuffled, err = r.shuffle(ctx, *asked.Seed)
	}
	return r, err
}

// Peek gives the next groups, at most n; fewer when there are no more.
func (r *Ready) Peek(ctx context.Context, n int) ([]Candidate, error) {
	for len(r.list) < n && !r.end {
		read := r.inTime
		if r.shuffled != nil {
			read = r.inShuffle
		}
		if err := read(ctx, n-len(r.list)+1); err != nil { // one more tells whether there are more
			return nil, err
		}
	}
	return r.list[:min(n, len(r.list))], nil
}

// Drop passes over the first n groups that Peek gave.
func (r *Ready) Drop(n int) { r.list = r.list[n:] }

const candidateColumns = `g.group_key, coalesce(g.group_id, ''), g.declared, g.known, g.finished, g.settled, g.finished_at, g.newest_at,
	g.incomplete_at`

// readyColumns are the same out of the index where they are in it, which keeps
// SQLite from sorting.
const readyColumns = `d.group_key, coalesce(g.group_id, ''), g.declared, g.known, g.finished, g.settled, d.place, g.newest_at, g.incomplete_at`

// sources are selections of the columns, one for each place where ready groups
// stand: ?1 is the time, ?2 the consumer, ?5 and ?6 the place and key that were
// read last, ?7 the bound of a seek. Each index gives its groups in order.
func (r *Ready) sources(columns string) (list []string, args []any) {
	match, values := r.asked.Filter.where(8)
	when := ` AND ` + quietUntil + ` <= ?1 AND ` + match
	for _, stage := range r.asked.stages() {
		list = append(list, `SELECT `+columns+` FROM deliveries d INDEXED BY deliveries_ready CROSS JOIN groups g ON g.group_key = d.group_key
			WHERE d.consumer_key = ?2 AND d.state = 'waiting' AND d.stage > 0 AND d.stage = `+strconv.Itoa(stage)+`
				AND d.place >= max(?5, ?7) AND (d.place > ?5 OR d.group_key > ?6)`+when)
	}
	// What leases hold whose time is over: they were given out after any seek.
	list = append(list, `SELECT `+columns+` FROM leases l INDEXED BY leases_unsettled
			CROSS JOIN deliveries d ON d.lease_key = l.lease_key AND d.state = 'held' CROSS JOIN groups g ON g.group_key = d.group_key
		WHERE l.consumer_key = ?2 AND l.settled_at = 0 AND l.expires_at <= ?1 AND d.stage >= `+strconv.Itoa(r.asked.stages()[0])+`
			AND (d.place > ?5 OR d.place = ?5 AND d.group_key > ?6)`+when)
	return list, slices.Concat([]any{r.now, r.consumer}, r.asked.quiet(), []any{r.place, r.key, r.from}, values)
}

// nextInTime selects the n groups that come next in time.
func (r *Ready) nextInTime(n int) (text string, args []any) {
	sources, args := r.sources(readyColumns)
	return strings.Join(sources, ` UNION ALL `) + ` ORDER BY 7, 1 LIMIT ` + strconv.Itoa(n), args
}

func (r *Ready) inTime(ctx context.Context, n int) error {
	text, args := r.nextInTime(n)
	got, err := r.read(ctx, text, args...)
	if err != nil {
		return err
	}
	if r.end = len(got) < n; len(got) > 0 {
		last := &got[len(got)-1]
		r.place, r.key = last.FinishedAt, last.Key
	}
	r.add(got)
	return nil
}

func (r *Ready) read(ctx context.Context, text string, args ...any) (list []Candidate, err error) {
	rows, err := r.s.control.read.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, fmt.Errorf("list ready groups: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	for rows.Next() {
		var c Candidate
		if err := rows.Scan(&c.Key, &c.GroupID, &c.Declared, &c.Known, &c.Finished, &c.Settled, &c.FinishedAt, &c.NewestAt, &c.IncompleteAt); err != nil {
			return nil, fmt.Errorf("list ready groups: %w", err)
		}
		list = append(list, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list ready groups: %w", err)
	}
	return list, nil
}

func (r *Ready) add(list []Candidate) {
	for _, c := range list {
		if !r.seen[c.Key] {
			r.seen[c.Key] = true
			r.list = append(r.list, c)
		}
	}
}
