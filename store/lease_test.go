package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLeaseHoldsAndAckSettles(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r1", "g1")
	d.done("r2", "g2")
	require.Equal(t, []string{"g1", "g2"}, d.names("a"), "oldest finished first")
	l := d.lease("a", "step-1")
	_, held, err := d.Candidates(d.ctx, "a")
	require.NoError(t, err)
	require.Equal(t, 2, held)
	require.Empty(t, d.names("a"))
	require.Equal(t, []string{"g1", "g2"}, d.names("b"), "another consumer sees everything")

	l, err = d.AckLease(d.ctx, l.ID, nil, []byte(`{"loss": 0.5}`))
	require.NoError(t, err)
	require.Equal(t, LeaseAcknowledged, l.State)
	require.Equal(t, []int{0, 1}, l.Acked)
	require.Nil(t, l.Plan, "a settled lease needs no plan")
	again, err := d.AckLease(d.ctx, l.ID, nil, nil)
	require.NoError(t, err)
	require.Equal(t, l, again)
	d.clock.advance(time.Hour)
	require.Empty(t, d.names("a"), "never again")
	_, err = d.ReturnLease(d.ctx, l.ID, 0, "")
	require.ErrorIs(t, err, ErrLeaseAcked)
	_, err = d.ExtendLease(d.ctx, l.ID, 0)
	require.ErrorIs(t, err, ErrLeaseAcked)
	_, err = d.AckLease(d.ctx, "ls_none", nil, nil)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestOneKeyIsOneLease(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r1", "g1")
	n := d.plan("a", "step-1", d.candidates("a")...)
	var leases [32]*Lease
	var all sync.WaitGroup
	for i := range leases {
		all.Go(func() {
			l, err := d.OpenLease(d.ctx, n)
			if err == nil {
				leases[i] = l
			}
		})
	}
	all.Wait()
	for _, l := range leases {
		require.NotNil(t, l)
		require.Equal(t, leases[0].ID, l.ID)
	}
	byKey, err := d.LeaseByKey(d.ctx, "a", "step-1")
	require.NoError(t, err)
	require.Equal(t, leases[0], byKey)
	require.Equal(t, []byte("plan"), byKey.Plan)
	_, err = d.LeaseByKey(d.ctx, "b", "step-1")
	require.ErrorIs(t, err, ErrNotFound)
	n.Key = "step-2"
	_, err = d.OpenLease(d.ctx, n)
	require.ErrorIs(t, err, ErrGroupTaken)
}

// Many learners plan at once: each group goes to one of them.
func TestConcurrentLeasesDoNotOverlap(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for i := range 20 {
		d.done(fmt.Sprint("r", i), fmt.Sprint("g", i))
	}
	var mu sync.Mutex
	got := map[int64]int{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				list, _, err := d.Candidates(d.ctx, "a")
				if err != nil || len(list) == 0 {
					return
				}
				n := d.plan("a", "", list[0])
				switch _, err := d.OpenLease(d.ctx, n); {
				case err == nil:
					mu.Lock()
					got[n.Groups[0].Key]++
					mu.Unlock()
				case !errors.Is(err, ErrGroupTaken):
					return
				}
			}
		})
	}
	all.Wait()
	require.Len(t, got, 20)
	for key, n := range got {
		require.Equal(t, 1, n, key)
	}
}

func TestExpiredLease(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r1", "g1")
	d.done("r2", "g2")
	l := d.lease("a", "k")
	d.clock.advance(time.Minute)
	require.Equal(t, []string{"g1", "g2"}, d.names("a"), "its time is over")
	l, err := d.Lease(d.ctx, l.ID)
	require.NoError(t, err)
	require.Equal(t, LeaseExpired, l.State)
	require.Zero(t, l.SettledAt)

	l, err = d.ExtendLease(d.ctx, l.ID, 0)
	require.NoError(t, err)
	require.Equal(t, LeaseOpen, l.State)
	require.Empty(t, d.names("a"), "revived")

	d.clock.advance(time.Minute)
	l, err = d.AckLease(d.ctx, l.ID, []int{0}, nil)
	require.NoError(t, err, "late, but nobody else has them")
	require.Equal(t, LeaseExpired, l.State)
	require.Equal(t, []int{0}, l.Acked)
	require.Equal(t, []string{"g2"}, d.names("a"), "g1 stays acknowledged")

	other := d.lease("a", "k2")
	l, err = d.Lease(d.ctx, l.ID)
	require.NoError(t, err)
	require.Equal(t, LeaseExpired, l.State)
	require.NotZero(t, l.SettledAt)
	require.Nil(t, l.Plan)
	_, err = d.AckLease(d.ctx, l.ID, nil, nil)
	require.ErrorIs(t, err, ErrLeaseLost)
	_, err = d.AckLease(d.ctx, l.ID, []int{0}, nil)
	require.NoError(t, err, "that shard was acknowledged in time")
	_, err = d.ExtendLease(d.ctx, l.ID, 10)
	require.ErrorIs(t, err, ErrLeaseLost)
	_, err = d.ReturnLease(d.ctx, l.ID, 0, "")
	require.ErrorIs(t, err, ErrLeaseLost)
	_, err = d.AckLease(d.ctx, other.ID, nil, nil)
	require.NoError(t, err)
	state, err := d.Consumer(d.ctx, "a")
	require.NoError(t, err)
	require.EqualValues(t, 2, state.Acknowledged.Groups)
	require.EqualValues(t, 1, state.Acknowledged.Leases)
	require.EqualValues(t, 1, state.ExpiredLeases)
	require.EqualValues(t, 1, state.RedeliveredGroups)
}

// Whoever waits must know from the same look what is held and until when: a lease
// that expires between two looks would be waited for in vain.
func TestHeldUntil(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r1", "g1")
	first := d.lease("a", "k1")
	d.done("r2", "g2")
	second := d.lease("a", "k2")
	waiting := func() Waiting {
		r, err := d.ReadyGroups(d.ctx, "a", Asked{Filter: GroupFilter{GroupIDs: []string{"other"}}})
		require.NoError(t, err)
		w, err := r.Waiting(d.ctx)
		require.NoError(t, err)
		return w
	}
	require.Equal(t, Waiting{Held: 2, Moment: first.ExpiresAt}, waiting())
	d.clock.us.Store(first.ExpiresAt)
	require.Equal(t, Waiting{Held: 1, Filtered: 1, Moment: second.ExpiresAt}, waiting())
	d.clock.us.Store(second.ExpiresAt)
	require.Equal(t, Waiting{Filtered: 2}, waiting())
}

func TestReturnedLease(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r1", "g1")
	l := d.lease("a", "k")
	changed := d.GroupsChanged()
	l, err := d.ReturnLease(d.ctx, l.ID, 10*time.Second, "out of memory")
	require.NoError(t, err)
	require.Equal(t, LeaseReturned, l.State)
	<-changed
	d.clock.advance(4 * time.Second)
	again, err := d.ReturnLease(d.ctx, l.ID, 0, "")
	require.NoError(t, err)
	require.Equal(t, l, again, "the delay goes on as it was")
	_, held, err := d.Candidates(d.ctx, "a")
	require.NoError(t, err)
	require.Equal(t, 1, held, "for as long as the delay")
	_, err = d.AckLease(d.ctx, l.ID, nil, nil)
	require.ErrorIs(t, err, ErrLeaseLost)
	_, err = d.ReviveLease(d.ctx, l.ID, 0)
	require.ErrorIs(t, err, ErrLeaseLost)
	d.clock.advance(6 * time.Second)
	require.Equal(t, []string{"g1"}, d.names("a"))
	_, err = d.ExtendLease(d.ctx, l.ID, 0)
	require.ErrorIs(t, err, ErrLeaseLost, "a heartbeat that comes late takes nothing back")
	require.Equal(t, []string{"g1"}, d.names("a"))
	l, err = d.ReviveLease(d.ctx, l.ID, 0)
	require.NoError(t, err, "but who asks by its key gets it again")
	require.Equal(t, LeaseOpen, l.State)
	_, err = d.AckLease(d.ctx, l.ID, nil, nil)
	require.NoError(t, err)
}

// A group that lies in two shards is acknowledged with the second of them.
func TestShards(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r1", "g1")
	d.done("r2", "g2")
	n := d.plan("a", "k", d.candidates("a")...)
	n.Groups[0].Shards = []int{0, 1}
	l, err := d.OpenLease(d.ctx, n)
	require.NoError(t, err)
	acked := func() int64 {
		state, err := d.Consumer(d.ctx, "a")
		require.NoError(t, err)
		return state.Acknowledged.Groups
	}
	_, err = d.AckLease(d.ctx, l.ID, []int{2}, nil)
	require.ErrorIs(t, err, ErrNoShard)
	_, err = d.AckLease(d.ctx, l.ID, []int{0}, nil)
	require.NoError(t, err)
	require.Zero(t, acked())
	l, err = d.AckLease(d.ctx, l.ID, []int{1, 1, 0}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, acked())
	require.Equal(t, LeaseAcknowledged, l.State)

	n.Key, n.Groups[0].Shards = "k2", []int{2}
	_, err = d.OpenLease(d.ctx, n)
	require.ErrorIs(t, err, ErrNoShard)
}

func TestSkippedGroups(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.done("r1", "g1")
	d.done("r2", "g2")
	list := d.candidates("a")
	n := d.plan("a", "k", list[0])
	n.Skips = []Skip{{Key: list[1].Key, Reason: "stale", PolicyVersionMin: ptr(int64(3))}}
	_, err := d.OpenLease(d.ctx, n)
	require.NoError(t, err)
	require.NoError(t, d.SkipGroups(d.ctx, "a", []Skip{{Key: list[0].Key, Reason: "empty"}}), "it is held, and stays so")
	state, err := d.Consumer(d.ctx, "a")
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"stale": 1}, state.Skipped)
	d.clock.advance(time.Hour)
	require.Equal(t, []string{"g1"}, d.names("a"))
	cancelled, err := d.SeekConsumer(d.ctx, "a", Seek{})
	require.NoError(t, err)
	require.Zero(t, cancelled, "it had expired")
	require.Equal(t, []string{"g1", "g2"}, d.names("a"))
}
