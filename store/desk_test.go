package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/trace"
)

// desk is a store with a clock that the test moves, and groups to give out.
type desk struct {
	testing.TB
	*Store
	clock *clock
	ctx   context.Context
}

func newDesk(t testing.TB) *desk {
	c := newClock()
	return &desk{TB: t, Store: open(t, Options{Clock: c.now}), clock: c, ctx: context.Background()}
}

// done makes a rollout that is finished and rewarded.
func (d *desk) done(id, group string) {
	d.clock.advance(time.Second)
	if group != "" {
		_, _, err := d.PatchRollout(d.ctx, id, &trace.RolloutPatch{GroupID: &group})
		require.NoError(d, err)
	}
	_, _, _, err := d.FinishRollout(d.ctx, id, &trace.Finish{Status: "succeeded"})
	require.NoError(d, err)
	d.reward(id, 0)
}

func (d *desk) reward(id string, revision int64) {
	out, _, err := d.PutRewards(d.ctx, []*trace.Reward{{RewardID: fmt.Sprint("w-", id, revision), RolloutID: id, Name: trace.DefaultReward, Revision: revision, Value: float64(revision)}})
	require.NoError(d, err)
	require.Equal(d, Stored, out[0].Status)
}

func (d *desk) candidates(consumer string) []Candidate {
	list, _, err := d.Candidates(d.ctx, consumer)
	require.NoError(d, err)
	return list
}

// names are the group ids of what a consumer may be given, in order.
func (d *desk) names(consumer string) []string {
	out := []string{}
	for _, c := range d.candidates(consumer) {
		out = append(out, c.GroupID)
	}
	return out
}

// plan makes a lease of groups that are candidates, one to a shard.
func (d *desk) plan(consumer, key string, groups ...Candidate) NewLease {
	n := NewLease{Consumer: consumer, Key: key, Request: []byte("{}"), Plan: []byte("plan"), Shards: len(groups), Seconds: 60}
	var keys []int64
	for _, g := range groups {
		keys = append(keys, g.Key)
	}
	rollouts, err := d.GroupRollouts(d.ctx, keys)
	require.NoError(d, err)
	for i, g := range groups {
		l := LeasedGroup{Key: g.Key, Shards: []int{i}, PolicyVersionMin: ptr(int64(i))}
		for _, r := range rollouts[g.Key] {
			rewards, err := d.Rewards(d.ctx, []int64{r.Key})
			require.NoError(d, err)
			p := Pin{Rollout: r.Key, LastBatch: r.LastBatch}
			if w := rewards[r.Key]; len(w) > 0 {
				p.RewardID = w[0].RewardID
			}
			l.Pins = append(l.Pins, p)
		}
		n.Groups = append(n.Groups, l)
	}
	return n
}

// lease leases all that a consumer may be given.
func (d *desk) lease(consumer, key string) *Lease {
	l, err := d.OpenLease(d.ctx, d.plan(consumer, key, d.candidates(consumer)...))
	require.NoError(d, err)
	require.Equal(d, LeaseOpen, l.State)
	return l
}

// clock is a wall clock that a test moves.
type clock struct{ us atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.us.Store(1_700_000_000_000_000)
	return c
}

func (c *clock) now() time.Time          { return time.UnixMicro(c.us.Load()) }
func (c *clock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }
