package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/trace"
)

func (m *deliveryModel) id(kind string) string {
	m.n++
	return fmt.Sprint(m.prefix, kind, m.n)
}

func (m *deliveryModel) drawRollout() *modelRollout {
	id := m.prefix + rapid.SampledFrom([]string{"r0", "r1", "r2", "r3", "r4"}).Draw(m.T, "rollout")
	r := m.rollouts[id]
	if r == nil {
		r = &modelRollout{id: id, created: m.clock.us.Load()}
		m.rollouts[id] = r
		m.names = append(m.names, id)
	}
	return r
}

func (m *deliveryModel) drawConsumer() *modelConsumer {
	return rapid.SampledFrom(m.consumers).Draw(m.T, "consumer")
}

func (m *deliveryModel) trace(_ *rapid.T) {
	r := m.drawRollout()
	id := m.id("t")
	if rapid.Bool().Draw(m.T, "announced") {
		_, _, err := m.s.PutIntents(context.Background(), []*trace.Intent{{TraceID: id, RolloutID: r.id}})
		require.NoError(m, err)
		r.intents++
		r.updated = m.clock.us.Load()
		if rapid.Bool().Draw(m.T, "lost") {
			return
		}
	}
	out, _, err := m.s.PutTraces(context.Background(), []*trace.Trace{call(id, r.id, []int32{1}, []int32{2})})
	require.NoError(m, err)
	require.Equal(m, Stored, out[0].Status)
	state, err := m.s.Rollout(context.Background(), r.id)
	require.NoError(m, err)
	r.batch, r.intents, r.updated = state.LastBatch, int(state.OpenIntents), m.clock.us.Load()
}

func (m *deliveryModel) attributes(_ *rapid.T) {
	r := m.drawRollout()
	r.updated = m.clock.us.Load()
	r.group = rapid.SampledFrom([]string{"", m.prefix + "g0", m.prefix + "g1"}).Draw(m.T, "group")
	r.size = rapid.SampledFrom([]*int64{r.size, ptr(int64(1)), ptr(int64(2))}).Draw(m.T, "size")
	_, _, err := m.s.PatchRollout(context.Background(), r.id, &trace.RolloutPatch{GroupID: &r.group, GroupSize: r.size})
	require.NoError(m, err)
}

func (m *deliveryModel) finish(_ *rapid.T) {
	r := m.drawRollout()
	status := rapid.SampledFrom([]string{"succeeded", "failed", "timeout"}).Draw(m.T, "status")
	_, out, _, err := m.s.FinishRollout(context.Background(), r.id, &trace.Finish{Status: status})
	require.NoError(m, err)
	if out.Status == Stored {
		require.Empty(m, r.status)
		r.status, r.finished, r.updated = status, m.clock.us.Load(), m.clock.us.Load()
	}
}

func (m *deliveryModel) reward(_ *rapid.T) {
	r := m.drawRollout()
	w := &trace.Reward{RewardID: m.id("w"), RolloutID: r.id, Name: rapid.SampledFrom([]string{"outcome", "style"}).Draw(m.T, "name"),
		Source: rapid.SampledFrom([]string{"", "judge"}).Draw(m.T, "source"), Revision: rapid.Int64Range(0, 5).Draw(m.T, "revision"), Value: float64(m.n)}
	out, _, err := m.s.PutRewards(context.Background(), []*trace.Reward{w})
	require.NoError(m, err)
	if w.Name == "outcome" && out[0].Status == Stored {
		r.rewards = append(r.rewards, modelReward{w.RewardID, w.Source, w.Revision})
	}
}

func (m *deliveryModel) wait(_ *rapid.T) {
	m.clock.advance(time.Duration(rapid.IntRange(1, 40).Draw(m.T, "seconds")) * time.Second)
}

func (m *deliveryModel) lease(_ *rapid.T) {
	ctx, c := context.Background(), m.drawConsumer()
	m.candidates(c) // makes the consumer, and names the keys
	var names []string
	for name := range m.keys {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return
	}
	// Some plans are out of date: they name groups that are settled or held.
	names = rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, min(3, len(names)), rapid.ID).Draw(m.T, "groups")
	l := &modelLease{shards: rapid.IntRange(1, 3).Draw(m.T, "shards"), seconds: rapid.IntRange(1, 60).Draw(m.T, "lasts"),
		groups: map[string][]int{}, acked: map[int]bool{}, state: "open"}
	l.key = c.name + rapid.SampledFrom([]string{"k0", "k1", "k2", "k3", "k4", "k5"}).Draw(m.T, "key")
	n := NewLease{Consumer: c.name, Key: l.key, Request: []byte(l.key), Plan: []byte("plan"), Shards: l.shards, Seconds: l.seconds}
	given := c.given()
	refused := false
	for _, name := range names {
		shards := rapid.SliceOfNDistinct(rapid.IntRange(0, l.shards-1), 1, 2*min(1, l.shards-1)+1-min(1, l.shards-1), rapid.ID).Draw(m.T, "in")
		version := rapid.SampledFrom([]*int64{nil, ptr(int64(1)), ptr(int64(5))}).Draw(m.T, "version")
		g := LeasedGroup{Key: m.keys[name], Shards: shards, PolicyVersionMin: version}
		l.groups[name] = shards
		refused = refused || !m.over(c.of(name))
		for _, id := range m.names {
			r := m.rollouts[id]
			p, was := given[r.id]
			if r.groupName() != name || r.status == "" || was && c.of(p.group).state == "acked" {
				continue
			}
			refused = refused || was && !m.over(c.of(p.group))
			g.Pins = append(g.Pins, Pin{m.rolloutKey(r), r.batch, r.outcome()})
			l.pins = append(l.pins, modelPin{r, name, r.batch, r.outcome()})
		}
		n.Groups = append(n.Groups, g)
	}
	n.Rollouts, n.Rows, n.Tokens, n.Trained = len(l.pins), 2*len(l.pins), 100, 10
	l.rollouts, l.rows = n.Rollouts, n.Rows
	have, err := m.s.OpenLease(ctx, n)
	if i := slices.IndexFunc(c.leases, func(o *modelLease) bool { return o.key == l.key }); i >= 0 {
		require.NoError(m, err)
		require.Equal(m, c.leases[i].id, have.ID)
		return
	}
	if refused {
		require.ErrorIs(m, err, ErrGroupTaken)
		return
	}
	require.NoError(m, err)
	inTheWay := slices.Clone(names)
	for _, p := range l.pins {
		if was, ok := given[p.rollout.id]; ok {
			inTheWay = append(inTheWay, was.group)
		}
	}
	for _, name := range inTheWay {
		if d := c.of(name); d.state == "held" {
			c.lose(d.lease, "lost")
		}
	}
	for i, name := range names {
		d := c.of(name)
		if d.times > 0 {
			c.redelivered++
		}
		*d = modelDelivery{state: "held", lease: l, version: n.Groups[i].PolicyVersionMin, times: d.times + 1}
	}
	l.id, l.created, l.expires = have.ID, m.clock.us.Load(), m.clock.us.Load()+int64(l.seconds)*second
	c.leases = append(c.leases, l)
	m.compareLease(c, l, have)
}

func (m *deliveryModel) rolloutKey(r *modelRollout) int64 {
	have, err := m.s.Rollout(context.Background(), r.id)
	require.NoError(m, err)
	return have.Key
}

func (m *deliveryModel) skip(_ *rapid.T) {
	c := m.drawConsumer()
	list := m.candidates(c)
	var skips []Skip
	for name, key := range m.keys {
		if _, ok := list[name]; ok || len(name)%2 == 0 {
			version := ptr(int64(3))
			skips = append(skips, Skip{key, "stale", version})
			if d := c.of(name); m.over(d) {
				if d.state == "held" {
					c.lose(d.lease, "lost")
				}
				*d = modelDelivery{state: "skipped", reason: "stale", version: version, times: d.times}
			}
		}
		break
	}
	require.NoError(m, m.s.SkipGroups(context.Background(), c.name, skips))
}

func (m *deliveryModel) drawLease() (*modelConsumer, *modelLease) {
	c := m.drawConsumer()
	if len(c.leases) == 0 {
		m.Skip("no lease")
	}
	return c, rapid.SampledFrom(c.leases).Draw(m.T, "lease")
}

func (m *deliveryModel) ack(_ *rapid.T) {
	c, l := m.drawLease()
	var shards []int
	if rapid.Bool().Draw(m.T, "some") {
		shards = rapid.SliceOfN(rapid.IntRange(0, l.shards-1), 1, 2).Draw(m.T, "shards")
	}
	have, err := m.s.AckLease(context.Background(), l.id, shards, []byte(`{"loss":1}`))
	wanted := shards
	if wanted == nil {
		for i := range l.shards {
			wanted = append(wanted, i)
		}
	}
	done := !slices.ContainsFunc(wanted, func(i int) bool { return !l.acked[i] })
	if !done && l.state != "open" {
		require.ErrorIs(m, err, ErrLeaseLost)
		return
	}
	require.NoError(m, err)
	for _, i := range wanted {
		l.acked[i] = true
	}
	for name, in := range l.groups {
		if d := c.of(name); d.lease == l && d.state == "held" && !slices.ContainsFunc(in, func(i int) bool { return !l.acked[i] }) {
			d.state = "acked"
			c.ackedGroups++
		}
	}
	if len(l.acked) == l.shards {
		l.state = "acknowledged"
	}
	m.compareLease(c, l, have)
}

func (m *deliveryModel) giveBack(_ *rapid.T) {
	c, l := m.drawLease()
	delay := time.Duration(rapid.IntRange(0, 20).Draw(m.T, "delay")) * time.Second
	have, err := m.s.ReturnLease(context.Background(), l.id, delay, "out of memory")
	switch {
	case l.state == "acknowledged":
		require.ErrorIs(m, err, ErrLeaseAcked)
		return
	case l.state == "open":
		l.state, l.expires = "returned", m.clock.us.Load()+delay.Microseconds()
	case l.state == "returned" || err == nil && have.State == LeaseReturned:
	default:
		require.ErrorIs(m, err, ErrLeaseLost)
		return
	}
	require.NoError(m, err)
	m.compareLease(c, l, have)
}

func (m *deliveryModel) extend(_ *rapid.T) {
	c, l := m.drawLease()
	seconds := rapid.IntRange(0, 30).Draw(m.T, "seconds")
	renew, byKey := m.s.ExtendLease, rapid.Bool().Draw(m.T, "by key")
	if byKey {
		renew = m.s.ReviveLease
	}
	have, err := renew(context.Background(), l.id, seconds)
	switch {
	case l.state == "acknowledged":
		require.ErrorIs(m, err, ErrLeaseAcked)
		return
	case l.state == "cancelled", l.state == "lost", l.state == "returned" && (!byKey || l.expires > m.clock.us.Load()):
		require.ErrorIs(m, err, ErrLeaseLost)
		return
	}
	require.NoError(m, err)
	if seconds == 0 {
		seconds = l.seconds
	}
	l.state, l.expires = "open", m.clock.us.Load()+int64(seconds)*second
	m.compareLease(c, l, have)
}

func (m *deliveryModel) seek(_ *rapid.T) {
	c := m.drawConsumer()
	var to Seek
	now := m.clock.us.Load()
	free := func(Candidate, *modelDelivery) bool { return true }
	c.from, c.fromVersion = nil, nil
	switch rapid.IntRange(0, 3).Draw(m.T, "place") {
	case 1:
		to.Time = ptr(now - rapid.Int64Range(0, 30).Draw(m.T, "ago")*second)
		c.from = to.Time
		free = func(g Candidate, _ *modelDelivery) bool { return g.FinishedAt >= *to.Time }
	case 2:
		to.PolicyVersion = ptr(rapid.Int64Range(0, 6).Draw(m.T, "version"))
		c.fromVersion = to.PolicyVersion
		free = func(_ Candidate, d *modelDelivery) bool { return d.version != nil && *d.version >= *to.PolicyVersion }
	case 3:
		to.End = true
		c.from = ptr(now)
		free = func(Candidate, *modelDelivery) bool { return false }
	}
	cancelled, err := m.s.SeekConsumer(context.Background(), c.name, to)
	if errors.Is(err, ErrNotFound) {
		require.Empty(m, c.leases)
		c.from, c.fromVersion = nil, nil
		return
	}
	require.NoError(m, err)
	open := 0
	for _, l := range c.leases {
		if l.state == "open" && l.expires > now {
			open++
		}
		if l.state == "open" || l.state == "returned" {
			c.lose(l, "cancelled")
		}
	}
	require.Equal(m, open, cancelled)
	sums := m.sums()
	for name, d := range c.groups {
		if (d.state == "acked" || d.state == "skipped") && free(sums[name], d) {
			*d = modelDelivery{times: d.times}
		}
	}
}

// Whatever is sent, leased, acknowledged, returned, left to expire, or sought, in
// any order and across restarts: the store does what the model does. In
// particular, what was acknowledged is not given out again but after a seek.
func TestDeliveryModel(t *testing.T) {
	t.Parallel()
	time := newClock()
	opts := quiet(t, Options{Dir: t.TempDir(), Clock: time.now})
	s, err := Open(context.Background(), opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(context.Background())) }()
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		round++
		m := &deliveryModel{T: r, s: s, clock: time, prefix: fmt.Sprint(round, "-"), rollouts: map[string]*modelRollout{}, keys: map[string]int64{}}
		for _, name := range []string{"a", "b"} {
			m.consumers = append(m.consumers, &modelConsumer{name: m.prefix + name, groups: map[string]*modelDelivery{}})
		}
		restarts := 0
		r.Repeat(map[string]func(*rapid.T){"": m.check, "trace": m.trace, "attributes": m.attributes, "finish": m.finish, "finish2": m.finish,
			"reward": m.reward, "wait": m.wait, "lease": m.lease, "lease2": m.lease, "lease3": m.lease, "skip": m.skip, "ack": m.ack, "ack2": m.ack,
			"return": m.giveBack, "extend": m.extend, "seek": m.seek,
			"restart": func(r *rapid.T) {
				if restarts++; restarts > 1 {
					r.Skip("once is enough")
				}
				require.NoError(r, s.Close(context.Background()))
				s, err = Open(context.Background(), opts)
				require.NoError(r, err)
				m.s = s
			}})
	})
}
