package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The model: what the contract says, in maps. Names stand for keys.

type modelRollout struct {
	id, group, status string
	size              *int64
	created, finished int64
	updated           int64
	batch             int64
	intents           int
	rewards           []modelReward
}

type modelReward struct {
	id, source string
	revision   int64
}

func (r *modelRollout) outcome() string {
	var best *modelReward
	for i := range r.rewards {
		w := &r.rewards[i]
		if best == nil || w.revision > best.revision || w.revision == best.revision && w.source < best.source {
			best = w
		}
	}
	if best == nil {
		return ""
	}
	return best.id
}

// groupName names the group that a rollout is in; "": none yet.
func (r *modelRollout) groupName() string {
	switch {
	case r.group != "":
		return r.group
	case r.status != "":
		return "alone " + r.id
	}
	return ""
}

type modelPin struct {
	rollout *modelRollout
	group   string
	batch   int64
	reward  string
}

type modelLease struct {
	id, key        string
	state          string // open, returned, acknowledged, cancelled, lost
	expires        int64
	created        int64
	seconds        int
	shards         int
	groups         map[string][]int
	pins           []modelPin
	acked          map[int]bool
	rows, rollouts int
}

type modelDelivery struct {
	state   string // "" waits, held, acked, skipped
	lease   *modelLease
	reason  string
	version *int64
	times   int
}

type modelConsumer struct {
	name        string
	groups      map[string]*modelDelivery
	leases      []*modelLease
	from        *int64
	fromVersion *int64
	ackedGroups int64
	redelivered int64
}

// of gives what became of a group.
func (c *modelConsumer) of(group string) *modelDelivery {
	if c.groups[group] == nil {
		c.groups[group] = &modelDelivery{}
	}
	return c.groups[group]
}

// lose settles a lease and gives back what it still holds.
func (c *modelConsumer) lose(l *modelLease, state string) {
	l.state = state
	for _, d := range c.groups {
		if d.lease == l && d.state == "held" {
			d.state, d.lease, d.version = "", nil, nil
		}
	}
}

type deliveryModel struct {
	*rapid.T
	s        *Store
	clock    *clock
	prefix   string
	rollouts map[string]*modelRollout
	names    []string
	// keys are the group_keys by name, as far as they were seen.
	keys      map[string]int64
	consumers []*modelConsumer
	n, steps  int
}

// expected is what Candidates should say of each group, by name.
func (m *deliveryModel) expected(c *modelConsumer) (list map[string]Candidate, held int) {
	all := m.sums()
	list = map[string]Candidate{}
	for name, g := range all {
		d := c.of(name)
		now := m.clock.us.Load()
		switch {
		case d.state == "held" && d.lease.expires > now:
			held++
		case d.state == "acked", d.state == "skipped":
		case d.state == "" && c.from != nil && g.Finished > 0 && g.FinishedAt < *c.from:
		default:
			list[name] = g
		}
	}
	return list, held
}

func (m *deliveryModel) sums() map[string]Candidate {
	all := map[string]Candidate{}
	for _, id := range m.names {
		r := m.rollouts[id]
		name := r.groupName()
		if name == "" {
			continue
		}
		g := all[name]
		g.GroupID = r.group
		g.Known++
		g.NewestAt = max(g.NewestAt, r.created)
		if r.size != nil && (g.Declared == nil || *g.Declared < *r.size) {
			g.Declared = r.size
		}
		if r.status != "" {
			g.Finished++
			g.FinishedAt = max(g.FinishedAt, r.finished)
			if r.status != "succeeded" || r.outcome() != "" {
				g.Settled++
			}
			if r.intents > 0 {
				g.IncompleteAt = max(g.IncompleteAt, r.updated)
			}
		}
		all[name] = g
	}
	return all
}

// candidates compares what the store lists with what is expected.
func (m *deliveryModel) candidates(c *modelConsumer) map[string]Candidate {
	ctx := context.Background()
	list, held, err := m.s.Candidates(ctx, c.name)
	require.NoError(m, err)
	require.True(m, slices.IsSortedFunc(list, func(a, b Candidate) int { return int(a.FinishedAt - b.FinishedAt) }))
	m.ready(c, list, held)
	var keys []int64
	for _, g := range list {
		keys = append(keys, g.Key)
	}
	rollouts, err := m.s.GroupRollouts(ctx, keys)
	require.NoError(m, err)
	have := map[string]Candidate{}
	for _, g := range list {
		first := m.rollouts[rollouts[g.Key][0].ID]
		if first == nil {
			continue // of an earlier round
		}
		name := first.groupName()
		require.Len(m, rollouts[g.Key], g.Known)
		m.keys[name] = g.Key
		g.Key = 0
		have[name] = g
	}
	want, wantHeld := m.expected(c)
	require.Equal(m, want, have)
	require.Equal(m, wantHeld, held)
	return have
}

// over says that a delivery no longer stands in the way of a lease.
func (m *deliveryModel) over(d *modelDelivery) bool {
	return d.state == "" || d.state == "held" && d.lease.expires <= m.clock.us.Load()
}

// given are the pins that count, by rollout.
func (c *modelConsumer) given() map[string]modelPin {
	out := map[string]modelPin{}
	for _, l := range c.leases {
		for _, p := range l.pins {
			if d := c.of(p.group); d.lease == l {
				out[p.rollout.id] = p
			}
		}
	}
	return out
}

func (m *deliveryModel) compareLease(c *modelConsumer, l *modelLease, have *Lease) {
	state, now := l.state, m.clock.us.Load()
	switch {
	case state == "open" && l.expires <= now:
		state = "expired"
	case state == "lost" && have.State == LeaseReturned:
		state = "returned" // it was, before it was lost
	case state == "lost":
		state = "expired"
	}
	require.Equal(m, state, have.State)
	require.Equal(m, l.state != "open" && l.state != "returned", have.SettledAt != 0)
	require.Equal(m, have.SettledAt != 0, have.Plan == nil)
	require.Equal(m, []any{c.name, l.key, l.shards, l.seconds, len(l.groups), l.expires},
		[]any{have.Consumer, have.Key, have.Shards, have.Seconds, have.Groups, have.ExpiresAt})
	acked := []int{}
	for i := range l.shards {
		if l.acked[i] {
			acked = append(acked, i)
		}
	}
	require.Equal(m, acked, have.Acked)
}

// check compares everything that can be asked.
func (m *deliveryModel) check(_ *rapid.T) {
	m.clock.advance(time.Microsecond) // so that no two finishes tie
	ctx, now := context.Background(), m.clock.us.Load()
	// Not both at every step: each takes a commit, and so the disk's time.
	m.steps++
	if m.steps%2 == 0 {
		return
	}
	for _, c := range m.consumers[m.steps/2%2 : m.steps/2%2+1] {
		have, err := m.s.Consumer(ctx, c.name)
		if errors.Is(err, ErrNotFound) {
			require.Empty(m, c.leases)
			continue
		}
		require.NoError(m, err)
		require.Equal(m, c.from, have.FromTime)
		require.Equal(m, c.fromVersion, have.FromPolicyVersion)
		require.Equal(m, c.ackedGroups, have.Acknowledged.Groups)
		require.Equal(m, c.redelivered, have.RedeliveredGroups)
		var open []string
		want := Delivered{Groups: c.ackedGroups}
		for _, l := range c.leases {
			if l.state == "open" && l.expires > now {
				open = append(open, l.id)
			}
			if l.state == "acknowledged" {
				want.Leases++
				want.Rollouts, want.Rows, want.Tokens, want.Trained = want.Rollouts+int64(l.rollouts), want.Rows+int64(l.rows), want.Tokens+100, want.Trained+10
			}
		}
		require.Equal(m, want, have.Acknowledged)
		var haveOpen []string
		for _, l := range have.OpenLeases {
			haveOpen = append(haveOpen, l.ID)
		}
		require.Equal(m, open, haveOpen)
		m.checkPins(c, have)
		m.candidates(c)
	}
}

// checkPins compares what is given out, and what changed since.
func (m *deliveryModel) checkPins(c *modelConsumer, have *ConsumerState) {
	var changed ChangedAfterLease
	want := map[int64]int64{}
	var rollouts []int64
	for _, id := range m.names {
		rollouts = append(rollouts, m.rolloutKey(m.rollouts[id]))
	}
	for _, p := range c.given() {
		d := c.of(p.group)
		if d.state == "held" && d.lease.expires <= m.clock.us.Load() {
			continue
		}
		want[m.rolloutKey(p.rollout)] = 0
		if d.state == "held" {
			want[m.rolloutKey(p.rollout)] = d.lease.expires
		}
		if d.state == "held" && d.lease.state == "returned" {
			continue
		}
		reopened, rewarded := p.rollout.batch > p.batch, p.rollout.outcome() != p.reward
		if reopened {
			changed.Reopened++
		}
		if rewarded {
			changed.RewardedAnew++
		}
		if reopened || rewarded {
			changed.Rollouts++
		}
	}
	given, err := m.s.Given(context.Background(), c.name, rollouts)
	require.NoError(m, err)
	require.Equal(m, want, given)
	changed.Late = m.late(c)
	require.Equal(m, changed, have.Changed)
}

// late counts the rollouts that came too late for the lease of their group.
func (m *deliveryModel) late(c *modelConsumer) (n int64) {
	pinned := map[*modelRollout]bool{}
	for _, l := range c.leases {
		for _, p := range l.pins {
			pinned[p.rollout] = true
		}
	}
	for _, r := range m.rollouts {
		d := c.groups[r.group]
		if d == nil || d.lease == nil || r.group == "" || r.status == "" || pinned[r] {
			continue
		}
		if d.state == "held" && (d.lease.state != "open" || d.lease.expires <= m.clock.us.Load()) {
			continue
		}
		whole := r.status == "succeeded" && r.intents == 0 && r.outcome() != ""
		if r.finished >= d.lease.created || whole && r.finished >= d.lease.created-60*second {
			n++
		}
	}
	return n
}
