package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// stands judges one group as the contract says, in the numbers of Waiting.
func (a *Asked) stands(c *Candidate, now int64) (is func(*Waiting) *int, moment int64) {
	need := int64(c.Known)
	if c.Declared != nil {
		need = *c.Declared
	}
	need = max(need, 1)
	switch {
	case len(a.Filter.GroupIDs) > 0 && !slices.Contains(a.Filter.GroupIDs, c.GroupID):
		return func(w *Waiting) *int { return &w.Filtered }, 0
	case int64(c.Finished) < need && c.Finished == c.Known:
		return func(w *Waiting) *int { return &w.Missing }, 0
	case int64(c.Finished) < need:
		return func(w *Waiting) *int { return &w.NotFinished }, 0
	case a.Rewarded && int64(c.Settled) < need:
		return func(w *Waiting) *int { return &w.NotRewarded }, 0
	}
	if c.GroupID != "" && c.Declared == nil {
		moment = c.NewestAt + a.Quiet.Microseconds()
	}
	if a.Incomplete >= 0 && c.IncompleteAt > 0 {
		moment = max(moment, c.IncompleteAt+a.Incomplete.Microseconds())
	}
	if moment > now {
		return func(w *Waiting) *int { return &w.Quiet }, moment
	}
	return func(w *Waiting) *int { return &w.Ready }, 0
}

// shuffledBy orders groups as a seed does.
func shuffledBy(list []Candidate, seed int64) {
	hash := func(c Candidate) []byte {
		text := append(binary.BigEndian.AppendUint64(nil, uint64(seed)), c.GroupID...)
		if c.GroupID == "" {
			text = binary.BigEndian.AppendUint64(append(text, 0), uint64(c.Key))
		}
		sum := sha256.Sum256(text)
		return sum[:]
	}
	slices.SortFunc(list, func(a, b Candidate) int { return bytes.Compare(hash(a), hash(b)) })
}

// ready compares what may be given out with what is listed: which groups, in which
// order, however many are asked for at once; and why the others are not.
func (m *deliveryModel) ready(c *modelConsumer, list []Candidate, held int) {
	a := Asked{Rewarded: rapid.Bool().Draw(m.T, "rewarded"), Quiet: rapid.SampledFrom([]time.Duration{0, 30 * time.Second}).Draw(m.T, "quiet"),
		Incomplete: rapid.SampledFrom([]time.Duration{-1, 0, 30 * time.Second}).Draw(m.T, "incomplete"),
		Seed:       rapid.SampledFrom([]*int64{nil, ptr(int64(7)), ptr(int64(-1))}).Draw(m.T, "seed"),
		Filter:     GroupFilter{GroupIDs: rapid.SampledFrom([][]string{nil, {m.prefix + "g0"}, {"", m.prefix + "g1"}}).Draw(m.T, "only")}}
	now := m.clock.us.Load()
	want := Waiting{Held: held}
	for name := range m.sums() {
		d := c.of(name)
		if d.state == "held" && d.lease.expires > now && (want.Moment == 0 || d.lease.expires < want.Moment) {
			want.Moment = d.lease.expires
		}
	}
	ready := []Candidate{}
	for i := range list {
		is, moment := a.stands(&list[i], now)
		*is(&want)++
		if moment != 0 && (want.Moment == 0 || moment < want.Moment) {
			want.Moment = moment
		}
		if is(&want) == &want.Ready {
			ready = append(ready, list[i])
		}
	}
	if len(ready) > 0 {
		want.OldestReady = ready[0].FinishedAt
	}
	if a.Seed != nil {
		shuffledBy(ready, *a.Seed)
	}
	r, err := m.s.ReadyGroups(context.Background(), c.name, a)
	require.NoError(m, err)
	have, err := r.Waiting(context.Background())
	require.NoError(m, err)
	require.Equal(m, want, have)
	got := []Candidate{}
	for n := 1; ; n++ {
		part, err := r.Peek(context.Background(), n)
		require.NoError(m, err)
		if len(part) == 0 {
			break
		}
		got = append(got, part...)
		r.Drop(len(part))
	}
	require.Equal(m, ready, got)
}

// However many groups wait, those that come next are read from an index, in its
// order: only leases that are over, which are few, are sorted.
func TestReadyGroupsReadFew(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r1", "g1")
	for _, a := range []Asked{{Rewarded: true}, {}, {Filter: GroupFilter{TaskIDs: []string{"x", "y"}, Splits: []string{"train"}}}} {
		r, err := d.ReadyGroups(d.ctx, "a", a)
		require.NoError(t, err)
		text, args := r.nextInTime(9)
		plan := d.explain(text, args...)
		require.Equal(t, len(a.stages()), strings.Count(plan, "INDEX deliveries_ready (consumer_key=? AND stage=? AND place>?)"), plan)
		require.Equal(t, 1, strings.Count(plan, "TEMP B-TREE"), plan)
		require.NotContains(t, plan, "SCAN", plan)
	}
}

func (d *desk) explain(text string, args ...any) (plan string) {
	rows, err := d.control.read.QueryContext(d.ctx, `EXPLAIN QUERY PLAN `+text, args...)
	require.NoError(d, err)
	defer rows.Close() //nolint:errcheck // Err below says what went wrong
	for rows.Next() {
		var line string
		require.NoError(d, rows.Scan(new(int), new(int), new(int), &line))
		plan += fmt.Sprintln(line)
	}
	require.NoError(d, rows.Err())
	return plan
}

// Groups that wait in a database of before there was an order are given out in it.
func TestMigrateDeliveryOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := openControl(filepath.Join(dir, controlFile))
	require.NoError(t, err)
	for _, name := range []string{"0001_control", "0002_delivery", "0003_learner_logprobs", "0004_gateway"} {
		text, err := os.ReadFile("../migrations/control/" + name + ".up.sql")
		require.NoError(t, err)
		_, err = c.write.Exec(string(text))
		require.NoError(t, err)
	}
	_, err = c.write.Exec(`
		CREATE TABLE schema_version (version INTEGER NOT NULL);
		INSERT INTO schema_version VALUES (1), (2), (3), (4);
		INSERT INTO groups (group_key, group_id, stale, declared, known, finished, settled, finished_at) VALUES
			(1, 'late', 0, 2, 2, 2, 2, 30), (2, 'early', 0, NULL, 1, 1, 1, 20), (3, 'open', 0, 2, 2, 1, 1, 10), (4, 'unrewarded', 0, NULL, 1, 1, 0, 15);
		INSERT INTO consumers (consumer_key, name, created_at, taken_key) VALUES (1, 'a', 1, 4);
		INSERT INTO deliveries (consumer_key, group_key, state) VALUES (1, 1, 'waiting'), (1, 2, 'waiting'), (1, 3, 'waiting'), (1, 4, 'waiting')`)
	require.NoError(t, err)
	require.NoError(t, c.close())
	s := open(t, Options{Dir: dir})
	for _, want := range []struct {
		rewarded bool
		ids      []string
	}{{true, []string{"early", "late"}}, {false, []string{"unrewarded", "early", "late"}}} {
		r, err := s.ReadyGroups(t.Context(), "a", Asked{Rewarded: want.rewarded})
		require.NoError(t, err)
		list, err := r.Peek(t.Context(), 9)
		require.NoError(t, err)
		var ids []string
		for _, g := range list {
			ids = append(ids, g.GroupID)
		}
		require.Equal(t, want.ids, ids)
	}
}
